"""Which message is newer: a number of the far future makes nobody deaf to what comes later."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from entitykit import payload
from histories.recorded import HISTORIES, Player, in_thread, load, tape
from histories.recorded import state as state_of
from lifekit import eventually
from machine.stubs import VM, Machines, phase, reason, state
from temporalio.testing import WorkflowEnvironment

from resources.base import Model
from resources.cluster.news import ClusterNews
from resources.fleet.member import Vm
from resources.fleet.membership import MemberReport, TemplateNews
from resources.machine.facts import NodeFacts, VmFacts
from resources.machine.manifest import MachineTemplate, SecretRef
from resources.machine.state import ClassSnapshot, Phase
from resources.machine_class.state import ClassNews, ClassReport, UpdateState
from resources.orders import AHEAD, in_ms, is_newer, is_older, too_far_ahead
from resources.pool.rollout import RolloutNews
from resources.pool.state import RolloutCounts
from workflows.machine import MachineWorkflow

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FAR = 2**53


# -- the rule ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "newer", "older"),
    [
        (in_ms(NOW) - 1, False, True),
        (in_ms(NOW) + 999, False, True),  # of several that were sent at once
        (in_ms(NOW) + 1001, True, False),
        (FAR, True, False),
    ],
)
def test_what_lies_ahead_holds_nothing_off(known: int, newer: bool, older: bool) -> None:
    order = in_ms(NOW) - 2
    assert (is_newer(order, known, NOW), is_older(order, known, NOW)) == (newer, older)
    assert is_newer((order, 1), (known, 0), NOW) is newer
    assert is_older((order, 1), (known, 0), NOW) is older
    assert (is_newer(known, known, NOW), is_older(known, known, NOW)) == (newer, False)


def test_times_are_orders_too() -> None:
    before, soon, far = NOW - timedelta(hours=1), NOW + timedelta(seconds=1), datetime(2199, 6, 1, tzinfo=UTC)
    assert [is_older(before, known, NOW) for known in (NOW, soon, far)] == [True, True, False]
    assert [is_newer(before, known, NOW) for known in (NOW, soon, far)] == [False, False, True]


def test_an_order_may_be_as_far_ahead_as_clocks_differ() -> None:
    most = in_ms(NOW + AHEAD)
    facts = NodeFacts(epoch=most, seq=most, exists=True)
    assert too_far_ahead([facts], NOW) == ""
    assert too_far_ahead([facts.model_copy(update={"epoch": most + 1})], NOW).startswith(
        f"0.epoch: {most + 1} is more than 5m in the future"
    )
    news = ClusterNews(time=NOW + AHEAD + timedelta(seconds=1))
    assert too_far_ahead(news, NOW).startswith("time: 2026-01-01T00:05:01+00:00 is more than 5m in the future")


# -- a number that was taken, and lies ahead --------------------------------------------------------------------------


def tell(player: Player, name: str, message: Model) -> None:
    inputs = [payload(message.model_dump_json(by_alias=True).encode())]
    player.send(signal_workflow={"signal_name": name, "input": inputs, "originating_event_id": 1})


def now(player: Player) -> datetime:
    return player.last.timestamp.ToDatetime(UTC)


def node(player: Player, n: int, order: int) -> tuple[str, Model]:
    return "observe", state_of(player).node.model_copy(update={"epoch": order, "unwritable": f"news {n}"})


def node_of(player: Player) -> str:
    return str(state_of(player).node.unwritable)


def vm(player: Player, n: int, order: int) -> tuple[str, Model]:
    provider_id = state_of(player).status.provider_id
    return "observe_vm", VmFacts(epoch=order, seq=1, provider_id=provider_id, state=f"news {n}")


def vm_of(player: Player) -> str:
    return str(state_of(player).vm.state)


def template(player: Player, n: int, order: int) -> tuple[str, Model]:
    s = state_of(player)
    spec = s.spec.model_dump(by_alias=True)
    manifest = {"metadata": {"labels": {"n": f"news {n}"}}, "spec": spec}
    return "template_changed", TemplateNews(generation=order, template=MachineTemplate.model_validate(manifest))


def template_of(player: Player) -> str:
    return str(state_of(player).labels.get("n"))


def machine_class(player: Player, n: int, order: int) -> tuple[str, Model]:
    wanted: ClassSnapshot = state_of(player).machine_class
    changed = {"generation": order, "secret_ref": SecretRef(name=f"news-{n}")}
    return "class_changed", ClassNews(machine_class=wanted.model_copy(update=changed))


def class_of(player: Player) -> str:
    return str(state_of(player).machine_class.secret_ref.name).replace("-", " ")


def member(player: Player, n: int, order: int) -> tuple[str, Model]:
    report = MemberReport(machine=min(state_of(player).members), seq=order, phase=Phase.RUNNING, since=NOW, vm=Vm.LIVES)
    return "report", report.model_copy(update={"since": NOW + timedelta(seconds=n)})


def member_of(player: Player) -> str:
    members = state_of(player).members
    return f"news {round((members[min(members)].since - NOW).total_seconds())}"


def cluster(player: Player, n: int, order: int) -> tuple[str, Model]:
    return "cluster_news", ClusterNews(time=datetime.fromtimestamp(order / 1000, UTC), message=f"news {n}")


def cluster_of(player: Player) -> str:
    return str(state_of(player).news.message)


def user(player: Player, n: int, order: int) -> tuple[str, Model]:
    time = datetime.fromtimestamp(order / 1000, UTC)
    report = ClassReport(user="m-9", generation=1, applied=1, state=UpdateState.FAILED, reason=f"news {n}", time=time)
    return "report", report


def user_of(player: Player) -> str:
    return str(state_of(player).users["m-9"].reason)


def story(player: Player, n: int, order: int) -> tuple[str, Model]:
    time = datetime.fromtimestamp(order / 1000, UTC)
    return "news", RolloutNews(time=time, counts=RolloutCounts(replicas=n))


def story_of(player: Player) -> str:
    return f"news {state_of(player).counts.replicas}"


Sending = Callable[[Player, int, int], tuple[str, Model]]
KINDS: list[tuple[str, Sending, Callable[[Player], str]]] = [
    ("machine-whole-life", node, node_of),
    ("machine-whole-life", vm, vm_of),
    ("machine-whole-life", machine_class, class_of),
    ("machine-newer-pool-life", template, template_of),
    ("pool-newer-pool-life", member, member_of),
    ("pool-newer-pool-life", machine_class, class_of),
    ("pool-newer-pool-life", cluster, cluster_of),
    ("class-hot-life", user, user_of),
    ("rollout-newer-pool-life", story, story_of),
]


IDS = [f"{life.partition('-')[0]}-{sending.__name__}" for life, sending, _ in KINDS]


@pytest.mark.parametrize(("life", "message", "heard"), KINDS, ids=IDS)
async def test_a_number_of_the_future_makes_nobody_deaf(
    life: str, message: Sending, heard: Callable[[Player], str]
) -> None:
    """One far ahead is refused with a reason; after one within the difference of clocks, later messages are heard."""

    def play(player: Player) -> None:
        player.play(0.6)
        assert not player.over
        far, soon = (in_ms(now(player)) + ms for ms in (10**10, 200_000))
        name, forged = message(player, 1, far)
        tell(player, name, forged)
        refused = [h.message for h in state_of(player).journal if h.reason == "Refused"]
        assert len(refused) == 1
        assert refused[0].startswith(f"signal '{name}': {type(forged).__name__}: ")
        assert "is more than 5m in the future" in refused[0]
        tell(player, *message(player, 2, soon))
        assert heard(player) == "news 2"
        tell(player, *message(player, 3, in_ms(now(player))))
        assert heard(player) == "news 3"
        tell(player, *message(player, 4, 1))
        assert heard(player) == "news 3"  # and older news is dropped as before

    await in_thread(await tape(life, load(next(f for f in HISTORIES if f.stem == life))), play)


async def test_a_pool_outbids_a_template_that_is_not_its_own() -> None:
    """Otherwise the machine that has it would drop the pool's next one as old news."""

    def play(player: Player) -> None:
        player.play(0.6)
        s = state_of(player)
        _, report = member(player, 1, in_ms(now(player)))
        assert s.template < 700
        tell(player, "report", report.model_copy(update={"template": 700}))
        assert state_of(player).template == 701

    await in_thread(await tape("", load(next(f for f in HISTORIES if f.stem == "pool-newer-pool-life"))), play)


