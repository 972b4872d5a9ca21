"""The guard of etcd against a real one: three members over TLS, struck at the worst moments.

`Guarded` does what the control plane's workflow does: it looks, lets the planner decide, and has the change made.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from activitykit import CLUSTER, Attempts, NoServer
from apiserver.simulated import NODES, World, new_world
from etcd.members import RealEtcd, etcd, real_etcd
from temporalio.exceptions import ApplicationError

from activities.cluster.etcd import EtcdActivities
from activities.deps import Deps
from planners.control_plane import holds
from planners.control_plane.etcd import Act
from planners.control_plane.view import Host, Observed
from resources.control_plane.etcd import EtcdAct, EtcdChange, EtcdLook, EtcdView
from resources.control_plane.spec import UpdateStrategy
from resources.errors import ErrorClass
from resources.names import CONTROL_PLANE_LABELS, MACHINE_NAME_LABEL
from resources.settings import ClusterSettings, EtcdSettings, Settings

__all__ = ["etcd"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEALTH_INTERVAL = 5.0  # seconds; etcd's own, for which all must have answered each other
PATIENCE = 40.0  # seconds in which etcd settles; an election takes two


@dataclass
class Guarded:
    etcd: RealEtcd
    world: World
    attempts: Attempts
    hosts: dict[str, Host] = field(default_factory=dict)
    view: EtcdView | None = None

    @property
    def activities(self) -> EtcdActivities:
        return EtcdActivities(self.attempts.deps)

    async def machine(self, name: str, index: int, **more: Any) -> None:
        """A machine of an index, with a Node at the address of its member."""
        self.hosts[name] = Host(name, index, NOW + timedelta(seconds=len(self.hosts)), **more)
        labels = {CONTROL_PLANE_LABELS[0]: "", MACHINE_NAME_LABEL: name}
        status = {"addresses": [{"type": "InternalIP", "address": self.etcd.members[name].address}]}
        await self.world.kube.create(NODES, {"metadata": {"name": f"node-{name}", "labels": labels}, "status": status})

    async def no_node(self, name: str) -> None:
        await self.world.kube.delete(f"{NODES}/node-{name}")

    def leaves(self, name: str, **more: Any) -> None:
        self.hosts[name] = replace(self.hosts[name], leaving=True, held=True, **more)

    @property
    def observed(self) -> Observed:
        strategy = UpdateStrategy.ROLLING_UPDATE
        return Observed(3, strategy, tuple(self.hosts.values()), guarded=True, etcd=self.view)

    async def look(self) -> EtcdView:
        look = EtcdLook(cluster=CLUSTER, seen=self.view, at_once=True, interval=timedelta(seconds=1))
        self.view = await self.attempts.attempt(self.activities.look_at_etcd, look)
        return self.view

    async def act(self) -> Act | None:
        """Decides by a fresh look."""
        await self.look()
        return holds.etcd_act(self.observed)

    def change(self, act: Act) -> EtcdChange:
        assert self.view is not None
        return EtcdChange(cluster=CLUSTER, seen=self.view, act=act.act, member=act.member.id)

    async def make(self, act: Act) -> EtcdView:
        """Has the change made; etcd refuses one while its members have not been connected for 5 s."""
        change = self.change(act)
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    self.view = await self.attempts.attempt(self.activities.change_etcd, change)
                except ApplicationError as e:
                    if e.non_retryable or "unhealthy cluster" not in e.message:
                        raise
                    await asyncio.sleep(0.2)
                else:
                    return self.view

    async def once(self, wanted: EtcdAct) -> Act:
        """The next change, once it is this one."""
        async with asyncio.timeout(PATIENCE):
            while (act := await self.act()) is None or act.act is not wanted:
                assert act is None, act
                await asyncio.sleep(0.2)
            return act

    async def waits(self, reason: str) -> str:
        """The words of the wait, once it waits for this."""
        async with asyncio.timeout(PATIENCE):
            while True:
                await self.look()
                lifted, waits = holds.lift(self.observed)
                assert not lifted
                found = [w.message for w in waits if w.reason == reason]
                if found:
                    assert holds.etcd_act(self.observed) is None
                    return found[0]
                await asyncio.sleep(0.2)

    def free(self) -> list[str]:
        return [host.name for host, _ in holds.lift(self.observed)[0]]


@pytest.fixture
async def guarded(etcd: RealEtcd) -> AsyncIterator[Guarded]:
    """Members a, b and c on machines of their names, index by index."""
    async with guarding(etcd, "abc") as guarded:
        yield guarded


@pytest.fixture
async def replaced(etcd: RealEtcd) -> AsyncIterator[Guarded]:
    """The same, and d votes already in the place of a, which leaves; b is the leader."""
    async with guarding(etcd, "abcd") as guarded:
        await etcd.lead("b")
        guarded.leaves("a")
        yield guarded


@asynccontextmanager
async def guarding(etcd: RealEtcd, members: str) -> AsyncIterator[Guarded]:
    await etcd.begin(*members)
    async with new_world() as world:
        (etcd.folder / "kubeconfig").write_text(world.kube.kubeconfig())
        reached = EtcdSettings(
            endpoints=[m.url for m in etcd.members.values()],
            certificate=Path("client.crt"),
            key=Path("client.key"),
            authority=Path("ca.crt"),
        )
        cluster = ClusterSettings(kubeconfig=etcd.folder / "kubeconfig", etcd=reached)
        client = NoServer()
        deps = Deps(Settings(file=etcd.folder / "settings.yaml", clusters={CLUSTER: cluster}), client)  # type: ignore[arg-type]
        guarded = Guarded(etcd, world, Attempts(world, None, deps, client))  # type: ignore[arg-type]
        try:
            for number, name in enumerate(members):
                await guarded.machine(name, number % 3)
            yield guarded
        finally:
            await deps.close()


# -- one replacement, from beginning to end ---------------------------------------------------------------------------


async def test_the_leader_moves_and_then_its_member_goes(guarded: Guarded) -> None:
    await guarded.etcd.lead("a")
    guarded.leaves("a")
    await guarded.etcd.join("d")
    await guarded.machine("d", 0)
    assert "is a learner without a vote" in await guarded.waits("EtcdReplacementNotVoting")
    await guarded.etcd.promote("d")

    moved = await guarded.once(EtcdAct.MOVE_LEADER)
    assert moved.message == "etcd's leader moves from a to d: a leaves"
    await guarded.make(moved)
    assert await guarded.etcd.leader() == "d"
    assert guarded.free() == [], "its member is still there"

    await guarded.make(await guarded.once(EtcdAct.REMOVE))
    assert sorted(await guarded.etcd.listed()) == ["b", "c", "d"]
    assert guarded.free() == ["a"]


async def test_nothing_is_done_while_the_replacement_has_no_member(guarded: Guarded) -> None:
    """It is Ready before kubeadm has joined it to etcd."""
    guarded.leaves("a")
    guarded.hosts["d"] = Host("d", 0, NOW + timedelta(hours=1))
    assert "its replacement d has no member of etcd yet" in await guarded.waits("EtcdReplacementNotVoting")
    assert len(await guarded.etcd.listed()) == 3


async def test_the_poller_tells_what_has_changed_and_nothing_else(guarded: Guarded) -> None:
    view = await guarded.look()
    assert sorted((m.name, m.machine, m.node, m.healthy) for m in view.voters) == [
        (name, name, f"node-{name}", True) for name in "abc"
    ]
    look = EtcdLook(cluster=CLUSTER, seen=view, interval=timedelta(seconds=1))
    words = await guarded.attempts.waits(guarded.activities.look_at_etcd, look)
    assert words == "3 members of etcd vote, and nothing has changed"
    await guarded.etcd.lead("b" if await guarded.etcd.leader() == "a" else "a")
    seen = await guarded.attempts.attempt(guarded.activities.look_at_etcd, look)
    assert [m.name for m in seen.members if m.leader] == [await guarded.etcd.leader()]


# -- the worst moments ------------------------------------------------------------------------------------------------


async def test_the_leader_is_killed_before_it_moves(replaced: Guarded) -> None:
    """The decision was to move it: nothing is done by that any more, and its member goes as one that is down."""
    await replaced.etcd.lead("a")
    moved = await replaced.once(EtcdAct.MOVE_LEADER)
    await replaced.etcd.kill("a")
    await replaced.etcd.leader()
    view = await replaced.make(moved)
    assert {m.name: m.healthy for m in view.members} == {"a": False, "b": True, "c": True, "d": True}
    await replaced.make(await replaced.once(EtcdAct.REMOVE))
    assert sorted(await replaced.etcd.listed()) == ["b", "c", "d"]
    assert replaced.free() == ["a"]


async def test_a_dead_member_goes_first_as_etcd_takes_no_other_beside_it(guarded: Guarded) -> None:
    """etcd's own rule (mayAddMember), which is why the replacement cannot vote before."""
    await guarded.etcd.kill("a")
    await guarded.etcd.leader()
    guarded.hosts["a"] = replace(guarded.hosts["a"], ready=False)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(HEALTH_INTERVAL + 1):
            await guarded.etcd.join("d")
    assert await guarded.act() is None, "nobody has asked for its end"

    guarded.leaves("a")
    gone = await guarded.once(EtcdAct.REMOVE)
    assert "does not answer, and its machine a is not ready and leaves" in gone.message
    await guarded.make(gone)
    assert guarded.free() == [], "its hold is lifted when its index has a ready replacement"
    await guarded.etcd.join("d")
    await guarded.machine("d", 0)
    await guarded.look()
    assert guarded.free() == ["a"]


