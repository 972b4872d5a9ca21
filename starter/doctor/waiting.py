"""What waits for a person: machines, pools with their rollouts, the control plane, config pools, and classes, each by
the reason that it gives.

The registry says of each reason whether somebody has to act (`resources.reasons`); what continues on its own is shown
once it takes long."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from temporalio.client import WorkflowExecution

from resources import attributes, names
from resources.machine.advice import has_vm, is_up_to_its_owner
from resources.machine.state import MachineState, Phase
from resources.machine_class.state import ClassState, UpdateState, users_words
from resources.owner import CONTROL_PLANE, Owner
from resources.reasons import REASONS, Situation, next_step, nothing_to_do
from starter.doctor.findings import SHOWN, Finding, Level, few, ok
from starter.output import moment
from starter.sdk import live, parallel
from starter.sdk.client import HostlerClient
from starter.sdk.errors import NoAnswer, translated
from starter.sdk.fleet.results import FleetListed, Numbers
from starter.sdk.fleet.shelf import FleetShelf
from starter.sdk.machines.records import machines_of

BUDGET = "blocked by "
"""Words of a drain that a disruption budget is in the way of: somebody may have to change it."""
BLOCKED = "DrainBlocked"
CONFIG_POOL = "mcp"
"""The word for a config pool in commands, of one and of several."""
NOT_YET = "NodeNotReady"
"""What is usual of a Node for as long as its machine comes up, and trouble of one that was Running."""
LISTED = 500
"""Machines that are looked at; of more than that, the rest are counted."""
ASKED = 50
"""Machines of which each is asked since when it waits."""
LONG = timedelta(minutes=15)
"""The time after which the registry calls most waits no longer normal."""
ELSEWHERE = {"APIRefused", "APIUnreachable", "InternalError", "Unreachable"}
"""Reasons that the doctor tells under another heading."""
OF_ROLLOUTS = {
    "Canary",
    "NewMachinesFail",
    "NewMachinesNeverJoin",
    "NewMachinesNotReady",
    "OnDelete",
    "ProgressDeadlineExceeded",
    "RolloutAborted",
    "RolloutPaused",
}
"""Reasons of a pool about which its rollout says more."""


@dataclass(frozen=True)
class Waiting:
    kind: str
    """machine, pool, controlplane, mcp or class: the word for commands."""
    name: str
    reason: str
    message: str = ""
    since: datetime | None = None
    owner: str = ""
    """A machine's, as lists show it."""
    kept: bool = False
    """Whether the machine is preserved now."""
    failed: bool = False
    """Whether the machine has Failed."""
    vm: bool = True
    """Whether the machine has a VM, as far as is known."""
    held: str = ""
    """The reason of its owner's wait for which a Failed machine is not replaced for now."""
    joining: bool = False
    """Whether the machine comes up: it is Pending."""

    def todo(self, cluster: str) -> str:
        if self.kind == "class":
            return "Do what the reason of each of these users asks for; the update is tried again on its own."
        at = Situation(Owner.words(self.owner), self.kept, self.failed, self.vm, self.held, page="doctor")
        return next_step(self.reason, cluster, self.name, self.kind, at=at)

    def by_itself(self, cluster: str) -> bool:
        if self.reason == BLOCKED:
            return False
        if self.joining and self.reason == NOT_YET:
            return True
        return nothing_to_do(self.held) if self.held else self.todo(cluster).startswith("Nothing")

    def long(self, now: datetime) -> bool:
        return self.since is not None and now - self.since > LONG

    def called(self, now: datetime) -> str:
        """Its name, and since when it waits."""
        return self.name + (f", since {moment(self.since, now)}" if self.since else "")

    def line(self, now: datetime) -> str:
        return self.called(now) + (f": {self.message}" if self.message else "")

    def more(self, cluster: str) -> str:
        """The command that shows more."""
        if self.kind == CONTROL_PLANE.word:
            return f"hostler rollout status {self.kind} --cluster {cluster}"
        if self.reason in OF_ROLLOUTS:
            return f"hostler rollout status {self.name} --cluster {cluster}"
        return f"hostler describe {self.kind} {self.name} --cluster {cluster}"


async def look(client: HostlerClient, cluster: str, served: bool) -> list[Waiting]:
    """`served`: whether a worker answers; without one, nothing is asked, and since when something waits is not
    known."""
    with translated():
        owners = await _owners(client, cluster) if served else {}
        numbers = {owner.listed: of.summary for owner, of in owners.items() if of.summary is not None}
        return [
            *await _machines(client, cluster, numbers if served else None),
            *_of_owners(owners),
            *await _config_pools(client, cluster),
            *await _classes(client, cluster, served),
        ]


