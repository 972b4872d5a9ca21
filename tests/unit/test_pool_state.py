"""resources/pool/state.py and planners/fleet/revisions.py: a pool's state stays small, and what makes a revision."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pools.planner import EPOCH, TEMPLATE, member, spec, wanted

from planners.fleet.revisions import Revised, Wanted, revise, wanted_by_undo
from planners.machine.hot_update import compare, rolling_hash
from resources.converter import data_converter
from resources.fleet.member import Member, Permit, PreserveWish, Released, Trouble, Vm
from resources.fleet.revision import Revision
from resources.fleet.state import FleetWait
from resources.journal import Happening
from resources.machine.manifest import MachineTemplate, SecretRef
from resources.machine.placement import Placement
from resources.machine.preservation import PreservedBy
from resources.machine.state import ClassSnapshot, Phase
from resources.pool.manifest import NAME_LENGTH
from resources.pool.state import PoolState, Rollout, RolloutStory

MIB = 1024 * 1024
FULL = member(
    12,
    Phase.CRASH_LOOP_BACK_OFF,
    vm=Vm.LIVES,
    trouble=Trouble.HEALTH,
    permit=Permit.GRANTED,
    marked=EPOCH,
    preserved_until=EPOCH + timedelta(hours=72),
    preserved_by=PreservedBy.ASKED,
    deleting=True,
    drained=True,
    node_marked=True,
    marks_due=True,
    template=12,
    seq=345,
    keep=PreserveWish.NEVER,
    granted=PreservedBy.ASKED,
    released=Released.TOLD,
    repair=True,
    removed=True,
    lasted=True,
    contradicted=True,
)


def written(members: dict[str, Member]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        PoolState(name="p", spec=spec(1), members=members).model_dump_json(by_alias=True)
    )
    return found


def read(given: dict[str, Any]) -> dict[str, Member]:
    return PoolState.model_validate_json(json.dumps(given)).members


def test_a_member_is_at_most_150_bytes() -> None:
    state = written({"shoot-worker-abcde-fghij": FULL})
    parts = [state[field] for field in ("members", "apart", "lasted", "contradicted")]
    encoded = json.dumps(parts, separators=(",", ":"))
    assert len(encoded) <= 150
    assert read(state) == {"shoot-worker-abcde-fghij": FULL}


def test_every_code_is_read_back() -> None:
    chance = random.Random(1)
    for _ in range(200):
        made = member(
            chance.randint(1, 99),
            chance.choice(list(Phase)),
            chance.randint(0, 9999),
            vm=chance.choice(list(Vm)),
            trouble=chance.choice(list(Trouble)),
            permit=chance.choice(list(Permit)),
            preserved_by=chance.choice(list(PreservedBy)),
            deleting=chance.choice([True, False]),
            keep=chance.choice(list(PreserveWish)),
            granted=chance.choice(list(PreservedBy)),
            released=chance.choice(list(Released)),
            repair=chance.choice([True, False]),
            removed=chance.choice([True, False]),
            lasted=chance.choice([True, False]),
            contradicted=chance.choice([True, False]),
        )
        members = {"z": made, "a": FULL, "m": member()}
        assert read(written(members)) == members
        assert (
            PoolState.model_validate(PoolState(name="p", spec=spec(1), members=members).model_dump()).members == members
        )
    by_hand = {"m": [1, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "Running"]}
    state = {"name": "p", "spec": spec(1).model_dump(mode="json"), "members": by_hand}
    assert read(state) == {"m": Member(1, EPOCH, EPOCH, Phase.RUNNING)}


NOT_APART: dict[str, Any] = {
    "keep": PreserveWish.UNDECIDED,
    "granted": PreservedBy.NOBODY,
    "released": Released.NO,
    "repair": False,
    "removed": False,
}
BEFORE = [12, 1767225600000, 1767225600000, "C", "v", "h", "g", 3, None, None, "u", 1, 1, 0, 1, 12, 345]


def test_what_was_written_before_there_were_slots_is_read() -> None:
    """This covers recorded histories, and runs that a newer worker continues in another one."""
    state = written({"m": FULL}) | {"members": {"m": BEFORE}}
    del state["apart"], state["lasted"], state["contradicted"]
    (found,) = read(state).values()
    assert (found.preserved_by, found.deleting, found.node_marked, found.seq) == (PreservedBy.ASKED, True, False, 345)
    assert (found.keep, found.granted, found.released) == (PreserveWish.UNDECIDED, PreservedBy.NOBODY, Released.NO)
    assert (found.repair, found.removed) == (False, False)
    assert (written({"m": found})["members"], written({"m": found})["apart"]) == ({"m": BEFORE}, [])


def test_an_older_worker_reads_the_members() -> None:
    """It accepts no fields that it does not know; what it writes back has none of them."""
    state = written({"b": member(), "a": FULL})
    assert [len(fields) for fields in state["members"].values()] == [len(BEFORE)] * 2
    assert state["apart"] == ["n,u,s,1,1", ",,,0,0"], "by name"
    assert state["lasted"] == "10", "apart from those: one of the last version reads five and no more"
    assert read({**state, "lasted": ""}) == {"b": member(), "a": FULL._replace(lasted=False)}
    assert read({**state, "contradicted": ""}) == {"b": member(), "a": FULL._replace(contradicted=False)}
    assert written({"a": member()})["lasted"] == ""
    assert read({**state, "apart": []})["a"] == FULL._replace(**NOT_APART)


A, B = Placement(index=0, zone="z-a"), Placement(index=1, zone="z-b", failure_domain="rack-7")


def test_a_placement_is_written_once_and_apart() -> None:
    """An older worker does not know it."""
    members = {"c": member(placement=B), "a": FULL._replace(placement=A), "d": member(), "b": member(placement=B)}
    state = written(members)
    assert [len(fields) for fields in state["members"].values()] == [len(BEFORE)] * 4
    assert (len(state["places"]), state["placed"]) == (2, [2, 1, 1, 0])
    assert read(state) == members
    assert {m.placement for m in read({**state, "placed": []}).values()} == {None}
    assert (written({"a": FULL})["places"], written({"a": FULL})["placed"]) == ([], [])


async def test_5000_members_travel_in_one_payload() -> None:
    """Design: state stays below 1 MiB for the largest entity; here with the longest names and everything set, in a
    rollout that came before the former one's end was told, with many machines in trouble."""
    names = [f"{'p' * NAME_LENGTH}-abcde-{i:05d}" for i in range(5000)]
    line = Happening(time=EPOCH, reason="Replaced", message="m" * 300)
    state = PoolState(
        name="p" * NAME_LENGTH,
        spec=spec(5000),
        machine_class=wanted(11).machine_class,
        members={n: FULL._replace(placement=Placement(zone=f"eu-west-1{i % 3}")) for i, n in enumerate(names)},
        revisions=[revision(n) for n in range(1, 12)],
        rollout=Rollout(revision=11, began=EPOCH, progress_at=EPOCH, old_left=1),
        stories={
            10: RolloutStory(started=True, untold=[line] * 100, outcome="Superseded", message="m" * 300),
            11: RolloutStory(started=True, untold=[line] * 100),
        },
        waits=[FleetWait(reason=f"Reason{n}", message="m" * 500, since=EPOCH) for n in range(10)],
        told=dict.fromkeys(names[:10], EPOCH),
        unstarted=names[:100],
        lost=dict.fromkeys(names[:100], "TERMINATED"),
        journal=[line] * 50,
        intents={f"{n:032d}": "m" * 300 for n in range(20)},
    )
    (payload,) = await data_converter.encode([state])
    assert len(payload.data) < MIB
    (again,) = await data_converter.decode([payload], [PoolState])
    assert again == state