# -- a look begins the order anew --------------------------------------------------------------------------------------


async def test_a_look_that_differs_begins_the_order_anew(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """A lie about the Node has a present number, and the watch began before: the machine is deaf until it looks."""
    handle = await machines.start(machines.new_state("m-1", health_timeout=timedelta(minutes=10)))
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    lie = machines.facts(epoch=in_ms(datetime.now(UTC)), ready=False, reason="a lie")
    await handle.signal(MachineWorkflow.observe, lie)
    await phase(handle, Phase.UNKNOWN)
    await handle.signal(MachineWorkflow.observe, machines.facts(addresses=["10.0.0.8"]))
    assert (await state(handle)).node.order == lie.order
    await temporal.fast_forward(handle, timedelta(minutes=10))
    await eventually(lambda: state(handle), lambda s: s.node.ready, "a look has found it Ready")
    await handle.signal(MachineWorkflow.observe, machines.facts(addresses=["10.0.0.9"]))
    await eventually(lambda: state(handle), lambda s: s.node.addresses == ["10.0.0.9"], "the watch is heard")


async def test_unknown_for_its_node_it_says_when_its_vm_is_gone(machines: Machines) -> None:
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    await handle.signal(MachineWorkflow.observe, machines.facts(ready=False, reason="KubeletStopped"))
    await reason(handle, "NodeNotReady")
    await handle.signal(MachineWorkflow.observe_vm, VmFacts(epoch=1, seq=1, provider_id=VM, state="stopped"))
    seen = await reason(handle, "VMNotRunning")
    assert [h.reason for h in seen.journal[-2:]] == ["NodeNotReady", "VMNotRunning"]
    assert VM in seen.status.last_operation.description