async def test_the_member_of_a_machine_that_is_gone_is_removed(guarded: Guarded) -> None:
    """The cloud has lost the VM, and the cloud controller manager its Node: nobody was asked before."""
    await guarded.look()
    await guarded.etcd.kill("a")
    await guarded.no_node("a")
    await guarded.etcd.leader()
    assert await guarded.act() is None, "its machine is still being cleared away"
    del guarded.hosts["a"]
    await guarded.make(await guarded.once(EtcdAct.REMOVE))
    assert sorted(await guarded.etcd.listed()) == ["b", "c"]


async def test_a_replacement_that_hangs_does_not_count(replaced: Guarded) -> None:
    """It is frozen, its connections open; and so is one that stops between the decision and the change."""
    replaced.etcd.freeze("d")
    assert "d, the member of its replacement d, is not healthy" in await replaced.waits("EtcdReplacementNotVoting")
    replaced.etcd.thaw("d")
    act = await replaced.once(EtcdAct.REMOVE)
    replaced.etcd.freeze("c")
    view = await replaced.make(act)
    assert len(view.members) == 4, "it was decided on while c answered"


async def test_another_member_that_is_down_does_not_hold_up_for_ever(replaced: Guarded) -> None:
    """Without a's member etcd survives as little as with it, and c's machine is replaced only after a's."""
    await replaced.etcd.kill("c")
    await replaced.make(await replaced.once(EtcdAct.REMOVE))
    assert sorted(await replaced.etcd.listed()) == ["b", "c", "d"]
    assert await replaced.etcd.leader() == "b", "the two that are left are a quorum of three"


