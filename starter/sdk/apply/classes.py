"""The classes of one run of `apply`: as they are, as they will be, and how they get there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from temporalio.exceptions import WorkflowAlreadyStartedError

from resources.machine.state import ClassSnapshot
from resources.machine_class.state import ClassChange, ClassIntent, ClassPreview, ClassState, concurrency_of
from resources.manifests import MachineClass
from resources.names import CLUSTER_ANNOTATION
from resources.owner import POOL
from starter.sdk.classes import Classes
from starter.sdk.errors import NoAnswer, Refused
from starter.sdk.machines.shelf import Machines
from starter.sdk.pools.shelf import Pools
from starter.sdk.results import Applied, Verb
from starter.sdk.spelling import counted
from starter.sdk.starts import start_class

CLASS_KIND = "machineclass"


@dataclass
class ClassPlan:
    """A class that a manifest or a machine of the run names."""

    name: str
    cluster: str
    verb: Verb
    snapshot: ClassSnapshot
    """The class as it will be; once the class has been told, as its workflow has it."""
    manifest: MachineClass | None = None
    """None: the class is in none of the files, and stays as it is."""
    state: ClassState | None = None
    """The class as it is; None: there is none yet."""
    preview: ClassPreview | None = None
    """For a changed class: what its workflow says of the change."""
    no_answer: str = ""
    """Why it could not be asked."""
    after: list[str] = field(default_factory=list)
    """Owners, as Owner.user, that this run tells of the new content and of their own changed spec in one message: the
    class waits for that, since the spec may hold it up."""

    @property
    def refused(self) -> list[str]:
        return self.preview.refused if self.preview else []

    @property
    def new_content(self) -> bool:
        """Whether machines will hear of it."""
        return self.state is not None and self.snapshot.generation != self.state.generation

    def tells(self, user: str) -> bool:
        """Whether the class itself tells this user of the change, a few at a time."""
        return self.state is not None and user in self.state.users

    def for_user(self, has: ClassSnapshot | None) -> ClassSnapshot:
        """A snapshot that a machine or pool does not take for old news: the one it `has` may be a generation of a
        former class of this name, whose workflow was ended from outside. The class raises its own generation when it
        hears of that."""
        if has is None or has.name != self.name or has.generation < self.snapshot.generation:
            return self.snapshot
        if same_content(has, self.snapshot):
            return has
        return self.snapshot.model_copy(update={"generation": has.generation + 1})


@dataclass(frozen=True)
class OwnerTouched:
    """What the edit of a class does to an owner of machines that uses it."""

    name: str
    rolls: int = 0
    """Machines that the edit replaces."""
    unknown: str = ""
    """Why nobody can tell."""
    deletes: str = ""
    """Which preserved machines it deletes all the same."""
    word: str = POOL.word
    """What people call its kind."""

    def __str__(self) -> str:
        if self.unknown:
            return f"{self.word} {self.name}: the effect on it is not known: {self.unknown}"
        if self.rolls:
            words = f"rolls {self.word} {self.name}: {counted(self.rolls)} will be replaced"
            return f"{words}; {self.deletes}" if self.deletes else words
        return f"{self.word} {self.name}: no machine is replaced"

    @property
    def grave(self) -> bool:
        """What one should know before it is done."""
        return bool(self.rolls or self.unknown)


@dataclass
class ClassPlanner:
    """Reads classes and judges their manifests."""

    classes: Classes
    machines: Machines
    pools: Pools
    plans: dict[tuple[str, str], ClassPlan] = field(default_factory=dict)
    """Plans by cluster and name."""

    async def add(self, cluster: str, name: str, manifest: MachineClass | None) -> None:
        """Adds a class. Nothing is known of one that is neither in a file nor running. Raises Refused in the class's
        name."""
        if manifest is not None:
            try:
                concurrency_of(manifest.metadata.annotations)
            except ValueError as e:
                raise Refused(f"machineclass {name}: {e}") from None
        state = await self.classes.current(name, cluster=cluster)
        if manifest is None:
            if state is not None:
                self.plans[cluster, name] = ClassPlan(name, cluster, Verb.UNCHANGED, state.machine_class, state=state)
            return
        if state is None:
            fresh = ClassSnapshot.of(manifest)
            self.plans[cluster, name] = ClassPlan(name, cluster, Verb.CREATED, fresh, manifest)
            return
        if state.deleted:
            raise Refused(f"machineclass {name}: it is being deleted; apply it again when it is gone")
        self.plans[cluster, name] = await self._changed(cluster, manifest, state)

    async def _changed(self, cluster: str, manifest: MachineClass, state: ClassState) -> ClassPlan:
        name, meta = manifest.metadata.name, manifest.metadata
        fresh = ClassSnapshot.of(manifest, state.generation)
        if same_content(fresh, state.machine_class):
            same = (state.namespace, state.labels, state.annotations) == (
                meta.namespace,
                meta.labels,
                own_annotations(meta.annotations),
            )
            verb = Verb.UNCHANGED if same else Verb.CONFIGURED
            return ClassPlan(name, cluster, verb, state.machine_class, manifest, state)
        fresh = fresh.model_copy(update={"generation": state.generation + 1})
        plan = ClassPlan(name, cluster, Verb.CONFIGURED, fresh, manifest, state)
        try:
            plan.preview = await self.classes.preview(name, fresh, cluster=cluster)
        except NoAnswer as e:
            plan.no_answer = str(e)
        return plan

    async def carry_out(self, plan: ClassPlan) -> Applied:
        """Starts or tells the class. After that the plan has the class's own snapshot, with its own generation."""
        if plan.state is None:
            try:
                return await self._start(plan)
            except WorkflowAlreadyStartedError:
                pass  # somebody else applied it between our look and our start: it is told like any other
        assert plan.manifest is not None
        meta = plan.manifest.metadata
        intent = ClassIntent(
            **self.classes.connection.by(),
            machine_class=plan.snapshot,
            namespace=meta.namespace,
            labels=meta.labels,
            annotations=own_annotations(meta.annotations),
            after=plan.after,
        )
        sent = await self.classes.send(plan.name, "apply", intent, cluster=plan.cluster)
        state = await self.classes.current(plan.name, cluster=plan.cluster)
        if state is not None:
            plan.snapshot = state.machine_class
        verb = Verb.UNCHANGED if sent.message == Verb.UNCHANGED else Verb.CONFIGURED
        return Applied(CLASS_KIND, plan.name, verb, sent.message.removeprefix(verb).lstrip("; "))

    async def _start(self, plan: ClassPlan) -> Applied:
        assert plan.manifest is not None
        here, meta, now = self.classes.connection, plan.manifest.metadata, datetime.now(UTC)
        # A user that names it already is of a former class of this name; without any, the class need not look for them.
        users = await self.machines.list(cluster=plan.cluster, machine_class=plan.name)
        users_are_pools = await self.pools.any_of_class(plan.name, cluster=plan.cluster)
        state = ClassState(
            name=plan.name,
            cluster=plan.cluster,
            namespace=meta.namespace,
            labels=meta.labels,
            annotations=own_annotations(meta.annotations),
            machine_class=plan.snapshot,
            changes=[ClassChange(generation=plan.snapshot.generation, time=now, requested_by=here.requested_by)],
            searched=not (users or users_are_pools),
            update_concurrency=concurrency_of(meta.annotations),
            queue_prefix=here.settings.queue_prefix,
            timings=here.settings.timings,
        )
        await start_class(here.temporal, state)
        return Applied(CLASS_KIND, plan.name, Verb.CREATED)


def same_content(a: ClassSnapshot, b: ClassSnapshot) -> bool:
    """Whether the contents are equal but for the generation. Compared as they travel: YAML's dates and Temporal's JSON
    must be equal."""
    return plain(a, "generation") == plain(b, "generation")


def plain(snapshot: ClassSnapshot, *without: str) -> Mapping[str, object]:
    return snapshot.model_dump(mode="json", by_alias=True, exclude=set(without))


def own_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations without the cluster's: `get -o yaml` prints that as part of the identity, so it must not count as
    a change."""
    return {k: v for k, v in annotations.items() if k != CLUSTER_ANNOTATION}
