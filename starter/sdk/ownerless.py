"""VMs without a workflow, and which of them is a machine's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from resources.clouds import provider_key
from resources.cluster.accounts import Account
from resources.machine.state import MachineState
from resources.orphans import OwnedVm
from starter.sdk import orphans
from starter.sdk.connection import Connection
from starter.sdk.errors import Refused
from starter.sdk.results import Life

GOING = "terminating"
"""The drivers' word for a VM that is on its way out."""


@dataclass(frozen=True)
class OwnerlessVms:
    """Where the machine's VM may be, and which VMs there have no owner."""

    accounts: dict[str, Account]
    """Accounts by key."""
    made_in: str
    """The key of the account that the machine's VM was made in."""
    vms: list[OwnedVm]
    doubtful: set[str]
    """providerIDs of VMs that may be another installation's."""

    def of(self, vm: OwnedVm) -> Account:
        return self.accounts[vm.account]


async def find(connection: Connection, wanted: MachineState, known: MachineState | None) -> OwnerlessVms:
    """Looks into the account of the machine's class, and into that of the class which its VM was made from: an edited
    class may be elsewhere now. Raises Refused where one cannot be listed: that no VM is there would be a guess."""
    machine_class = wanted.machine_class
    assert machine_class is not None
    first = known.attempt.machine_class if known and known.attempt else known.machine_class if known else None
    made_in = orphans.account_of(first or machine_class)
    accounts = {account.key: account for account in (orphans.account_of(machine_class), made_in)}
    report = await orphans.sweep(connection, wanted.cluster, accounts.values())
    for key, why in report.unread.items():
        raise Refused(
            f"account {key} of class {machine_class.name} cannot be listed: {why}. Nothing is adopted, because the "
            f"VM of machine {wanted.name} is not known"
        )
    return OwnerlessVms(
        accounts=accounts,
        made_in=made_in.key,
        vms=[o.vm for o in report.orphans],
        doubtful={o.vm.provider_id for o in report.orphans if o.doubtful},
    )


def is_its(vm: OwnedVm, name: str, former: MachineState | None, life: Life | None) -> bool:
    """Whether the VM is the machine's: by its name; one that has lost that tag, by what is recorded of it."""
    if vm.machine:
        return vm.machine == name
    if vm.uid and former is not None and former.uid == vm.uid:
        return True
    recorded = life.summary.provider_id if life is not None else ""
    return bool(recorded) and provider_key(recorded) == provider_key(vm.provider_id)


def choose(name: str, account: str, found: Sequence[OwnedVm], uid: str | None) -> OwnedVm:
    """The one VM to adopt. Raises Refused, with what there is, when there is none or it is not clear which."""
    if not found:
        raise Refused(
            f"account {account} has no VM with the tag hostler.io/machine={name} and without an owner, and an "
            "adoption needs a VM. Remaining volumes and NICs have the same tag: delete them in the cloud; `hostler "
            "apply` creates a new machine"
        )
    lives = sorted({vm.uid for vm in found})
    if uid is None and len(lives) > 1:
        raise Refused(
            f"machine {name} has VMs with {len(lives)} different uids: choose one (--uid UID)\n{_listed(found)}"
        )
    chosen = [vm for vm in found if uid is None or vm.uid == uid]
    if not chosen:
        raise Refused(
            f"machine {name} has no VM with uid {uid}, and an adoption needs one; the VMs are\n{_listed(found)}"
        )
    # A VM that is going already counts only where there is no other.
    chosen = [vm for vm in chosen if vm.state != GOING] or chosen
    if len(chosen) > 1:
        raise Refused(
            f"machine {name} has {len(chosen)} VMs with one uid, but a machine has only one VM: delete all but one "
            f"in the cloud, then adopt\n{_listed(chosen)}"
        )
    (vm,) = chosen
    if not vm.uid:
        raise Refused(
            f"{vm.provider_id} has lost its tag hostler.io/uid, by which its disks and NICs are found too: set it "
            "again to the value that they have, then adopt"
        )
    return vm


def _listed(vms: Sequence[OwnedVm]) -> str:
    return "\n".join(f"  {vm.provider_id} ({vm.state}), uid {vm.uid or 'unknown'}" for vm in vms)


def refuse_what_may_be_anothers(name: str, vm: OwnedVm, there: OwnerlessVms) -> None:
    if vm.provider_id in there.doubtful:
        raise Refused(
            f"{vm.provider_id} has the name {name} but no installation tag, and this server knows no workflow for "
            f"it: another Hostler may manage it. If it is yours: --uid {vm.uid}"
        )
