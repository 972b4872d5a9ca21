"""What the SDK answers with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from resources.names import API_VERSION, CLUSTER_ANNOTATION
from resources.owner import Owner
from resources.words import utc, utc_clock

if TYPE_CHECKING:
    from resources.cluster.state import ClusterState
    from resources.fleet.state import FleetWait
    from resources.machine.state import ClassSnapshot, MachineResult, MachineState
    from resources.machine_class.state import ClassState
    from resources.orphans import OwnedVm

Json = dict[str, Any]
TOLD_ASIDE = "tell_node"
"""The activity that writes an Event on a Node; nothing waits for it, and its failure has no effect."""


def since(moment: datetime | None) -> str:
    """` since 2026-03-01 14:05:00 UTC`, for the end of what is said; nothing where it is not known."""
    return f" since {utc(moment)}" if moment else ""


def timestamp(moment: datetime | None) -> str | None:
    """The time as Kubernetes' API writes it (metav1.Time): RFC 3339, whole seconds, UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if moment else None


class Verb(StrEnum):
    """kubectl's words."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"
    DELETED = "deleted"


@dataclass(frozen=True)
class Applied:
    """What became of one manifest."""

    kind: str
    """Lower case, as kubectl writes it: machine, machinedeployment, machineclass, secret, cluster."""
    name: str
    verb: Verb
    note: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name} {self.verb}" + (f": {self.note}" if self.note else "")


@dataclass(frozen=True)
class Sent:
    """What will come of an intent."""

    message: str
    recorded: bool = False
    """No worker answered: Temporal keeps the intent until one comes."""
    gone: bool = False
    """Nothing is left that could be told."""
    uid: str = ""
    """`recreate`: of the machine as it was; `wait(…, unlike=uid)` waits for the new one."""


@dataclass(frozen=True)
class Adopted:
    """A machine that has a workflow again; or an owner's machine of which nothing is left."""

    name: str
    cluster: str
    vm: OwnedVm | None
    """None: it has neither VM nor workflow; its owner was told so."""
    owner: Owner | None = None
    """The pool, for example, that it belongs to."""
    notes: tuple[str, ...] = ()
    """What was taken over and what was not, in words."""


@dataclass(frozen=True)
class MachineSummary:
    """A machine as its search attributes show it; no worker is needed to read it."""

    name: str
    cluster: str
    created: datetime
    phase: str = ""
    reason: str = ""
    node: str = ""
    machine_class: str = ""
    pool: str = ""
    provider_id: str = ""
    deadline: datetime | None = None
    preserved_until: datetime | None = None
    message: str = ""
    """The words of its reason, where it was asked for them."""


@dataclass(frozen=True)
class Selected:
    """A machine that a label selector chose, with its own answer."""

    summary: MachineSummary
    state: MachineState


@dataclass(frozen=True)
class PendingActivity:
    """An activity that the machine waits for: it is running or will be tried again."""

    type: str
    attempt: int
    running: bool
    last_failure: str = ""
    """What the attempt before said; for one that went silent, what its last heartbeat said."""
    next_try: datetime | None = None
    waits: bool = False
    """Whether the last failure is no failure: a poller says "not yet"."""

    @property
    def aside(self) -> bool:
        """Nobody waits for it: a story told on the Node."""
        return self.type == TOLD_ASIDE


@dataclass(frozen=True)
class Life:
    """A machine's workflow in the server's own records, strongly consistent; no worker is needed to read it."""

    summary: MachineSummary
    status: str
    """RUNNING, COMPLETED, TERMINATED, …"""
    run_id: str
    first_run_id: str
    """The same for one life, however often it continued as new; another id is another machine of the same name."""
    task_queue: str
    closed: datetime | None = None
    task_attempt: int = 1
    """Over 1: the workflow's own code fails, and is tried again."""
    pending: tuple[PendingActivity, ...] = ()

    @property
    def running(self) -> bool:
        return self.status == "RUNNING"


@dataclass(frozen=True)
class Description:
    """Everything that is known of one machine."""

    life: Life
    state: MachineState | None = None
    """The state from its workflow, even one that was ended from outside; for one that runs without a worker, from its
    history: what was asked for, not what became of it."""
    no_answer: str = ""
    """Why the workflow could not be asked: nobody polls its task queue, or its code fails."""
    result: MachineResult | None = None
    """What is left of a machine that is gone."""
    failure: str = ""
    """How it ended, when not on its own."""
    web: str | None = None
    """Its page in Temporal's web UI."""
    held: FleetWait | None = None
    """What its pool waits for, and so does not replace it though it has Failed."""


@dataclass(frozen=True)
class ClusterSummary:
    """A cluster as search attributes and settings show it; no worker is needed to read it."""

    name: str
    phase: str
    """Watching, Paused, APIUnreachable, APIRefused, Parked; NotWatched where the settings have it and nobody watches
    it."""
    machines: int
    configured: bool
    """Whether these settings say how to reach it."""
    pools: int = 0


