"""`hostler tree`, from given data."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from resources.cluster.news import Reachability
from resources.cluster.state import ClusterState, Pause
from resources.fleet.member import Member
from resources.fleet.state import FleetWait
from resources.machine.state import Condition, MachineState, Phase, Status, WaitingFor
from resources.pool.intents import PoolSummary
from starter.commands import tree as command
from starter.commands.tree_view import ILL, Ailment, PoolFacts, TreeFacts, ailment_of, lines, tree
from starter.sdk.pools.results import PoolListed
from starter.sdk.results import ClusterDescription, ClusterSummary, MachineSummary

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def ago(seconds: int) -> datetime:
    return NOW - timedelta(seconds=seconds)


def cluster(**of: Any) -> ClusterDescription:
    state = of.pop("state", ClusterState(name="demo"))
    return ClusterDescription(ClusterSummary("demo", of.pop("phase", "Watching"), 0, True), state, **of)


def machine(name: str, phase: str = "Running", reason: str = "", pool: str = "web") -> MachineSummary:
    return MachineSummary(name, "demo", ago(999), phase, reason, pool=pool)


def pool(name: str = "web", revisions: dict[str, int] | None = None, **of: Any) -> PoolFacts:
    members = {m: Member(revision=r, created=ago(999), since=ago(65)) for m, r in (revisions or {}).items()}
    numbers = {"replicas": 3, "available": 2, "revision": max((revisions or {"": 0}).values()), **of}
    summary = PoolSummary(name=name, cluster="demo", machine_class="c1", **numbers)
    return PoolFacts(PoolListed(name, "demo", ago(999), "Rolling", summary=summary), members)


def shown(seen: TreeFacts, everything: bool = False, width: int | None = None) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines(tree(seen, everything), NOW, width)]


ROLLING = TreeFacts(
    cluster(),
    [
        pool(
            revisions={"web-a": 1, "web-b": 1, "web-c": 2},
            waits=[FleetWait(reason="NewMachinesNotReady", message="1 of 3 is new", since=ago(150))],
        )
    ],
    [
        machine("web-a"),
        machine("web-b"),
        machine("web-c", "Pending", "InsufficientCapacity"),
        machine("db-0", pool=""),
    ],
    {"web-c": Ailment("InsufficientCapacity", "eu-west-1a has none left", ago(40))},
)


def test_a_rollout() -> None:
    assert shown(ROLLING) == [
        "NAME                      PHASE      READY   SINCE   REASON                 MESSAGE",
        "cluster/demo              Watching   3/4",
        "├─pool/web                Rolling    2/3     2m30s   NewMachinesNotReady    1 of 3 is new",
        "│ ├─revision 2 (newest)              0/1",
        "│ │ └─machine/web-c       Pending            40s     InsufficientCapacity   eu-west-1a has none left",
        "│ └─revision 1                       2/2",
        "│   └─2 machines          Running",
        "└─1 machine               Running",
    ]


def test_all_machines_have_a_line_when_asked_for() -> None:
    found = shown(ROLLING, everything=True)
    assert [line.replace("│", "").split() for line in found if "/web-a" in line or "/db-0" in line] == [
        ["├─machine/web-a", "Running", "65s"],
        ["└─machine/db-0", "Running"],
    ]
    assert sum("machine/" in line for line in found) == 4


def test_a_pool_alone() -> None:
    alone = TreeFacts(ROLLING.cluster, ROLLING.pools, ROLLING.machines[:3], ROLLING.ailments, only="web")
    assert [line.split()[0] for line in shown(alone)][:2] == ["NAME", "pool/web"]


def test_a_large_pool_stays_readable() -> None:
    machines = [machine(f"web-{i:03}") for i in range(400)]
    machines += [machine(f"web-{i:03}", "Failed", "CreationTimeout") for i in range(400, 500)]
    seen = TreeFacts(cluster(), [pool(revisions={m.name: 1 for m in machines})], machines)
    found = shown(seen)
    assert len(found) == 4 + ILL + 2
    assert "web-400" in found[4]
    assert found[-2].split() == ["├─90", "machines", "Failed", "CreationTimeout"]
    assert found[-1].split() == ["└─400", "machines", "Running"]
    assert sum("machine/" in line for line in shown(seen, everything=True)) == 500


def test_without_a_worker_it_shows_what_visibility_knows() -> None:
    silent = PoolFacts(PoolListed("web", "demo", ago(999), "Rolling", "NewMachinesNotReady"))
    machines = [machine("web-a"), machine("web-b", "Failed", "CreationTimeout")]
    found = shown(TreeFacts(cluster(state=None, no_answer="nobody polls hostler"), [silent], machines))
    assert [line.split() for line in found[1:]] == [
        ["cluster/demo", "Watching", "1/2", "NoAnswer", "nobody", "polls", "hostler"],
        ["└─pool/web", "Rolling", "NewMachinesNotReady"],
        ["├─machine/web-b", "Failed", "CreationTimeout"],
        ["└─1", "machine", "Running"],
    ]


def test_a_machine_that_no_list_shows_yet_is_there_all_the_same() -> None:
    """A list is about a second behind."""
    found = shown(TreeFacts(cluster(), [pool(revisions={"web-a": 1})], []))
    assert found[-1].split() == ["└─machine/web-a", "Pending", "65s"]


def test_a_pool_that_does_not_answer_says_so() -> None:
    silent = PoolFacts(PoolListed("web", "demo", ago(999), "Rolling"), no_answer="nobody polls hostler")
    found = shown(TreeFacts(cluster(), [silent], [], only="web"))
    assert found[1].split() == ["pool/web", "Rolling", "NoAnswer", "nobody", "polls", "hostler"]


def test_one_that_alone_does_not_answer_says_so() -> None:
    """A worker that has too much to do answers for some in time and not for others."""
    silent = PoolFacts(PoolListed("web", "demo", ago(999), "Rolling", "NewMachinesNotReady"))
    found = shown(TreeFacts(cluster(), [silent], []))
    assert found[2].split()[:7] == ["└─pool/web", "Rolling", "NoAnswer", "it", "did", "not", "answer"]


def test_machines_whose_pool_is_gone_are_not_lost() -> None:
    found = shown(TreeFacts(cluster(), [], [machine("old-a", pool="old")]))
    assert [line.split() for line in found[2:]] == [["└─pool/old", "Gone"], ["└─1", "machine", "Running"]]


def test_what_is_wrong_with_a_cluster() -> None:
    def reason(**of: Any) -> Ailment:
        return tree(TreeFacts(cluster(state=ClusterState(name="demo", **of)))).ailment

    lost = Reachability(reachable=False, time=NOW, since=ago(60), message="connection refused")
    paused = Pause(time=ago(5), reason="the night")
    assert reason() == Ailment("")
    assert reason(pause=paused) == Ailment("ClusterPaused", "the night", ago(5))
    assert reason(pause=paused, api=lost) == Ailment("APIUnreachable", lost.words, ago(60))
    assert reason(clouds={"aws/1": lost}).reason == "CloudUnreachable"
    unasked = lost.model_copy(update={"unasked": True, "message": "its Secret cannot be read: refused"})
    assert reason(clouds={"aws/1": unasked})[:2] == (
        "APIUnreachable",
        "cannot be asked: its Secret cannot be read: refused",
    ), "the cloud is not to blame"


def test_the_first_bad_thing_of_a_machine() -> None:
    wait = WaitingFor(reason="NodeNotSeen", message="no node yet", since=ago(9))
    bad = Condition(type="Drift", reason="Outdated", message="the class changed", since=ago(3))
    other = bad.model_copy(update={"reason": "Other"})

    def of(**status: Any) -> Ailment:
        return ailment_of(MachineState.model_construct(status=Status(phase=Phase.PENDING, **status)))

    assert of(waiting_for=wait, conditions=[bad]) == Ailment("NodeNotSeen", "no node yet", ago(9))
    assert of(conditions=[bad, other]) == Ailment("Outdated", "the class changed", ago(3))
    assert of() == Ailment("")


def test_no_line_is_wider_than_the_terminal_and_none_acts_on_it() -> None:
    """Where there is no room for messages, they stand below."""
    evil = {"web-c": Ailment("InsufficientCapacity", "none\nerror: \x1b[2Jgone " + "x" * 100, ago(40))}
    found = shown(TreeFacts(ROLLING.cluster, ROLLING.pools, ROLLING.machines, evil), width=110)
    assert max(map(len, found)) == 110
    assert found[4].endswith("…")
    assert "none error: \\x1b[2Jgone x" in found[4]
    narrow = shown(TreeFacts(ROLLING.cluster, ROLLING.pools, ROLLING.machines, evil), width=80)
    assert max(map(len, narrow)) == 80
    assert narrow[2:4] == [
        "├─pool/web                Rolling    2/3     2m30s   NewMachinesNotReady",
        "│     1 of 3 is new",
    ]
    assert narrow[6].startswith("│ │       none error: \\x1b[2Jgone xxx")
    narrower = shown(TreeFacts(ROLLING.cluster, ROLLING.pools, ROLLING.machines, evil), width=60)
    assert narrower[2:4] == [
        "├─pool/web                Rolling    2/3     2m30s",
        "│     NewMachinesNotReady: 1 of 3 is new",
    ]
    assert max(map(len, narrower)) == 60


def test_where_there_is_no_terminal_the_tree_is_printed_again_when_it_has_changed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "INTERVAL", 0)
    ill = TreeFacts(cluster(), [], [machine("db-0", "Failed", "HealthTimeout", pool="")])
    well = TreeFacts(cluster(), [], [machine("db-0", pool="")])
    looks = iter([ill, ill, well, well])

    async def look() -> TreeFacts:
        if (found := next(looks, None)) is None:
            raise KeyboardInterrupt
        return found

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(command._again(look, ill, False))
    printed = capsys.readouterr().out.split("\n\n")
    assert [text.splitlines()[-1].split() for text in printed] == [
        ["└─machine/db-0", "Failed", "HealthTimeout"],
        ["└─1", "machine", "Running"],
    ]