async def test_marks_that_are_not_confirmed_fit_in() -> None:
    """All Nodes of the largest pool must be marked when its rollout begins."""
    names = [f"{'p' * NAME_LENGTH}-abcde-{i:05d}" for i in range(5000)]
    running = member(12, node_marked=True, marks_due=True, template=12, seq=345)
    state = PoolState(
        name="p" * NAME_LENGTH,
        spec=spec(5000),
        members=dict.fromkeys(names, running),
        revisions=[revision(n) for n in range(1, 12)],
        journal=[Happening(time=EPOCH, reason="Replaced", message="m" * 300)] * 50,
    )
    (payload,) = await data_converter.encode([state])
    assert len(payload.data) < MIB
    (again,) = await data_converter.decode([payload], [PoolState])
    assert again == state


# -- revisions --------------------------------------------------------------------------------------------------------


def revision(image: int, counter: int | None = None) -> Revision:
    made = wanted(image)
    return Revision(
        counter=counter or image,
        machine_class=made.machine_class,
        hash=made.hash,
        template=made.template,
        created=EPOCH,
    )


def change(former: Revised | None, to: Wanted, keep: int = 10) -> Revised:
    if former is None:
        return revise((), {}, to, keep, EPOCH)
    return revise(former.revisions, former.members, to, keep, EPOCH)


def counters(made: Revised) -> list[int]:
    return [r.counter for r in made.revisions]


def template(**more: Any) -> MachineTemplate:
    return MachineTemplate.model_validate({**TEMPLATE, "spec": {**TEMPLATE["spec"], **more}})


def test_the_first_a_new_class_and_a_restart_are_revisions() -> None:
    made = change(None, wanted(1))
    assert (counters(made), made.rolls) == ([1], True)
    made = change(made, wanted(2))
    assert (counters(made), made.rolls) == ([1, 2], True)
    again = wanted(2)
    restarted = change(made, Wanted(again.template, again.machine_class, restart="2026-01-01"))
    assert (counters(restarted), restarted.rolls) == ([1, 2, 3], True)
    renamed = again.machine_class.model_copy(update={"name": "c2"})
    assert change(made, Wanted(again.template, renamed)).rolls


