"""The control planes of one run of `apply`: as they are, as they will be."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from temporalio.exceptions import WorkflowAlreadyStartedError

from resources.control_plane.expansion import CLASS_NAME, MADE_FROM, Expanded
from resources.control_plane.intents import ApplyControlPlane
from resources.control_plane.manifest import KIND, ControlPlaneMachineSet
from resources.control_plane.spec import ControlPlaneSpec, State, refusals
from resources.control_plane.state import ControlPlaneState
from resources.control_plane.summary import ControlPlaneQuestion
from resources.owner import CONTROL_PLANE, Owner
from resources.words import utc
from starter.sdk.apply import owners
from starter.sdk.apply.classes import ClassPlan, OwnerTouched
from starter.sdk.control_plane.results import ControlPlaneDescription
from starter.sdk.control_plane.shelf import ControlPlanes
from starter.sdk.entity import EntityKey
from starter.sdk.errors import HostlerError, NotFound, Refused
from starter.sdk.results import Applied, Verb
from starter.sdk.starts import start_control_plane

CONTROL_PLANE_KIND = KIND.lower()


@dataclass(frozen=True)
class ControlPlanePlan:
    """A control plane that a manifest of the run describes."""

    name: str
    cluster: str
    verb: Verb
    manifest: ControlPlaneMachineSet
    """The manifest as it was given."""
    given: ControlPlaneSpec
    """What it comes to."""
    of: ClassPlan
    """The class that the control plane will have."""
    state: ControlPlaneState | None = None
    """The control plane as it is; None: there is none yet."""
    note: str = ""
    told: bool = True
    """Whether it hears of its change from here; otherwise from its class, or nothing changes."""

    @property
    def spec(self) -> ControlPlaneSpec:
        """The spec as it will be: a manifest that does not say whether the set acts leaves that."""
        if self.state is None or "state" in self.manifest.spec.model_fields_set:
            return self.given
        return self.given.model_copy(update={"state": self.state.spec.state})

    @property
    def question(self) -> ControlPlaneQuestion:
        """Asks what the control plane would do with this."""
        return ControlPlaneQuestion(spec=self.spec, machine_class=owners.class_for(self))


@dataclass
class ControlPlanePlanner:
    """Reads control planes and judges their manifests."""

    shelf: ControlPlanes

    async def plan(
        self, key: EntityKey, manifest: ControlPlaneMachineSet, expanded: Expanded, of: ClassPlan | None
    ) -> ControlPlanePlan:
        """Plans one. `of` is what is known of its class. Raises Refused."""
        cluster, name = key
        found = await self.shelf.find(name, cluster=cluster)
        state = await self.shelf.current(name, cluster=cluster) if found and found.running else None
        of = of or owners.own_class(cluster, expanded.spec.template.spec.class_.name, state, "the control plane")
        _of_this_cloud(manifest, of)
        if expanded.machine_class is not None and of.state is not None and MADE_FROM not in of.state.annotations:
            raise Refused(
                f"its template becomes the MachineClass {CLASS_NAME}, but there is one that somebody else has applied: "
                "give that another name, or name it in the template (spec.template.spec.class)"
            )
        if state is None:
            note = _of_former(found) if found is not None else ""
            return ControlPlanePlan(name, cluster, Verb.CREATED, manifest, expanded.spec, of, note=note)
        if state.deleted:
            raise Refused(
                "it is being deleted: wait until it is gone (hostler wait controlplane --for=deleted), then apply again"
            )
        plan = ControlPlanePlan(name, cluster, Verb.CONFIGURED, manifest, expanded.spec, of, state)
        if wrong := refusals(state.spec, plan.spec):
            raise Refused("; ".join(wrong))
        owner = Owner(kind=CONTROL_PLANE.manifest, name=name)
        plan = owners.changed(plan, state, owner)
        owners.after(plan, owner)
        return plan

    async def touched(self, of: ClassPlan, manifests: Collection[EntityKey]) -> list[OwnerTouched]:
        """What the edit of a class does to the control plane that uses it. One of `manifests` has a line of its own."""
        user = Owner(kind=CONTROL_PLANE.manifest, name=CONTROL_PLANE.only)
        key = (of.cluster, user.name)
        if not of.new_content or not of.tells(user.user) or key in manifests:
            return []
        question = ControlPlaneQuestion(machine_class=of.snapshot)
        try:
            found = await self.shelf.rehearse(user.name, question, cluster=of.cluster)
        except NotFound:
            return []  # it has gone since; its class has not heard of that yet
        except HostlerError as e:
            return [OwnerTouched(user.name, unknown=str(e), word=user.word)]
        return [OwnerTouched(user.name, found.rolls, found.refused, word=user.word)]

    async def carry_out(self, plan: ControlPlanePlan) -> Applied:
        if plan.state is None:
            try:
                return await self._start(plan)
            except WorkflowAlreadyStartedError:
                pass  # somebody else applied it between our look and our start: it is told like any other
        now = await self.shelf.current(plan.name, cluster=plan.cluster)
        plan = replace(plan, state=now or plan.state)
        intent = ApplyControlPlane(
            **self.shelf.connection.by(),
            spec=plan.spec,
            machine_class=owners.class_for(plan),
            **owners.metadata_of(plan.manifest.metadata),
        )
        sent = await self.shelf.send(plan.name, "apply", intent, cluster=plan.cluster)
        verb, words = owners.verdict(sent.message)
        return Applied(CONTROL_PLANE_KIND, plan.name, verb, words)

    async def _start(self, plan: ControlPlanePlan) -> Applied:
        here = self.shelf.connection
        state = ControlPlaneState(name=plan.name, cluster=plan.cluster, **owners.first_state(plan, here))
        await start_control_plane(here.temporal, state, created=datetime.now(UTC))
        words = "it looks on: `state: Active` makes it act" if plan.spec.state is State.INACTIVE else ""
        return Applied(CONTROL_PLANE_KIND, plan.name, Verb.CREATED, "; ".join(filter(None, [words, plan.note])))


def _of_this_cloud(manifest: ControlPlaneMachineSet, of: ClassPlan) -> None:
    """Raises Refused for failure domains of another cloud than the class's."""
    platform = manifest.spec.template.platform
    if platform not in ("", of.snapshot.provider):
        path = f"spec.{manifest.spec.template.path}.failureDomains.platform"
        raise Refused(f"{path}: they are of {platform}, and the class {of.name} is of {of.snapshot.provider}")


def _of_former(found: ControlPlaneDescription) -> str:
    """The note on a new set where the cluster had one before."""
    return f"the earlier one has been gone since {utc(found.ended)}; this one takes over the machines that are there"
