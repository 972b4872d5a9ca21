"""What a person can do about a deletion that its cloud account does not let happen."""

from __future__ import annotations

from resources.errors import ErrorClass


def way_out(error_class: ErrorClass, cluster: str, machine: str, *, force: bool) -> str:
    """In words, for a deletion that failed by credentials; "" for all else, which is waited for.

    Force ends the waits for pods. That a VM is gone is taken from nobody but its account (invariant I6): without
    credentials there is nothing that force could shorten, and whoever asked for it must hear so.
    """
    if error_class is not ErrorClass.AUTH:
        return ""
    return (
        f"{'--force does not help here: ' if force else ''}nothing is deleted, and the VM costs money, until the cloud "
        "lets it be deleted and says that it is gone. Put credentials of its account back into the Secret (`hostler "
        f"apply -f SECRET-FILE --cluster {cluster}`), or give its class another Secret of that account. Where the "
        "account is closed for good, make sure that the VM is gone, then end the machine with `temporal workflow "
        f"terminate -w machine/{cluster}/{machine}` and delete its Node"
    )
