"""The invariants of a machine, checked against the cloud's and the cluster's own records, and the history."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from histories.recorded import assert_no_canary, texts_of
from lifekit import Stack, asked, eventually
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause

from faults.books import FOREIGN_TAG, Entry, books_of
from resources.journal import Happening
from resources.machine.state import MachineState, Phase
from resources.names import CORDON_ANNOTATION, INSTANCE_NOT_READY_TAINT
from simulator.frame import Call

LATE = timedelta(seconds=20)
"""How late a deadline may be where a worker was killed: the next one starts, and the sticky queue times out. Long
enough for a computer that is busy with other tests, too."""
HEARD = 20.0
"""Seconds within which a machine hears of its Node: less than the pause of a failed watch."""
OWN_FAULTS = [
    value for name, value in WorkflowTaskFailedCause.items() if "RESET" not in name and "FORCE_CLOSE" not in name
]
"""Reasons for a failed workflow task, except those that people and the server cause."""
USER_KEY = "example.com/mine"


@dataclass
class Witness:
    """What was seen of a machine while it lived."""

    states: list[MachineState] = field(default_factory=list)
    resources: dict[str, list[str]] = field(default_factory=dict)
    """Ids of what carries its uid at the cloud, and FOREIGN_TAG since then, by kind."""
    touched: int | None = None
    """Number of the last call with which a user had labelled and annotated the Node with USER_KEY and cordoned it."""
    tainted: bool = False
    """Whether the user's taint USER_KEY is on the Node, too."""

    @property
    def last(self) -> MachineState:
        return self.states[-1]

    @property
    def ids(self) -> list[str]:
        return [id for ids in self.resources.values() for id in ids]


def made_for(stack: Stack, uid: str) -> dict[str, Entry]:
    """VMs that were ever made with this machine's uid."""
    return books_of(stack).vms(lambda vm: vm.uid == uid)


def check_i1(stack: Stack, seen: Witness) -> None:
    """At most one VM per machine uid: none of these flows may ever launch a second one."""
    made = made_for(stack, seen.last.uid)
    assert len(made) <= 1, f"I1: {len(made)} VMs were made for {seen.last.name}: {sorted(made)}"


def check_one_at_a_time(stack: Stack, name: str) -> None:
    """I1 over the lives of one name: the next VM is not made before the former one is gone."""
    most = books_of(stack).most[name]
    assert most == 1, f"I1: {most} VMs of {name} lived at the same time"


def check_i5(stack: Stack, seen: Witness) -> None:
    """Nothing is destroyed while the truth is unknown: no VM that ran has ended before a deletion was wanted."""
    deletion = next((s.deletion for s in seen.states if s.deletion), None)
    since = deletion.time.timestamp() if deletion else float("inf")
    early = [id for id, vm in made_for(stack, seen.last.uid).items() if vm.ended is not None and vm.ended < since]
    assert not early, f"I5: {seen.last.name} was terminated before anybody wanted it"


def check_looks(stack: Stack, seen: Witness) -> None:
    """I5 for a machine that is Failed for its health: two fresh looks at Lease and VM, `confirm` apart, came first."""
    state = seen.last
    assert state.illness is not None
    began = state.illness.began.timestamp()
    node, vm = str(state.status.node_name), str(state.status.provider_id).rsplit("/", 1)[-1]
    leases = [c for c in stack.calls("get leases", "kubernetes") if str(c.request["path"]).endswith(f"/{node}")]
    reads = [c for c in stack.calls("*", stack.cloud.service) if not c.mutating]
    vms = [c for c in reads if vm in json.dumps(c.request)]
    for what, calls in (("its Lease", leases), ("its VM", vms)):
        times = [c.time for c in calls if c.time > began]
        apart = max(times, default=0.0) - min(times, default=0.0)
        wanted = state.timings.confirm.total_seconds()
        assert apart >= wanted, f"I5: {state.name} is Failed, but {what} was looked at {len(times)} times in {apart} s"


def check_i6(stack: Stack, seen: Witness) -> None:
    """When a workflow has ended, everything it created is gone."""
    uid = seen.last.uid
    left = stack.leftovers(uid)
    assert not left, f"I6: left behind: {left}"
    secrets = stack.kubectl("get", "secrets", "-n", "kube-system", "-o", "yaml")
    assert uid not in secrets, "I6: a bootstrap token is left behind"
    if seen.last.status.node_name and seen.last.joined:
        nodes = stack.kubectl("get", "nodes", "-o", "name").split()
        assert f"node/{seen.last.status.node_name}" not in nodes, "I6: its Node is left behind"


def check_i7(journal: list[Happening], reason: str, deadline: datetime) -> None:
    """A deadline fires within seconds of its absolute time, or at once on recovery."""
    at = next((h.time for h in journal if h.reason == reason), None)
    assert at is not None, f"I7: {reason} never came: {[h.reason for h in journal]}"
    assert timedelta(0) <= at - deadline < LATE, f"I7: {reason} at {at}, its deadline was {deadline}"


async def fired(stack: Stack, name: str) -> MachineState:
    """The machine, Failed by a deadline. While one does not come that is later than I7 allows, no other check has its
    turn."""
    try:
        return await stack.phase(Phase.FAILED, name)
    except AssertionError as e:
        raise AssertionError(f"I7: the deadline of {name} has not come: {e}") from e


def check_i8(stack: Stack, seen: Witness) -> None:
    """Must-tags never change, foreign tags never change, from a resource's first moment to its last."""
    wrong = [words for uid, words in books_of(stack).retagged if uid == seen.last.uid]
    assert not wrong, f"I8: changed: {'; '.join(wrong)}"