@dataclass(frozen=True)
class ClusterDescription:
    """Everything that is known of one cluster."""

    summary: ClusterSummary
    state: ClusterState | None = None
    """The state from its workflow; None when nobody watches it or no worker answers."""
    no_answer: str = ""
    """Why its workflow could not be asked."""
    ended: datetime | None = None
    """When the watch was ended, where there was one."""
    lost: str = ""
    """How its workflow was ended, where it did not come to its own end: somebody has terminated it."""
    task_attempt: int = 1
    """Over 1: the workflow's own code fails, and is tried again."""
    pending: tuple[PendingActivity, ...] = ()
    web: str | None = None
    """Its page in Temporal's web UI."""


@dataclass(frozen=True)
class ClassSummary:
    """A class as search attributes show it, and its own answer where a worker gave one."""

    name: str
    cluster: str
    created: datetime
    phase: str
    """Updated, Updating, Parked."""
    reason: str = ""
    """Why users failed, the most frequent reason; InternalError for a class that is stuck."""
    state: ClassState | None = None


@dataclass(frozen=True)
class ClassDescription:
    """Everything that is known of one class."""

    summary: ClassSummary
    no_answer: str = ""
    """Why its workflow could not be asked."""
    ended: datetime | None = None
    """When it was deleted."""
    task_attempt: int = 1
    """Over 1: the workflow's own code fails, and is tried again."""
    pending: tuple[PendingActivity, ...] = ()
    web: str | None = None
    """Its page in Temporal's web UI."""

    @property
    def state(self) -> ClassState | None:
        return self.summary.state


@dataclass(frozen=True)
class Event:
    time: datetime
    reason: str
    message: str
    source: str = field(default="", compare=False)
    """journal or history."""
    times: int = field(default=1, compare=False)
    """How often it happened in a row."""
    until: datetime | None = field(default=None, compare=False)
    """The last of these times."""

    def __str__(self) -> str:
        """The message, and how often."""
        if self.until is None:
            return self.message
        same_day = self.until.date() == self.time.date()
        until = utc_clock(self.until) if same_day else utc(self.until)
        return f"{self.message} ({self.times} times until {until})"


@dataclass(frozen=True)
class ClusterStory:
    """The events of a cluster and all that is in it."""

    events: list[tuple[str, str, Event]]
    """Kind, name and event, oldest first."""
    left_out: int = 0
    """Machines whose histories were not read."""


def machine_manifest(state: MachineState) -> Json:
    """The machine as a manifest with its status: what `hostler get -o yaml` prints and `hostler apply` takes back."""
    metadata: Json = {
        "name": state.name,
        "namespace": state.namespace,
        "labels": state.labels,
        "annotations": {**state.annotations, CLUSTER_ANNOTATION: state.cluster},
        "uid": state.uid or None,
        "creationTimestamp": timestamp(state.created),
    }
    status = state.status.model_dump(mode="json", by_alias=True, exclude_none=True)
    status |= {"phase": state.status.shown_phase, "preserve": _preserve(state)}
    status = {k: v for k, v in status.items() if v}
    if state.machine_class is not None:
        of = state.machine_class
        status["class"] = {"name": of.name, "generation": of.generation} | ({"base": of.base} if of.base else {})
    if state.deletion is not None:
        status["deletion"] = state.deletion.model_dump(mode="json", by_alias=True)
    return {
        "apiVersion": API_VERSION,
        "kind": "Machine",
        "metadata": {k: v for k, v in metadata.items() if v},
        "spec": state.spec.model_dump(mode="json", by_alias=True, exclude_none=True),
        "status": status,
    }


def _preserve(state: MachineState) -> Json:
    """The preservation, without what is the same for every machine; the source as a word."""
    from resources.machine.preservation import PreservedBy

    found = state.status.preserve.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    words = {PreservedBy.AUTO: "slot", PreservedBy.ASKED: "asked"}
    return {k: words.get(v, v) if k in ("source", "granted") else v for k, v in found.items()}


def class_manifest(state: ClassState) -> Json:
    """The class as a manifest with its status: what `hostler get -o yaml` prints and `hostler apply` takes back."""
    metadata: Json = {
        "name": state.name,
        "namespace": state.namespace,
        "labels": state.labels,
        "annotations": {**state.annotations, CLUSTER_ANNOTATION: state.cluster},
        "generation": state.generation,
        "creationTimestamp": timestamp(state.created),
    }
    states: Counter[str] = Counter()
    for how, _, users in state.states:
        states[str(how)] += users
    return {
        "apiVersion": API_VERSION,
        "kind": "MachineClass",
        "metadata": {k: v for k, v in metadata.items() if v},
        **snapshot_fields(state.machine_class),
        "status": {
            "lastUpdatedGeneration": state.last_updated_generation,
            "users": len(state.users),
            "states": dict(sorted(states.items())),
        },
    }


def snapshot_fields(snapshot: ClassSnapshot) -> Json:
    """What a MachineClass's manifest has beside its metadata."""
    return snapshot.model_dump(mode="json", by_alias=True, exclude={"name", "generation", "base"}, exclude_none=True)
