"""Adoption: a machine whose workflow somebody ended from outside gets a new one, with the VM that carries its tags."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from resources.machine import Attempt, ClassSnapshot, MachineState, Status
from resources.manifests import AnyManifest, Machine, MachineClass
from resources.messages import Announcement, Happening, OwnedVm
from resources.names import machine_id
from starter import live, orphans
from starter.errors import Refused, translated
from starter.plan import snapshot_of
from starter.plan_classes import own_annotations
from starter.results import Adopted, Life
from starter.starts import start_cluster, start_machine
from starter.waiting import since

if TYPE_CHECKING:
    from starter.client import HostlerClient

GOING = "terminating"
"""The drivers' word for a VM that is on its way out."""


async def adopt(
    client: HostlerClient, name: str, manifests: Sequence[AnyManifest], uid: str | None, cluster: str
) -> Adopted:
    """`HostlerClient.adopt`. Everything is judged before anything is started."""
    life = await client.find(name, cluster=cluster)
    _refuse_what_has_an_owner(name, life)
    former = await _former(client, life)
    wanted = _wanted(client, name, cluster, manifests, former)
    assert wanted.machine_class is not None
    account = orphans.account_of(wanted.machine_class)
    report = await orphans.sweep(client, cluster, [account])
    if account.key in report.unread:
        raise Refused(
            f"account {account.key} of class {wanted.machine_class.name} cannot be listed: "
            f"{report.unread[account.key]}. Nothing is adopted: which VM is machine {name}'s is not known"
        )
    vm = choose(name, account.key, [o.vm for o in report.orphans if o.vm.machine == name], uid)
    state = _state(client, wanted, vm, former, life)
    with translated():
        # First, as the create activity does it: the watch must know whose VM it sees.
        announcement = Announcement(provider_id=vm.provider_id, machine=name, account=account)
        await start_cluster(client.temporal, client.settings, cluster, announcement)
        try:
            await start_machine(
                client.temporal,
                state,
                reason="PostStartUpdate",  # what it waits for first
                created=life.summary.created if life else datetime.now(UTC),
                # Whatever came between our look and this: never beside a workflow that runs, never after a life that
                # came to its end by itself.
                reuse=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
            )
        except WorkflowAlreadyStartedError:
            raise Refused(
                f"machine {name} has a workflow since a moment ago: hostler describe machine {name}"
            ) from None
    return Adopted(name=name, cluster=cluster, vm=vm, notes=_notes(name, manifests, former, vm))


def _refuse_what_has_an_owner(name: str, life: Life | None) -> None:
    if life is not None and life.running:
        raise Refused(
            f"machine {name} has a workflow that runs, there is nothing to adopt: hostler describe machine {name}"
        )
    if life is not None and life.status == "COMPLETED":
        raise Refused(
            f"machine {name} came to its end by itself{since(life)}, and all it had is gone: there is nothing to "
            "adopt. A VM that still carries its name was left by a life before that one: delete it at the cloud"
        )


async def _former(client: HostlerClient, life: Life | None) -> MachineState | None:
    """What is recorded of the life that was ended; None when the server keeps nothing of it any more."""
    if life is None:
        return None
    with translated():
        handle = client.temporal.get_workflow_handle(machine_id(life.summary.cluster, life.summary.name))
        return await live.recorded(client.temporal, handle, life.run_id)


def _wanted(
    client: HostlerClient, name: str, cluster: str, manifests: Sequence[AnyManifest], former: MachineState | None
) -> MachineState:
    """Spec and class: of the manifests, else as the former workflow had them."""
    machines = [m for m in manifests if isinstance(m, Machine)]
    manifest = next((m for m in machines if m.metadata.name == name), None)
    if machines and manifest is None:
        raise Refused(f"machine {name} is not in the files; in them: {', '.join(m.metadata.name for m in machines)}")
    if manifest is None and former is None:
        raise Refused(
            f"nothing is recorded of machine {name} of cluster {cluster}: give its manifests, a Machine and its "
            "MachineClass (-f FILE)"
        )
    spec = manifest.spec if manifest else former.spec if former else None
    assert spec is not None
    classes = {m.metadata.name: m for m in manifests if isinstance(m, MachineClass)}
    snapshot = snapshot_of(classes.get(spec.class_.name), former.machine_class if former else None, spec.class_.name)
    settings = client.settings
    fresh = MachineState(
        name=name,
        cluster=cluster,
        spec=spec,
        machine_class=snapshot,
        queue_prefix=settings.queue_prefix,
        timings=settings.timings,
    )
    if manifest is not None:
        meta = manifest.metadata
        given = {"namespace": meta.namespace, "labels": meta.labels, "annotations": own_annotations(meta.annotations)}
        return fresh.model_copy(update=given)
    assert former is not None
    return fresh.model_copy(update={k: getattr(former, k) for k in ("namespace", "labels", "annotations")})


