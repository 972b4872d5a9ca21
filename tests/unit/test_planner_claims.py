"""When the cloud is believed that a VM is gone. A kubelet's Lease is what contradicts it (I5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from lifekit import examples

from planners.machine.claims import Belief, claim_of, doubtful, due, has_node, newest, weigh
from planners.machine.membership import report_of
from resources.calls.cloud import VmLook
from resources.calls.cluster import NodeLook
from resources.fleet.member import Trouble, Vm
from resources.machine.facts import NodeFacts, VmFacts
from resources.machine.state import Look, MachineState
from resources.timings import Timings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
VM = "aws:///eu-west-1/i-1"
TIMINGS = Timings()


def node(**fields: object) -> NodeFacts:
    return NodeFacts.model_validate({"epoch": 1, "seq": 1, "exists": True, "name": "n", "ready": True, **fields})


def look(seconds: float, lease: float | None = 0, vm: str = "gone", **facts: object) -> Look:
    renewed = None if lease is None else NOW + timedelta(seconds=lease)
    seen = NodeLook(node=node(**facts), ready="True", lease_renewed=renewed)
    return Look(time=NOW + timedelta(seconds=seconds), node=seen, vm=VmLook(state=vm))


@pytest.mark.parametrize(
    ("before", "now", "belief", "again"),
    [
        pytest.param(None, look(0), Belief.UNSURE, 40, id="one look says nothing of a Lease"),
        pytest.param(None, look(0, exists=False), Belief.BELIEVED, None, id="no Node: nobody speaks against it"),
        pytest.param(None, look(0, vm="running"), Belief.REFUTED, None, id="the cloud finds it by now"),
        pytest.param(look(0), look(40, lease=35), Belief.CONTRADICTED, 80, id="Ready, and the Lease has moved"),
        pytest.param(look(0), look(40, lease=35, ready=False), Belief.CONTRADICTED, 80, id="not Ready, but it lives"),
        pytest.param(look(0), look(40), Belief.BELIEVED, None, id="the Lease stands still: a spot VM that went"),
        pytest.param(look(0), look(9), Belief.UNSURE, 40, id="it may be renewed within 40 s"),
        pytest.param(look(0), look(9, lease=8), Belief.CONTRADICTED, 49, id="that it lives may be known sooner"),
        pytest.param(look(0, lease=None), look(40, lease=None), Belief.BELIEVED, None, id="no Lease at all"),
        pytest.param(look(0), look(40, lease=35, exists=False), Belief.BELIEVED, None, id="its Node is gone by then"),
        pytest.param(look(0, vm="stopped"), look(40, vm="stopped"), Belief.BELIEVED, None, id="stopped, likewise"),
        pytest.param(look(0), look(40, lease=35, vm="stopped"), Belief.CONTRADICTED, 80, id="a stopped VM renews none"),
    ],
)
def test_weigh(before: Look | None, now: Look, belief: Belief, again: float | None) -> None:
    said = weigh(before, now, 0, TIMINGS)
    assert said.belief is belief
    assert said.look_again == (None if again is None else NOW + timedelta(seconds=again))


@pytest.mark.parametrize("early", [1, 20, 39])
def test_a_look_that_comes_early_does_not_begin_the_wait_again(early: float) -> None:
    """The Node fell ill, or something else asked: the Lease has stood still since the first look."""
    first = weigh(None, look(0), 0, TIMINGS)
    soon = weigh(first.compare, look(early, ready=False), first.moved, TIMINGS)
    assert (soon.belief, soon.look_again) == (Belief.UNSURE, first.look_again)
    assert soon.compare is not None
    assert not soon.compare.node.node.ready  # that it is ill is known: it is no reason for one more look
    assert weigh(soon.compare, look(40, ready=False), soon.moved, TIMINGS).belief is Belief.BELIEVED


def test_looks_at_a_contradiction_become_rarer_within_a_bound() -> None:
    waits = []
    moved = 0
    for _ in range(6):
        said = weigh(look(0), look(40, lease=40), moved, TIMINGS)
        assert said.look_again is not None
        waits.append((said.look_again - NOW).total_seconds() - 40)
        moved = said.moved
    assert (waits, moved) == ([40, 80, 160, 300, 300, 300], 6)
    ill = weigh(look(0), look(40, lease=40, ready=False), moved, TIMINGS)
    assert (ill.look_again, ill.moved) == (NOW + timedelta(seconds=80), 1)


def state(**fields: object) -> MachineState:
    loaded = examples("m-1")
    made = MachineState(name="m-1", cluster="demo", spec=loaded.machines[0].spec, pool="p", created=NOW)
    made.status.phase_since, made.status.provider_id = NOW, VM
    return made.model_copy(update=fields)


def facts(state: str, seq: int = 1) -> VmFacts:
    return VmFacts(epoch=1, seq=seq, provider_id=VM, state=state)


@pytest.mark.parametrize(
    ("fields", "news", "doubted"),
    [
        pytest.param({}, "gone", False, id="no kubelet was ever seen: it counts at once"),
        pytest.param({"node": node()}, "gone", True, id="a Node has registered"),
        pytest.param({"joined": True}, "gone", True, id="a Node has joined"),
        pytest.param({"joined": True}, "stopped", False, id="the cloud has seen it: Unknown, and nothing more"),
        pytest.param({"joined": True}, "running", False, id="good news"),
    ],
)
def test_which_news_are_weighed_first(fields: dict[str, object], news: str, doubted: bool) -> None:
    s = state(**fields)
    assert doubtful(s, facts(news)) is doubted
    assert has_node(s) is bool(fields)


def test_a_claim_is_no_news_for_the_pool_until_it_is_believed() -> None:
    claimed = state(joined=True, was_running=True, claim=claim_of(facts("gone", 7), NOW))
    report = report_of(claimed)
    assert (report.vm, report.trouble) == (Vm.LIVES, Trouble.NONE)
    believed = report_of(claimed.model_copy(update={"vm": facts("gone", 7), "claim": None}))
    assert (believed.vm, believed.trouble) == (Vm.GONE, Trouble.GONE)
    assert newest(claimed) == facts("gone", 7)  # what the watch tells next is newer


@pytest.mark.parametrize(
    ("seen", "told", "now", "expected"),
    [
        pytest.param(None, node(), 0, True, id="the first look at once"),
        pytest.param(look(0), node(), 39, False, id="not before its time"),
        pytest.param(look(0), node(), 40, True, id="at its time"),
        pytest.param(look(0), node(ready=False), 5, True, id="or when the Node falls ill"),
        pytest.param(look(0), node(exists=False), 5, True, id="or goes"),
        pytest.param(look(0, ready=False), node(ready=False), 5, False, id="that it was ill is no news"),
    ],
)
def test_when_it_is_looked_at(seen: Look | None, told: NodeFacts, now: float, expected: bool) -> None:
    again = timedelta(seconds=40) if seen else timedelta(0)
    claimed = state(node=told, claim=claim_of(facts("gone"), NOW, seen, again))
    assert due(claimed, NOW + timedelta(seconds=now)) is expected
