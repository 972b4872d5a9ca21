"""The invariants of a machine, asked of the cloud's and the cluster's own books, and of the history."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from canaries import assert_no_canary, texts_of
from lifekit import Stack

from resources.machine import MachineState
from resources.messages import Happening
from resources.names import CORDON_ANNOTATION, INSTANCE_NOT_READY_TAINT, TAG_CLUSTER, TAG_MACHINE, TAG_OWNER, TAG_UID

LATE = timedelta(seconds=10)
"""What a deadline may be late where a worker was killed: the next one starts, and the sticky queue times out."""
FOREIGN_TAG = ("somebody", "else's")
USER_KEY = "example.com/mine"


@dataclass
class Witness:
    """What was seen of a machine while it lived."""

    states: list[MachineState] = field(default_factory=list)
    tagged: bool = False
    """FOREIGN_TAG was put on its VM."""
    touched: int | None = None
    """Number of the last call with which a user had labelled and annotated the Node with USER_KEY and cordoned it."""

    @property
    def last(self) -> MachineState:
        return self.states[-1]


def made_for(stack: Stack, uid: str) -> set[str]:
    """Instances that were ever launched with this machine's uid tag."""
    found = set()
    for call in stack.calls("RunInstances"):
        if _tags(call.request).get(TAG_UID) == uid:
            found |= set(call.result.get("instanceIds", ()))
    return found


def _tags(request: dict[str, Any]) -> dict[str, str]:
    return {t["Key"]: t["Value"] for s in request.get("TagSpecifications", ()) for t in s.get("Tags", ())}


def check_i1(stack: Stack, seen: Witness) -> None:
    """At most one VM per machine uid: none of these flows may ever launch a second one."""
    made = made_for(stack, seen.last.uid)
    assert len(made) <= 1, f"I1: {len(made)} instances were made for {seen.last.name}: {sorted(made)}"


def check_i5(stack: Stack, seen: Witness) -> None:
    """Nothing is destroyed while the truth is unknown: no terminate before a deletion was wanted."""
    ours = made_for(stack, seen.last.uid)
    deletion = next((s.deletion for s in seen.states if s.deletion), None)
    since = deletion.time.timestamp() if deletion else float("inf")
    early = [c for c in stack.calls("TerminateInstances") if ours & set(c.request["InstanceIds"]) and c.time < since]
    assert not early, f"I5: {seen.last.name} was terminated before anybody wanted it"


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
    at = next(h.time for h in journal if h.reason == reason)
    assert timedelta(0) <= at - deadline < LATE, f"I7: {reason} at {at}, its deadline was {deadline}"


def check_i8(stack: Stack, seen: Witness) -> None:
    """Must-tags never change, foreign tags never change: no call after the launch touches either."""
    ours = made_for(stack, seen.last.uid)
    must = {TAG_OWNER, TAG_CLUSTER, TAG_MACHINE, TAG_UID, "Name"}
    for call in (*stack.calls("CreateTags"), *stack.calls("DeleteTags")):
        keys = {t["Key"] for t in call.request.get("Tags", ())}
        by_us = keys != {FOREIGN_TAG[0]} or call.operation == "DeleteTags"
        wrong = keys & (must | {FOREIGN_TAG[0]}) if by_us and ours & set(call.request["Resources"]) else set()
        assert not wrong, f"I8: {call.operation} touched {sorted(wrong)}"


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


async def check_i11(stack: Stack, workflow_id: str) -> None:
    """No secret in any history."""
    assert_no_canary([stack.canary, stack.secret_key], await texts_of(stack.client, workflow_id))


def check_ready(stack: Stack, seen: Witness) -> None:
    """The right middle: a Running machine's node takes work."""
    found = json.loads(stack.kubectl("get", "node", str(seen.last.status.node_name), "-o", "json"))
    assert INSTANCE_NOT_READY_TAINT not in [t["key"] for t in found["spec"].get("taints", ())]