def choose(name: str, account: str, found: Sequence[OwnedVm], uid: str | None) -> OwnedVm:
    """The one VM to adopt. Raises Refused, with what there is, when there is none or it is not clear which."""
    if not found:
        raise Refused(
            f"account {account} has no VM with the tag hostler.io/machine={name} that nobody owns, and an adoption "
            "needs a VM: volumes and NICs that are left carry the same tag, delete them at the cloud; a new machine "
            "is made by `hostler apply`"
        )
    lives = sorted({vm.uid for vm in found})
    if uid is None and len(lives) > 1:
        raise Refused(f"machine {name} has VMs of {len(lives)} lives: say which one (--uid UID)\n{_listed(found)}")
    chosen = [vm for vm in found if uid is None or vm.uid == uid]
    if not chosen:
        raise Refused(f"machine {name} has no VM with uid {uid}, and an adoption needs one; there is\n{_listed(found)}")
    # One that is going already counts only where there is no other.
    chosen = [vm for vm in chosen if vm.state != GOING] or chosen
    if len(chosen) > 1:
        raise Refused(
            f"machine {name} has {len(chosen)} VMs of one life, and a machine has one: delete all but one at the "
            f"cloud, then adopt\n{_listed(chosen)}"
        )
    (vm,) = chosen
    if not vm.uid:
        raise Refused(
            f"{vm.provider_id} has lost its tag hostler.io/uid, by which its disks and NICs are found too: put it back "
            "with the value that they carry, then adopt"
        )
    return vm


def _listed(vms: Sequence[OwnedVm]) -> str:
    return "\n".join(f"  {vm.provider_id} ({vm.state}), uid {vm.uid or 'unknown'}" for vm in vms)


def _state(
    client: HostlerClient, wanted: MachineState, vm: OwnedVm, former: MachineState | None, life: Life | None
) -> MachineState:
    """What the new workflow begins with."""
    now = datetime.now(UTC)
    attempt = _attempt(wanted.machine_class, vm, former, now)
    end = f"; its former workflow ended as {life.status}{since(life)}" if life else ""
    asked = Happening(time=now, reason="Adopted", message=f"asked by {client.requested_by}{end}")
    begun = {"uid": vm.uid, "attempt": attempt, "status": Status(provider_id=vm.provider_id), "journal": [asked]}
    if former is not None:
        begun |= {k: getattr(former, k) for k in ("pool", "revision", "template")}  # its pool still counts it
    if former is not None and former.uid == vm.uid:
        carried = {k: getattr(former.status, k) for k in ("last_applied_provider_spec", "applied_generation")}
        begun |= {
            "status": Status(provider_id=vm.provider_id, **carried),
            "attempted_specs": former.attempted_specs,
            "journal": [*former.journal, asked],
        }
    return wanted.model_copy(update=begun)


def _attempt(machine_class: ClassSnapshot | None, vm: OwnedVm, former: MachineState | None, now: datetime) -> Attempt:
    """The newest that is recorded: it says from which class the VM was made, and how many tokens there may be."""
    if former is not None and former.uid == vm.uid and former.attempt is not None:
        return former.attempt
    assert machine_class is not None
    return Attempt(number=1, token="", started=now, machine_class=machine_class)


def _notes(name: str, manifests: Sequence[AnyManifest], former: MachineState | None, vm: OwnedVm) -> tuple[str, ...]:
    notes = []
    if not any(isinstance(m, Machine) for m in manifests):
        notes.append("spec and class are those that its former workflow had")
    if former is not None and former.deletion is not None and former.uid == vm.uid:
        again = "hostler recreate" if former.deletion.recreate else "hostler delete"
        notes.append(f"it was being deleted, which is not taken over: ask again with `{again} machine {name}`")
    return tuple(notes)