def examine(waits: Sequence[Waiting], told: Collection[Waiting], cluster: str, served: bool) -> list[Finding]:
    """`told`: what stands with its cause under another heading."""
    subject, now = f"waiting in {cluster}", datetime.now(UTC)
    found = findings([w for w in waits if w not in told], cluster, subject, now)
    if any(f.level is not Level.WAITS for f in found):
        return found
    other = "else " if any(w in told for w in waits) else ""
    words = f"nothing {other}waits for a person" + ("" if served else ", as far as Temporal knows without a worker")
    return [*found, ok(subject, words)]


def findings(waits: Iterable[Waiting], cluster: str, subject: str, now: datetime) -> list[Finding]:
    """One finding for each reason of one kind of things, the gravest first; one for all that continue on their own."""
    groups: dict[tuple[str, str, bool], list[Waiting]] = {}
    patient: list[Waiting] = []
    for wait in waits:
        by_itself = wait.by_itself(cluster)
        if wait.reason in ELSEWHERE:
            continue
        if by_itself and not wait.long(now):
            patient.append(wait)
        else:
            groups.setdefault((wait.kind, wait.reason, by_itself), []).append(wait)
    made = [_finding(some, cluster, subject, now) for some in groups.values()]
    made.sort(key=lambda f: f.level is not Level.PROBLEM)
    return [*made, *([_patient(patient, subject)] if patient else [])]


def _patient(waits: Sequence[Waiting], subject: str) -> Finding:
    """One line, which the doctor's verdict repeats up to the colon."""
    things = {(w.kind, w.name) for w in waits}
    word = "waits, on its own" if len(things) == 1 else "wait, on their own"
    reasons = ", ".join(few(sorted({w.reason for w in waits})))
    return Finding(subject, Level.WAITS, f"{counted(waits)} {word}: {reasons}")


def counted(waits: Iterable[Waiting]) -> str:
    """`2 machines, 1 pool and 1 class`. At least one."""
    things = {(w.kind, w.name) for w in waits}
    *others, last = [_many(kind, n) for kind in PLURAL if (n := sum(k == kind for k, _ in things))]
    return f"{', '.join(others)} and {last}" if others else last


PLURAL = {
    "machine": "machines",
    "pool": "pools",
    CONTROL_PLANE.word: "controlplanes",
    CONFIG_POOL: "mcp",
    "class": "classes",
}


def _many(kind: str, count: int) -> str:
    return f"{count} {PLURAL[kind] if count > 1 else kind}"


def _finding(waits: Sequence[Waiting], cluster: str, subject: str, now: datetime) -> Finding:
    first = waits[0]
    known = REASONS.get(first.reason)
    by_itself = first.by_itself(cluster)
    level = Level.PROBLEM if (known is None or known.warning) and not by_itself else Level.WARNING
    many = _many(first.kind, len(waits)) if len(waits) > 1 else first.kind
    what = f"{first.reason} for more than 15 minutes" if by_itself else first.reason
    ordered = sorted(waits, key=lambda w: (w.since is None, w.since or now, w.name))
    lines = few([w.line(now) for w in ordered])
    words = [f"{many} {lines[0]}"] if len(waits) == 1 else [many, *lines]
    remedy = f"{ordered[0].todo(cluster)} More: `{ordered[0].more(cluster)}`"
    if len(waits) > 1:
        shown = live.DRAINING if first.reason == BLOCKED else first.reason  # a list does not look into the drain
        every = f"`hostler get {PLURAL[first.kind]} --cluster {cluster} -o wide`, with REASON {shown}"
        remedy = f"For {ordered[0].name}, the first; each of the others needs the same: {remedy}. All: {every}"
    return Finding(subject, level, "\n".join([f"{what}: {words[0]}", *words[1:]]), remedy)


# -- machines ---------------------------------------------------------------------------------------------------------


async def _machines(client: HostlerClient, cluster: str, owners: Mapping[str, Numbers] | None) -> list[Waiting]:
    """Machines that give a reason, first those that need a person. Some of each reason are asked for the rest, except
    where no worker answers (`owners` is None)."""
    query = f"{machines_of(cluster)} AND HostlerReason IS NOT NULL"
    listed = [_listed(e) async for e in client.temporal.list_workflows(query, limit=LISTED)]
    listed.sort(key=lambda w: (w.by_itself(cluster), w.reason, w.name))
    asked: dict[str, Waiting] = {}
    if owners is not None:
        per_reason: dict[str, int] = {}
        chosen: list[Waiting] = []
        for wait in listed:
            per_reason[wait.reason] = count = per_reason.get(wait.reason, 0) + 1
            if (wait.by_itself(cluster) or count <= SHOWN) and len(chosen) < ASKED:
                chosen.append(wait)
        told = await parallel.each([partial(_asked, client, cluster, owners, w) for w in chosen])
        asked = {w.name: w for w in told}
    return [asked.get(w.name, w) for w in listed]