def test_what_can_be_updated_makes_none() -> None:
    made = change(change(None, wanted(1)), Wanted(template(drainTimeout="5m"), wanted(1).machine_class))
    assert (counters(made), made.rolls) == ([1], False)
    assert made.revisions[-1].template.spec.drain_timeout == timedelta(minutes=5)


AWS: dict[str, Any] = {
    "ami": "ami-1",
    "region": "eu-west-1",
    "machineType": "m5.large",
    "blockDevices": [{"ebs": {"volumeSize": 20}}],
    "networkInterfaces": [{"subnetID": "s", "securityGroupIDs": ["g"]}],
    "tags": {"a": "1"},
}


@pytest.mark.parametrize(
    ("change", "rolls"),
    [
        ({"tags": {"a": "2"}}, False),  # P69
        ({"diskTags": {}}, False),
        ({"monitoring": True}, False),
        ({"unknown": 1}, False),
        ({"ami": "ami-2"}, True),
        ({"srcAndDstChecksEnabled": False}, True),
        ({"blockDevices": [{"ebs": {"volumeSize": 21}}]}, True),
    ],
)
def test_the_hash_differs_where_the_comparison_rolls(change: dict[str, Any], rolls: bool) -> None:
    """Seed 002."""
    after = {**AWS, **change}
    assert (rolling_hash("AWS", AWS) != rolling_hash("AWS", after)) is rolls
    assert bool(compare("AWS", AWS, after).rolls) is rolls


def test_of_a_provider_without_a_model_every_field_counts() -> None:
    assert rolling_hash("Other", {"a": 1, "b": 2}) == rolling_hash("Other", {"b": 2, "a": 1})
    assert rolling_hash("Other", {"a": 1}) != rolling_hash("Other", {"a": 2})


def test_going_back_gives_the_old_machines_the_new_number() -> None:
    made = change(change(None, wanted(1)), wanted(2))
    mixed = Revised(made.revisions, {"old": member(1), "new": member(2)}, True)
    back = change(mixed, wanted_by_undo(mixed.revisions))
    assert (counters(back), back.revisions[-1].reason) == ([2, 3], "back to revision 1")
    assert {n: m.revision for n, m in back.members.items()} == {"old": 3, "new": 2}


@pytest.mark.parametrize(
    ("old", "enough", "back"),
    [
        ([{}, {}], 2, True),
        ([{}, {}], 3, False),  # one is yet to be made: the canary tries it
        ([{}, {"phase": Phase.UNKNOWN}], 2, False),
        ([{}, {"deleting": True}], 2, False),
        ([], 0, False),
        ([{}, {}], None, False),
    ],
)
def test_who_wants_what_all_machines_are_goes_back(old: list[dict[str, Any]], enough: int | None, back: bool) -> None:
    """No canary holds the rollout, whose only work is to remove what was tried meanwhile."""
    made = change(change(None, wanted(1)), wanted(2))
    members = {"tried": member(2), **{f"old-{n}": member(1, **more) for n, more in enumerate(old)}}
    again = change(Revised(made.revisions, members, True), replace(wanted(1), enough=enough))
    assert again.revisions[-1].back is back


def test_an_edit_of_a_class_in_place_can_be_undone() -> None:
    """The revision has the class as it was."""
    made = change(change(None, wanted(1)), wanted(2))
    assert wanted_by_undo(made.revisions).machine_class == wanted(1).machine_class


def test_the_history_has_a_limit_but_never_forgets_what_has_machines() -> None:
    made = change(None, wanted(1))
    made = Revised(made.revisions, {"m": member(1)}, True)
    for image in range(2, 8):
        made = change(made, wanted(image), keep=2)
    assert counters(made) == [1, 5, 6, 7]
    assert counters(change(made, wanted(8), keep=0)) == [1, 8]


@pytest.mark.parametrize(
    ("images", "to", "words"),
    [
        ((1,), None, "no earlier revision"),
        ((1, 2), 2, "revision 2 is already the newest; the others are 1"),
        ((1, 2, 3), 9, "revision 9 does not exist; the revisions are 1, 2"),
    ],
)
def test_where_there_is_no_way_back(images: tuple[int, ...], to: int | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        wanted_by_undo([revision(i) for i in images], to)


def test_a_snapshot_without_a_provider_model_has_a_hash() -> None:
    snapshot = ClassSnapshot(name="c", provider="Other", provider_spec={"x": 1}, secret_ref=SecretRef(name="s"))
    assert Wanted(template(), snapshot).hash == rolling_hash("Other", {"x": 1})
