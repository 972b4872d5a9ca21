"""The invariants of a machine, checked against the cloud's and the cluster's own records, and the history."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from canaries import assert_no_canary, texts_of
from lifekit import Stack, asked, eventually
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause

from resources.journal import Happening
from resources.machine.state import MachineState, Phase
from resources.names import (
    CORDON_ANNOTATION,
    INSTANCE_NOT_READY_TAINT,
    MUST_PREFIXES,
    TAG_CLUSTER,
    TAG_INSTALLATION,
    TAG_MACHINE,
    TAG_OWNER,
    TAG_UID,
)
from simulator.clouds.ec2 import Ec2Vm
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
FOREIGN_TAG = ("somebody", "else's")
USER_KEY = "example.com/mine"


@dataclass
class Witness:
    """What was seen of a machine while it lived."""

    states: list[MachineState] = field(default_factory=list)
    resources: dict[str, list[str]] = field(default_factory=dict)
    """By kind, ids of what carries its uid at the cloud, and FOREIGN_TAG since then."""
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


class Population:
    """The VMs that carry a machine's name, counted by the cloud at each change of a state: those that are going count
    until they are gone."""

    def __init__(self, stack: Stack, name: str) -> None:
        self.name = name
        self.most = 0
        self._living: set[str] = set()
        stack.simulator.call(lambda: stack.cloud.subscribe(self._see))

    def _see(self, vm: Ec2Vm) -> None:
        if vm.name != self.name:
            return
        if vm.state == "terminated":
            self._living.discard(vm.instance_id)
        else:
            self._living.add(vm.instance_id)
        self.most = max(self.most, len(self._living))


def made_for(stack: Stack, uid: str) -> set[str]:
    """Instances that were ever launched with this machine's uid tag."""
    found = set()
    for call in stack.calls("RunInstances"):
        if launch_tags(call.request).get(TAG_UID) == uid:
            found |= set(call.result.get("instanceIds", ()))
    return found


def launch_tags(request: dict[str, Any]) -> dict[str, str]:
    """What a RunInstances wants of everything that it makes."""
    return {t["Key"]: t["Value"] for s in request.get("TagSpecifications", ()) for t in s.get("Tags", ())}


def check_i1(stack: Stack, seen: Witness) -> None:
    """At most one VM per machine uid: none of these flows may ever launch a second one."""
    made = made_for(stack, seen.last.uid)
    assert len(made) <= 1, f"I1: {len(made)} instances were made for {seen.last.name}: {sorted(made)}"


def check_one_at_a_time(population: Population) -> None:
    """I1 over the lives of one name: the next VM is not made before the former one is gone."""
    assert population.most == 1, f"I1: {population.most} VMs of {population.name} lived at the same time"


def check_i5(stack: Stack, seen: Witness) -> None:
    """Nothing is destroyed while the truth is unknown: no terminate before a deletion was wanted."""
    ours = made_for(stack, seen.last.uid)
    deletion = next((s.deletion for s in seen.states if s.deletion), None)
    since = deletion.time.timestamp() if deletion else float("inf")
    early = [c for c in stack.calls("TerminateInstances") if ours & set(c.request["InstanceIds"]) and c.time < since]
    assert not early, f"I5: {seen.last.name} was terminated before anybody wanted it"


def check_looks(stack: Stack, seen: Witness) -> None:
    """I5 for a machine that is Failed for its health: two fresh looks at Lease and VM, `confirm` apart, came first."""
    state = seen.last
    assert state.illness is not None
    began = state.illness.began.timestamp()
    node, vm = str(state.status.node_name), str(state.status.provider_id).rsplit("/", 1)[-1]
    leases = [c for c in stack.calls("get leases", "kubernetes") if str(c.request["path"]).endswith(f"/{node}")]
    vms = [c for c in stack.calls("DescribeInstances") if vm in c.request.get("InstanceIds", ())]
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


def check_i8(stack: Stack, seen: Witness) -> None:
    """Must-tags never change, foreign tags never change: no call after the launch touches either."""
    ours = made_for(stack, seen.last.uid) | set(seen.ids)
    for call in (*stack.calls("CreateTags"), *stack.calls("DeleteTags")):
        keys = {t["Key"] for t in call.request.get("Tags", ())}
        by_us = keys != {FOREIGN_TAG[0]} or call.operation == "DeleteTags"
        wrong = {k for k in keys if _is_must(k) or k == FOREIGN_TAG[0]}
        touched = by_us and wrong and ours & set(call.request["Resources"])
        assert not touched, f"I8: {call.operation} touched {sorted(wrong)}"


def _is_must(key: str) -> bool:
    """Whether it is a must-tag: by seed 002, or one of our own five."""
    ours = (TAG_OWNER, TAG_INSTALLATION, TAG_CLUSTER, TAG_MACHINE, TAG_UID, "Name")
    return key in ours or key.startswith(MUST_PREFIXES)


def check_tags(stack: Stack, seen: Witness, wanted: dict[str, str]) -> None:
    """I8 and the right end, checked at the cloud itself: each resource carries the must-tags that it was launched with,
    somebody's own, and what the class wants on all kinds; nothing else."""
    (launch,) = [c for c in stack.calls("RunInstances") if launch_tags(c.request).get(TAG_UID) == seen.last.uid][:1]
    must = {k: v for k, v in launch_tags(launch.request).items() if _is_must(k)}
    assert seen.resources, "no resource was witnessed"
    key, value = FOREIGN_TAG
    for id in seen.ids:
        found = stack.tags(id)
        assert found.get(key) == value, f"I8: somebody's tag is gone from {id}"
        changed = sorted(k for k in {*must, *found} if _is_must(k) and must.get(k) != found.get(k))
        assert not changed, f"I8: must-tags of {id} have changed: {changed}"
        own = {k: v for k, v in found.items() if not _is_must(k) and k != key}
        assert own == wanted, f"{id} carries {own}, its class wants {wanted}"


def check_options(stack: Stack, seen: Witness, **wanted: object) -> None:
    """The right end: metadata options as the class has them."""
    vm = str(seen.last.status.provider_id).rsplit("/", 1)[-1]
    (reservation,) = stack.ec2().describe_instances(InstanceIds=[vm])["Reservations"]
    found = reservation["Instances"][0]["MetadataOptions"]
    assert {k: found.get(k) for k in wanted} == wanted


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
    ours = made_for(stack, seen.last.uid)
    deadly = [c for c in calls if c.operation == "delete pods" and not _by_cluster(c)]
    deadly += [c for c in stack.calls("TerminateInstances") if ours & set(c.request["InstanceIds"])]
    for call in deadly:
        assert call.n > evicted.n, f"I12: {call.operation} came before the eviction of {pod}"
        early = deadline.timestamp() - call.time
        assert early <= 0, f"I12: {call.operation} killed {pod} {early} s before its deadline"


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