def _listed(execution: WorkflowExecution) -> Waiting:
    found = execution.typed_search_attributes
    return Waiting(
        kind="machine",
        name=names.id_parts(execution.id, 2)[1],
        reason=found.get(attributes.REASON, ""),
        owner=found.get(attributes.POOL, ""),
        kept=found.get(attributes.PRESERVED_UNTIL) is not None,
        failed=found.get(attributes.PHASE, "").startswith(Phase.FAILED),
        vm=bool(found.get(attributes.PROVIDER_ID)),
        joining=found.get(attributes.PHASE) == Phase.PENDING,
    )


async def _asked(client: HostlerClient, cluster: str, owners: Mapping[str, Numbers], wait: Waiting) -> Waiting:
    """What the machine itself says. The list may be a second behind: a machine that no longer waits says so itself."""
    handle = client.temporal.get_workflow_handle(names.machine_id(cluster, wait.name))
    try:
        state = await live.query(handle, MachineState)
    except NoAnswer:
        return wait
    wait = replace(wait, held=_held(state, owners))
    if (said := state.status.waiting_for) is not None:
        wait = replace(wait, reason=said.reason, message=said.message, since=said.since)
        if said.reason == live.DRAINING and (seen := await live.seen_last(handle)):
            return replace(wait, reason=BLOCKED if BUDGET in seen else wait.reason, message=seen)
        return wait
    condition = next((c for c in state.status.conditions if c.reason == wait.reason), None)
    return replace(wait, message=condition.message, since=condition.since) if condition else wait


def _held(state: MachineState, owners: Mapping[str, Numbers]) -> str:
    owner = owners.get(state.owner.listed) if state.owner and is_up_to_its_owner(state) else None
    wait = owner.holding(state.revision, has_vm(state)) if owner is not None else None
    return wait.reason if wait is not None else ""


# -- owners of machines, and classes ----------------------------------------------------------------------------------


async def _owners(client: HostlerClient, cluster: str) -> dict[Owner, FleetListed[Any]]:
    """The pools, and the control plane."""
    shelves: tuple[FleetShelf[Any, Any, Any], ...] = (client.pools, client.control_planes)
    return {
        Owner(kind=shelf.kind.manifest, name=found.name): found
        for shelf in shelves
        for found in await shelf.list(cluster=cluster)
    }


def _of_owners(owners: Mapping[Owner, FleetListed[Any]]) -> list[Waiting]:
    """All that each of them waits for: its list shows only the first reason."""
    found = []
    for owner, of in owners.items():
        if of.summary is None:
            found += [Waiting(owner.word, owner.name, of.reason)] if of.reason else []
        else:
            found += [Waiting(owner.word, owner.name, w.reason, w.message, w.since) for w in of.summary.waits]
    return found


async def _config_pools(client: HostlerClient, cluster: str) -> list[Waiting]:
    """All that each of them waits for; what lists show of one that does not answer."""
    found = []
    for pool in await client.config_pools.states(cluster=cluster):
        if pool.state is None:
            found += [Waiting(CONFIG_POOL, pool.name, pool.reason)] if pool.reason else []
        else:
            found += [Waiting(CONFIG_POOL, pool.name, w.reason, w.message, w.since) for w in pool.state.waits]
    return found


async def _classes(client: HostlerClient, cluster: str, served: bool) -> list[Waiting]:
    """Classes whose change has failed for users."""
    query = f"{live.running('MachineClassWorkflow')} AND HostlerCluster='{cluster}' AND HostlerReason IS NOT NULL"
    listed = [e async for e in client.temporal.list_workflows(query, limit=ASKED)]

    async def one(execution: WorkflowExecution) -> Waiting:
        found = execution.typed_search_attributes
        wait = Waiting("class", names.id_parts(execution.id, 2)[1], found.get(attributes.REASON, ""))
        if not served:
            return wait
        try:
            return _failed(wait, await live.query(client.temporal.get_workflow_handle(execution.id), ClassState))
        except NoAnswer:
            return wait

    return await parallel.each([partial(one, e) for e in listed])


def _failed(wait: Waiting, state: ClassState) -> Waiting:
    """Which users of a class its change has failed for, and since when."""
    failed = {name: user for name, user in state.not_done.items() if user.state is UpdateState.FAILED}
    since = min((user.time for user in failed.values() if user.time), default=None)
    words = f"its change has failed for {users_words(sorted(failed), SHOWN)}" if failed else ""
    return replace(wait, message=words, since=since)
