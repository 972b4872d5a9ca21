"""The control plane's workflow and the etcd that it guards, which is played: its activities are the door. What they do
to a real one is in test_etcd_guard.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

import pytest_asyncio
from control_plane.workflow import ControlPlane, snapshot, wanted
from temporalio import activity
from temporalio.testing import WorkflowEnvironment

from activities.boundary import NotYet
from activities.kube.etcd import EtcdError
from resources.control_plane.etcd import EtcdAct, EtcdChange, EtcdLook, EtcdMember, EtcdView
from resources.intents import Intent
from resources.settings import SettingsError
from resources.timings import Timings


@dataclass
class PlayedEtcd:
    """Its members have the names of their machines. A machine that is new joins as soon as somebody says so."""

    members: dict[str, EtcdMember] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    """The changes that were made."""
    looks: int = 0
    broken: str = ""
    """What the settings say wrong."""
    loses: int = 0
    """How many answers to changes are lost on their way."""

    def join(self, *names: str) -> None:
        for name in names:
            id = str(100 + len(self.members) + len(self.done))
            self.members[name] = EtcdMember(id=id, name=name, machine=name, node=f"node-{name}")

    def lead(self, name: str) -> None:
        self.members = {n: m.model_copy(update={"leader": n == name}) for n, m in self.members.items()}

    @property
    def view(self) -> EtcdView:
        return EtcdView(members=list(self.members.values()))

    @activity.defn(name="look_at_etcd")
    async def look(self, input: EtcdLook) -> EtcdView:
        self.looks += 1
        if self.broken:
            raise SettingsError(self.broken)
        if self.view.like(input.seen) and not input.at_once:
            raise NotYet("nothing has changed", input.interval)
        return self.view

    @activity.defn(name="change_etcd")
    async def change(self, input: EtcdChange) -> EtcdView:
        if not self.view.like(input.seen):
            return self.view
        (name,) = [n for n, m in self.members.items() if m.id == input.member]
        self.done.append(f"{input.act} {name}")
        if input.act is EtcdAct.MOVE_LEADER:
            self.lead(name)
        else:
            del self.members[name]
        if self.loses:
            self.loses -= 1
            raise EtcdError("the connection broke")
        return self.view


@pytest_asyncio.fixture
async def etcd() -> PlayedEtcd:
    return PlayedEtcd()


@pytest_asyncio.fixture
async def cp(temporal: WorkflowEnvironment, etcd: PlayedEtcd) -> AsyncIterator[ControlPlane]:
    it = ControlPlane(temporal.client, beside=[etcd.look, etcd.change], timings=Timings.fast())
    async with it.worker():
        yield it
        await it.end()


async def guarded(cp: ControlPlane, etcd: PlayedEtcd, **spec: str) -> list[str]:
    """Three machines that were made by hand, each with a member; the first one leads."""
    names = await cp.ready(wanted(etcdGuard=True, **spec))
    etcd.join(*names)
    etcd.lead(names[0])
    await cp.when(lambda s: s.etcd is not None and s.etcd.like(etcd.view), "has seen etcd")
    return names


async def test_a_machine_goes_when_its_member_is_gone(cp: ControlPlane, etcd: PlayedEtcd) -> None:
    """The replacement must vote, the leader moves, and the member is removed, before the hold is lifted. The answer to
    the removal is lost once."""
    names = await guarded(cp, etcd, strategy="OnDelete")
    await cp.delete(names[0])
    (new,) = await cp.members(prefix="cp-")
    assert f"its replacement {new} has no member of etcd yet" in await cp.waits("EtcdReplacementNotVoting")
    assert (etcd.done, (await cp.heard(names[0]))[-1]) == ([], "delete")
    etcd.join(new)
    await cp.when(lambda s: s.etcd is not None and etcd.done[:1] == [f"MoveLeader {new}"], "has moved the leader")
    await cp.gone(names[0])
    assert etcd.done == [f"MoveLeader {new}", f"Remove {names[0]}"]
    story = await cp.journal("EtcdLeaderMoved", "EtcdMemberRemoved", "HoldLifted")
    assert story == [
        f"etcd's leader moves from {names[0]} to {new}: {names[0]} leaves",
        f"member {names[0]} is removed from etcd: {names[0]} leaves, and {new} votes in its place",
        f"{names[0]} goes: index 0 has a ready replacement",
    ]


async def test_a_lost_answer_removes_nobody_else(cp: ControlPlane, etcd: PlayedEtcd) -> None:
    names = await guarded(cp, etcd)
    etcd.lead(names[2])
    etcd.loses = 1
    await cp.delete(names[0])
    etcd.join(*await cp.members(prefix="cp-"))
    await cp.gone(names[0])
    assert (etcd.loses, etcd.done) == (0, [f"Remove {names[0]}"])
    assert len(etcd.members) == 3


async def test_a_rolling_update_takes_etcd_along(cp: ControlPlane, etcd: PlayedEtcd) -> None:
    names = await guarded(cp, etcd)
    await cp.apply(machine_class=snapshot(generation=2, type="m5.xlarge"))
    for index, old in enumerate(names):
        s = await cp.when(lambda s, end=f"-{index}": _new(s.members, end), f"a machine for index {index}")
        etcd.join(*_new(s.members, f"-{index}"))
        await cp.gone(old)
    await cp.done(revision=2)
    assert [d for d in etcd.done if d.startswith("Remove")] == [f"Remove {old}" for old in names]
    assert sorted(etcd.members) == sorted((await cp.state()).members)
    assert etcd.looks < 200, "it watches, and does not spin"


def _new(machines: Iterable[str], end: str) -> list[str]:
    return [name for name in machines if name.startswith("cp-") and name.endswith(end)]


async def test_a_machine_stays_while_etcd_cannot_be_reached(cp: ControlPlane, etcd: PlayedEtcd) -> None:
    names = await guarded(cp, etcd, strategy="OnDelete")
    etcd.lead(names[2])
    etcd.broken = "clusters.demo.etcd: client.key cannot be read"
    await cp.delete(names[0])
    etcd.join(*await cp.members(prefix="cp-"))
    assert "client.key cannot be read" in await cp.waits("EtcdTrouble")
    assert names[0] in (await cp.state()).members
    etcd.broken = ""
    await cp.gone(names[0])


async def test_a_dead_member_goes_before_its_replacement_joins(cp: ControlPlane, etcd: PlayedEtcd) -> None:
    names = await guarded(cp, etcd, strategy="OnDelete")
    etcd.lead(names[2])
    etcd.members[names[0]] = etcd.members[names[0]].model_copy(update={"trouble": "no answer"})
    await cp.delete(names[0])
    (new,) = await cp.members(prefix="cp-")
    assert f"its replacement {new} has no member" in await cp.waits("EtcdReplacementNotVoting")
    assert etcd.done == [], "its kubelet lives"
    await cp.be(names[0], place={"node_ready": False})
    await cp.gone(names[0])
    assert etcd.done == [f"Remove {names[0]}"]


async def test_the_watch_ends_with_the_control_plane(cp: ControlPlane, etcd: PlayedEtcd) -> None:
    await guarded(cp, etcd)
    await cp.ask("delete", Intent())
    await cp.over()
