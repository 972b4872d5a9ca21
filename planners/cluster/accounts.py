"""Which cloud accounts a cluster watches: those that its classes name, and no others.

An account that nobody uses any longer would hold up pools forever once its key is revoked (invariant I17).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from resources.cluster.accounts import Account, AccountUse
from resources.cluster.state import ClusterState, UsesFound

UNKNOWN = ""
"""Stands for the class of machines whose class is not known. What concerns them concerns everybody."""


def used_by(state: ClusterState, use: AccountUse) -> list[Account]:
    """The accounts of a class once it is known that it uses this one.

    A class has one Secret at a time, and its machines are looked after with the newest one, whatever they were made
    with. In another scope, such as another region, there may be machines that were made before the class moved.
    """
    account = use.account
    former = [
        state.accounts[k] for k in state.classes.get(use.machine_class, ()) if k in state.accounts and k != account.key
    ]
    if use.machine_class == UNKNOWN:
        return [*former, account]
    elsewhere = [a for a in former if (a.provider, a.scope) != (account.provider, account.scope)]
    return [*(a.model_copy(update={"secret_ref": account.secret_ref}) for a in elsewhere), account]


def found_unused(s: ClusterState, found: UsesFound, meanwhile: Collection[str]) -> tuple[list[str], list[str]]:
    """The classes to forget, and those to forget if the next look does not find them either. `meanwhile`: classes heard
    of since the look began."""
    missing = [name for name in found.unused if name in s.classes and name not in meanwhile]
    gone = [name for name in missing if name in s.unused]
    if UNKNOWN in s.classes and UNKNOWN not in meanwhile and not found.unread:
        gone.append(UNKNOWN)  # every class in use is now known by name
    return gone, [name for name in missing if name not in gone]


def classes_of(s: ClusterState, key: str) -> list[str]:
    """The classes whose VMs are in this account."""
    return sorted(name for name, keys in s.classes.items() if key in keys) or [UNKNOWN]


def owners(s: ClusterState) -> dict[str, str]:
    """Account keys, each with the account that its VMs are in, in the cloud's own words, where there are any VMs. A
    Secret that opens another account makes no VM there (activities/accounts.py)."""
    return {key: seen.owner for key, seen in sorted(s.vms.items()) if seen.owner}


def classes_only_of(s: ClusterState, key: str) -> list[str]:
    """The classes whose VMs are in this account and in no other."""
    return sorted(name for name, keys in s.classes.items() if keys == [key] and name != UNKNOWN)


def silent(s: ClusterState, keys: Iterable[str]) -> list[str]:
    """Those of these accounts that do not answer."""
    return sorted(k for k in keys if k in s.clouds and not s.clouds[k].reachable)