def check_tags(stack: Stack, seen: Witness, wanted: dict[str, str]) -> None:
    """I8 and the right end: each resource carries somebody's own tag, and of its class's what it wants on all kinds;
    nothing else."""
    check_i8(stack, seen)
    assert seen.resources, "no resource was witnessed"
    key, value = FOREIGN_TAG
    for id in seen.ids:
        found = stack.tags(id)
        assert found.get(key) == value, f"I8: somebody's tag is gone from {id}"
        own = books_of(stack).own(found)
        assert own == wanted, f"{id} carries {own}, its class wants {wanted}"


def check_i9(journal: list[Happening], expiry: datetime) -> None:
    """A preserved machine is not deleted before its expiry."""
    at = next((h.time for h in journal if h.reason == "Terminating"), None)
    assert at is not None, f"I9: it was never deleted: {[h.reason for h in journal]}"
    assert at >= expiry, f"I9: deleted at {at}, though preserved until {expiry}"


def check_i10(stack: Stack, seen: Witness) -> None:
    """User cordons, annotations and labels survive: we never write them, and lift or mark no cordon of theirs."""
    if seen.touched is None:
        return
    node = str(seen.last.status.node_name)
    for call in stack.calls("patch nodes", "kubernetes"):
        if call.n <= seen.touched or not str(call.request["path"]).endswith(node):
            continue
        body = call.request.get("body") or {}
        metadata = body.get("metadata") or {}
        names = {*(metadata.get("labels") or {}), *(metadata.get("annotations") or {})}
        assert USER_KEY not in names, "I10: a user's label or annotation was written"
        assert CORDON_ANNOTATION not in names, "I10: a user's cordon was marked as ours"
        assert "unschedulable" not in (body.get("spec") or {}), "I10: a user's cordon was touched"


def check_marks(stack: Stack, seen: Witness) -> None:
    """I10, checked on the Node itself: the user's label, annotation, cordon and taint are there."""
    found = json.loads(stack.kubectl("get", "node", str(seen.last.status.node_name), "-o", "json"))
    metadata, spec = found["metadata"], found["spec"]
    assert metadata["labels"].get(USER_KEY), "I10: a user's label is gone"
    assert metadata["annotations"].get(USER_KEY), "I10: a user's annotation is gone"
    assert spec.get("unschedulable"), "I10: a user's cordon is gone"
    if seen.tainted:
        assert USER_KEY in [t["key"] for t in spec.get("taints", ())], "I10: a user's taint is gone"


def check_i12(stack: Stack, seen: Witness, pod: str, deadline: datetime) -> None:
    """No workload is killed without eviction before its deadline, neither by deleting the pod nor with its VM."""
    calls = [
        c for c in stack.calls("* pods*", "kubernetes") if f"/pods/{pod}" in str(c.request["path"]) and not c.error
    ]
    evicted = next((c for c in calls if c.operation == "create pods/eviction"), None)
    assert evicted is not None, f"I12: {pod} was never evicted"
    deadly = [(c.operation, c.time) for c in calls if c.operation == "delete pods" and not _by_cluster(c)]
    deadly += [("the end of its VM", vm.ended) for vm in made_for(stack, seen.last.uid).values() if vm.ended]
    for what, when in deadly:
        assert when > evicted.time, f"I12: {what} came before the eviction of {pod}"
        early = deadline.timestamp() - when
        assert early <= 0, f"I12: {what} killed {pod} {early} s before its deadline"


def _by_cluster(call: Call) -> bool:
    """Whether a kubelet did it, which removes a pod that has stopped, or a controller."""
    return call.caller.startswith("system:")


def check_drained_once(journal: list[Happening]) -> None:
    """A machine that was drained in Failed is not drained again when it is deleted. A last look before the VM goes is
    no drain."""
    ends = [h for h in journal if h.reason in ("Drained", "DrainFailed") and not h.message.startswith("the last look")]
    assert len(ends) == 1, f"once: it was drained {len(ends)} times"


async def check_i11(stack: Stack, workflow_id: str) -> None:
    """No secret in any history."""
    assert_no_canary([stack.canary, stack.secret_key], await texts_of(stack.client, workflow_id))


async def check_i16(stack: Stack, *workflow_ids: str) -> None:
    """No input makes a workflow fail its tasks, or its state unreadable."""
    for workflow_id in workflow_ids:
        handle = stack.client.get_workflow_handle(workflow_id)
        failed = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
        wrong = [
            e.workflow_task_failed_event_attributes.failure.message
            async for e in handle.fetch_history_events()
            if e.event_type == failed and e.workflow_task_failed_event_attributes.cause in OWN_FAULTS
        ]
        assert not wrong, f"I16: {workflow_id} fails its tasks: {wrong[-1]}"
        await asked(handle, "describe")


async def check_i17(stack: Stack, name: str, phase: Phase) -> None:
    """The trouble of one machine stays its own: its neighbour hears what becomes of its Node."""
    try:
        await eventually(lambda: stack.state(name), lambda s: s.status.phase == phase, f"phase {phase}", within=HEARD)
    except AssertionError as e:
        raise AssertionError(f"I17: {name} is not told of its Node, for the trouble of another: {e}") from e


def check_ready(stack: Stack, seen: Witness) -> None:
    """The right middle: a Running machine's node takes work."""
    found = json.loads(stack.kubectl("get", "node", str(seen.last.status.node_name), "-o", "json"))
    assert INSTANCE_NOT_READY_TAINT not in [t["key"] for t in found["spec"].get("taints", ())]
