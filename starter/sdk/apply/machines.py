"""The machines without an owner of one run of `apply`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from resources.machine.manifest import Machine
from resources.machine.state import ApplyIntent, ClassSnapshot, MachineState, Phase
from resources.manifests import MachineClass
from resources.words import utc
from starter.sdk.apply.classes import ClassPlan, ClassPlanner, own_annotations, same_content
from starter.sdk.apply.steps import ApplyStep, carry_out
from starter.sdk.entity import EntityKey
from starter.sdk.errors import Refused
from starter.sdk.machines.shelf import Machines
from starter.sdk.results import Applied, Life, Verb
from starter.sdk.starts import start_machine


class MachinePlanner:
    """Reads machines and judges their manifests."""

    def __init__(self, machines: Machines, classes: ClassPlanner) -> None:
        self._connection = machines.connection
        self._settings = machines.settings
        self._machines = machines
        self._classes = classes

    async def step(self, key: EntityKey, manifest: Machine) -> ApplyStep:
        """The step of a machine. Raises Refused in the machine's name."""
        cluster, name = key
        try:
            life = await self._machines.find(name, cluster=cluster)
            if life is None or not life.running:
                return self._start_step(key, manifest, life)
            state = await self._machines.state(life)
            if state.deletion is not None or state.status.phase is Phase.TERMINATING:
                raise Refused(
                    f"it is being deleted: wait until it is gone (hostler wait machine {name} --for=deleted), then "
                    "apply again"
                )
            return self._apply_step(state, manifest, self._class_of(key, manifest, state))
        except Refused as e:
            raise Refused(f"machine {name}: {e}") from None

    def _start_step(self, key: EntityKey, manifest: Machine, former: Life | None) -> ApplyStep:
        cluster, name = key
        of = self._class_of(key, manifest, None)
        note = _of_former(name, former) if former is not None and former.closed is not None else ""

        async def run() -> Applied:
            state = MachineState(
                name=name,
                cluster=cluster,
                namespace=manifest.metadata.namespace,
                labels=manifest.metadata.labels,
                annotations=own_annotations(manifest.metadata.annotations),
                spec=manifest.spec,
                machine_class=of.snapshot,
                queue_prefix=self._settings.queue_prefix,
                timings=self._settings.timings,
                life=1,
            )
            try:
                await start_machine(
                    self._connection.temporal,
                    state,
                    reason="CreatingVM",
                    created=datetime.now(UTC),
                    reuse=WorkflowIDReusePolicy.ALLOW_DUPLICATE,  # a name whose machine is gone gets a new life
                )
            except WorkflowAlreadyStartedError:
                # Somebody else applied the same name between our look and our start: tell that machine instead.
                step = await self.step(key, manifest)
                return await carry_out(step)
            return Applied("machine", name, Verb.CREATED, note)

        return ApplyStep("machine", name, Verb.CREATED, note, run, of, wanted=manifest)

    def _apply_step(self, state: MachineState, manifest: Machine, of: ClassPlan) -> ApplyStep:
        """Applies to a machine that exists. What only its class changes, the class tells it, a few machines at a time;
        all else is told here."""
        step = ApplyStep("machine", state.name, Verb.CONFIGURED, machine_class=of, former=state, wanted=manifest)
        has = state.machine_class
        if not _own_changes(state, manifest):
            if has is not None and has.name == of.name and same_content(has, of.snapshot):
                return replace(step, verb=Verb.UNCHANGED)
            if of.tells(state.name):
                told = "its class tells it" if of.new_content else ""
                return replace(step, note=told, verb=Verb.CONFIGURED if told else Verb.UNCHANGED)
        return replace(step, run=partial(self._tell, state, manifest, of))

    async def _tell(self, state: MachineState, manifest: Machine, of: ClassPlan) -> Applied:
        intent = ApplyIntent(
            **self._connection.by(),
            spec=manifest.spec,
            machine_class=of.for_user(state.machine_class),
            labels=manifest.metadata.labels,
            annotations=own_annotations(manifest.metadata.annotations),
        )
        sent = await self._machines.send(state.name, "apply", intent, cluster=state.cluster)
        # The answer may begin with the word that the line has already.
        note = sent.message.removeprefix(Verb.CONFIGURED).lstrip("; ")
        return Applied("machine", state.name, Verb.CONFIGURED, note)

    def _class_of(self, key: EntityKey, manifest: Machine, state: MachineState | None) -> ClassPlan:
        """The class of a machine. Raises Refused where nothing is known of the class, except by the machine itself."""
        name = manifest.spec.class_.name
        found = self._classes.plans.get((key[0], name))
        if found is not None:
            return found
        has = state.machine_class if state else None
        # Raises Refused for any other class than the one that the machine has.
        return ClassPlan(name, key[0], Verb.UNCHANGED, snapshot_of(None, has, name))


def _own_changes(state: MachineState, manifest: Machine) -> bool:
    """Whether the manifest differs from the machine in more than the class's own contents."""
    meta = manifest.metadata
    return (
        manifest.spec.model_dump(mode="json", by_alias=True) != state.spec.model_dump(mode="json", by_alias=True)
        or meta.labels != state.labels
        or own_annotations(meta.annotations) != state.annotations
    )


def snapshot_of(manifest: MachineClass | None, current: ClassSnapshot | None, name: str) -> ClassSnapshot:
    """The class for a machine: from its manifest, else as the machine has it. A changed one is a generation newer."""
    if manifest is None:
        if current is not None and current.name == name:
            return current
        raise Refused(
            f"class {name!r} is in none of the files and was not applied before"
            + (f"; the machine has another one ({current.name})" if current else "")
            + ": add the MachineClass (-f)"
        )
    fresh = ClassSnapshot.of(manifest, current.generation if current else 1)
    if current is None or (current.name == name and same_content(fresh, current)):
        return current or fresh
    return ClassSnapshot.of(manifest, current.generation + 1)


def _of_former(name: str, former: Life) -> str:
    """The note on a new machine of a name that was used before."""
    note = f"the earlier machine of this name has been gone since {utc(former.closed)}; this is a new one"
    if former.status not in ("COMPLETED", "FAILED"):  # a failed one was refused at its beginning, and owned nothing
        note += (
            f". Somebody ended the earlier one's workflow ({former.status}): its VM may still exist; `hostler get "
            "orphans` lists such VMs, and no second VM is created beside one"
        )
    return note
