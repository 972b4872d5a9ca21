"""What a person can do when the cloud account does not permit a deletion."""

from __future__ import annotations

from resources.errors import ErrorClass


def way_out(error_class: ErrorClass, cluster: str, machine: str, *, force: bool, vm: bool = True) -> str:
    """Advice on a deletion that failed because of its credentials; "" for any other failure, which is waited out. `vm`:
    whether there is known to be a VM.

    Force ends the waits for pods. Only the account can say that a VM is gone (invariant I6): without credentials there
    is nothing that force could shorten, and the person who asked for it must be told so.
    """
    if error_class is not ErrorClass.AUTH:
        return ""
    stays = "nothing is deleted, and the VM costs money," if vm else "nobody knows whether there is a VM,"
    return (
        f"{'--force does not help here: ' if force else ''}{stays} until the "
        "cloud accepts the deletion and reports that the VM is gone. Put credentials for its account back into the "
        f"Secret (`hostler apply -f SECRET-FILE --cluster {cluster}`), or give its class another Secret for that "
        "account. If the account is closed for good, make sure that the VM is gone, then end the machine with "
        f"`temporal workflow terminate -w machine/{cluster}/{machine}` and delete its Node"
    )