async def test_nothing_is_done_without_a_quorum(replaced: Guarded) -> None:
    change = replaced.change(await replaced.once(EtcdAct.REMOVE))
    for name in ("c", "d"):
        await replaced.etcd.kill(name)
    view = await replaced.attempts.attempt(replaced.activities.change_etcd, change)
    assert (view.quorate, len(view.members)) == (False, 4)
    words = await replaced.waits("EtcdQuorumLost")
    assert "2 of 4 voting members answer, and 3 are needed: start c, d" in words


async def test_nobody_answers(replaced: Guarded) -> None:
    before = await replaced.look()
    for name in "abcd":
        await replaced.etcd.kill(name)
    assert "Connect call failed" in await replaced.waits("EtcdTrouble")
    assert (await replaced.look()).members == before.members, "what was known is not forgotten"


async def test_a_lost_reply_costs_nothing(replaced: Guarded) -> None:
    """The removal is done, and its answer is lost: the same call comes again."""
    act = await replaced.once(EtcdAct.REMOVE)
    change = replaced.change(act)
    await replaced.make(act)
    replaced.view = await replaced.attempts.attempt(replaced.activities.change_etcd, change)
    assert sorted(await replaced.etcd.listed()) == ["b", "c", "d"]
    assert replaced.free() == ["a"]


# -- the connection ---------------------------------------------------------------------------------------------------


async def test_a_strangers_certificate_is_no_way_in(guarded: Guarded, tmp_path: Path) -> None:
    """etcd's authority has not signed it; what is said of it quotes no key."""
    other = tmp_path / "other"
    other.mkdir()
    async with real_etcd(other):
        for name in ("client.crt", "client.key"):
            (guarded.etcd.folder / name).write_bytes((other / name).read_bytes())
    view = await guarded.look()
    assert view.members == []
    assert view.trouble
    assert "PRIVATE" not in view.trouble


async def test_settings_that_cannot_be_used_are_named(guarded: Guarded) -> None:
    look = EtcdLook(cluster=CLUSTER, interval=timedelta(seconds=1))
    (guarded.etcd.folder / "client.key").unlink()
    failure = await guarded.attempts.fails(guarded.activities.look_at_etcd, look)
    assert (failure.type, "client.key" in failure.message) == (str(ErrorClass.INVALID), True)
