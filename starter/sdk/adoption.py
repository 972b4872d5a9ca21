"""Adoption: a machine whose workflow somebody ended from outside gets a new one, with the VM that carries its tags.

A machine whose owner runs may no longer have a VM: the owner counts it until somebody has looked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from resources.cluster.accounts import AccountUse
from resources.errors import NAME_TAKEN
from resources.journal import Happening
from resources.machine.intents import AdoptIntent
from resources.machine.manifest import Machine
from resources.machine.preservation import PreservedBy
from resources.machine.state import Attempt, ClassSnapshot, MachineState, Status
from resources.manifests import AnyManifest, MachineClass
from resources.names import machine_id
from resources.orphans import OwnedVm
from resources.words import utc
from starter.sdk import ownerless, owners
from starter.sdk.apply.classes import own_annotations
from starter.sdk.apply.machines import snapshot_of
from starter.sdk.connection import Connection
from starter.sdk.errors import Refused, translated
from starter.sdk.machines.recorded import recorded
from starter.sdk.machines.shelf import Machines
from starter.sdk.results import Adopted, Life, since
from starter.sdk.starts import start_cluster, start_machine


async def adopt(
    machines: Machines, name: str, manifests: Sequence[AnyManifest], uid: str | None, cluster: str
) -> Adopted:
    """Implements `HostlerClient.adopt`. Everything is judged before anything is started."""
    connection = machines.connection
    life = await machines.find(name, cluster=cluster)
    if life is not None and life.running and life.summary.reason == NAME_TAKEN:
        return await _tell(machines, life, name, uid, cluster)
    _refuse_what_has_an_owner(name, life)
    former = await _former(connection, life)
    # Where the server keeps nothing, the owner may know enough.
    of = await owners.owner_of(connection, name, cluster) if former is None else None
    known = former or (owners.made_from(of, name) if of else None)
    wanted = _wanted(connection, name, cluster, manifests, known)
    there = await ownerless.find(connection, wanted, known)
    found: Sequence[OwnedVm] = [vm for vm in there.vms if ownerless.is_its(vm, name, former, life)]
    if not found and uid is None:
        if former is not None and former.owner is not None:
            of = await owners.owner_of(connection, name, cluster, former.owner)
        if of is not None:
            found = owners.recorded(name, there.made_in, life, former)
        if of is not None and not found:
            owners.refuse_too_early(name, life, former, datetime.now(UTC))
            return await owners.give_up(connection, of, name, wanted.spec.class_.name)
    vm = ownerless.choose(name, ", ".join(there.accounts), found, uid)
    if uid is None:
        ownerless.refuse_what_may_be_anothers(name, vm, there)
    state = _state(connection, wanted, vm, former, life)
    if former is None and of is not None:
        state = state.model_copy(update=owners.membership(of, name))
    await _start(connection, state, life, AccountUse(machine_class=wanted.spec.class_.name, account=there.of(vm)))
    notes = _notes(state, manifests, former, vm)
    return Adopted(name=name, cluster=cluster, vm=vm, owner=state.owner, notes=notes)


async def _start(connection: Connection, state: MachineState, life: Life | None, use: AccountUse) -> None:
    with translated():
        # First, like the create activity: otherwise nobody would look after the VM.
        await start_cluster(connection.temporal, connection.settings, state.cluster, use)
        try:
            await start_machine(
                connection.temporal,
                state,
                reason="PostStartUpdate",  # what it waits for first
                created=life.summary.created if life else datetime.now(UTC),
                # Whatever happened since our look: never beside a workflow that runs, never after a life that came to
                # its own end.
                reuse=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
            )
        except WorkflowAlreadyStartedError:
            raise Refused(
                f"machine {state.name} has just got a workflow: hostler describe machine {state.name}"
            ) from None


async def _tell(machines: Machines, life: Life, name: str, uid: str | None, cluster: str) -> Adopted:
    """Tells a machine that makes no VM because one of its name lives: this one is its own."""
    state = await machines.state(life)
    there = await ownerless.find(machines.connection, state, None)
    vm = ownerless.choose(name, ", ".join(there.accounts), [vm for vm in there.vms if vm.machine == name], uid)
    intent = AdoptIntent(**machines.connection.by(), uid=vm.uid)
    sent = await machines.send(name, "adopt", intent, cluster=cluster)
    return Adopted(name=name, cluster=cluster, vm=vm, owner=state.owner, notes=(sent.message,))


def _refuse_what_has_an_owner(name: str, life: Life | None) -> None:
    if life is not None and life.running:
        raise Refused(
            f"machine {name} has a running workflow, so there is nothing to adopt: hostler describe machine {name}"
        )
    if life is not None and life.status == "COMPLETED":
        raise Refused(
            f"machine {name} was deleted completely{since(life.closed)}: there is nothing to adopt. A VM that still "
            "has its name is left from an even earlier machine, or was created by a call that was answered too "
            "late: delete it in the cloud"
        )


async def _former(connection: Connection, life: Life | None) -> MachineState | None:
    """What is recorded of the life that was ended; None when the server no longer keeps anything of it."""
    if life is None:
        return None
    with translated():
        workflow_id = machine_id(life.summary.cluster, life.summary.name)
        return await recorded(connection.temporal, workflow_id, life.run_id)


def _wanted(
    connection: Connection, name: str, cluster: str, manifests: Sequence[AnyManifest], former: MachineState | None
) -> MachineState:
    """Spec and class: from the manifests, else as the former workflow had them."""
    machines = [m for m in manifests if isinstance(m, Machine)]
    manifest = next((m for m in machines if m.metadata.name == name), None)
    if machines and manifest is None:
        raise Refused(
            f"machine {name} is not in the files; they contain: {', '.join(m.metadata.name for m in machines)}"
        )
    if manifest is None and former is None:
        raise Refused(
            f"nothing is recorded about machine {name} of cluster {cluster}: give its manifests, a Machine and its "
            "MachineClass (-f FILE)"
        )
    spec = manifest.spec if manifest else former.spec if former else None
    assert spec is not None
    classes = {m.metadata.name: m for m in manifests if isinstance(m, MachineClass)}
    snapshot = snapshot_of(classes.get(spec.class_.name), former.machine_class if former else None, spec.class_.name)
    settings = connection.settings
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
        kept = {"hooks": former.hooks} if former else {}
        return fresh.model_copy(update=given | kept)
    assert former is not None
    return fresh.model_copy(update={k: getattr(former, k) for k in ("namespace", "labels", "annotations", "hooks")})


def _state(
    connection: Connection, wanted: MachineState, vm: OwnedVm, former: MachineState | None, life: Life | None
) -> MachineState:
    """What the new workflow begins with."""
    now = datetime.now(UTC)
    attempt = _attempt(wanted.machine_class, vm, former, now)
    end = f"; its earlier workflow ended as {life.status}{since(life.closed)}" if life else ""
    asked = Happening(time=now, reason="Adopted", message=f"asked by {connection.requested_by}{end}")
    begun = {"uid": vm.uid, "attempt": attempt, "status": Status(provider_id=vm.provider_id), "journal": [asked]}
    if former is not None:
        # Its owner still counts it.
        begun |= {k: getattr(former, k) for k in ("owner", "revision", "template", "placement", "domain")}
    begun["account_id"] = vm.account_id
    if former is not None and former.uid == vm.uid:
        begun["account_id"] = vm.account_id or former.account_id
        goes_on = ("last_applied_provider_spec", "applied_generation")
        carried = {k: getattr(former.status, k) for k in goes_on}
        # What its owner granted, it grants again; what its Node carries is seen.
        preserve = former.status.preserve.model_copy(update={"granted": PreservedBy.NOBODY, "protected": False})
        begun |= {
            "status": Status(provider_id=vm.provider_id, preserve=preserve, **carried),
            "attempted_specs": former.attempted_specs,
            "journal": [*former.journal, asked],
        }
    return wanted.model_copy(update=begun)


def _attempt(machine_class: ClassSnapshot | None, vm: OwnedVm, former: MachineState | None, now: datetime) -> Attempt:
    """The newest recorded attempt: it says from which class the VM was made, and how many tokens there may be."""
    if former is not None and former.uid == vm.uid and former.attempt is not None:
        return former.attempt
    assert machine_class is not None
    return Attempt(number=1, token="", started=now, machine_class=machine_class)


def _notes(
    state: MachineState, manifests: Sequence[AnyManifest], former: MachineState | None, vm: OwnedVm
) -> tuple[str, ...]:
    notes = []
    if not any(isinstance(m, Machine) for m in manifests):
        whose = "of its earlier workflow" if former else f"of {state.owner} in revision {state.revision}"
        notes.append(f"spec and class are those {whose}")
    if former is not None and former.deletion is not None and former.uid == vm.uid:
        again = "hostler recreate" if former.deletion.recreate else "hostler delete"
        notes.append(f"it was being deleted, which is not continued: repeat it with `{again} machine {state.name}`")
    if (until := state.status.preserve.expiry_time) is not None:
        notes.append(f"it is preserved, as before, until {utc(until)}")
    if vm.state == owners.UNLISTED:
        notes.append(
            f"its account lists no VM for it: it checks by id now; if the VM is gone, {state.owner} replaces it, "
            "and remaining disks and NICs are deleted"
        )
    return tuple(notes)
