"""Classes whose users are pools: told first, counted apart, named when a class is not to be deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from lifekit import eventually
from machine.classes import Classes, classes, idle, names, refused, snapshot
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from activities.temporal.classes import ClassActivities
from planners.machine_class.rollout import busy, held, to_tell
from resources import attributes
from resources.intents import Intent
from resources.machine.manifest import SecretRef
from resources.machine_class.state import ClassId, ClassState, UpdateState, User, user_words, users_words
from resources.maintenance import Opening
from resources.names import UPDATES_AFTER_ANNOTATION, class_id, pool_id
from resources.owner import Owner, user_id
from workflows.machine_class import MachineClassWorkflow
from workflows.machine_class.words import details, refusal_to_delete, some

__all__ = ["classes", "idle"]  # fixtures

P = Owner(name="p").user
NOW = datetime(2031, 1, 1, 12, tzinfo=UTC)
OLD = User(generation=1, applied=1, state=UpdateState.UPDATED)
SILENT = OLD._replace(told=2, tells=1, patience=NOW)
LATER = NOW + timedelta(hours=1)
BUSY = OLD._replace(told=1, state=UpdateState.UPDATING, patience=NOW + timedelta(minutes=1))


async def test_a_pool_is_told_before_machines(idle: Classes) -> None:
    """What a pool plans from then on is of the newest class."""
    async with idle.worker():
        await idle.start(update_concurrency=1)
        for name in (*names(2), P):
            await idle.user(name, applied=0 if name == P else 1)
        answer = await idle.apply(snapshot(ami="ami-2", team="b"), requested_by="alice")
        words = "configured; generation 2: hot update of vmTags; needs replacement: ami; 1 pool and 2 machines to tell"
        assert answer == words
        await idle.until_told({P: [2], "m1": [2], "m2": []})  # it takes nobody's place
        (news,) = await idle.heard(P)
        assert (news.machine_class, news.requested_by) == (snapshot(2, ami="ami-2", team="b"), "alice")
        await idle.report(P, 2, applied=0)
        await idle.report("m1", 2, UpdateState.OUTDATED)
        await idle.report("m2", 2, UpdateState.OUTDATED)
        state = await eventually(idle.state, lambda s: s.updated, "all have the newest")
        assert state.states == [(UpdateState.OUTDATED, "", 2)]  # only machines are counted
        assert state.progress.states == state.states
        assert state.last_updated_generation == 2


async def test_a_pool_alone_carries_nothing(classes: Classes) -> None:
    """A slip in a class that no machine has taken can be corrected, also while pools without machines use it."""
    await classes.apply(snapshot(**{"kubernetes.io/cluster/demo": "1"}))
    await classes.user(P, generation=2, applied=0)
    await classes.apply(snapshot())
    await classes.user("m1", generation=3)
    await classes.apply(snapshot(**{"kubernetes.io/cluster/demo": "1"}))
    await classes.report("m1", 4)
    await eventually(classes.state, lambda s: s.carried and "vmTags" in s.carried)
    assert "may not be removed" in await refused(classes.apply(snapshot()))


async def test_a_pool_that_is_gone_is_forgotten_when_it_is_told(classes: Classes) -> None:
    for name in (P, Owner(name="q").user):
        await classes.user(name)
    gone = classes.client.get_workflow_handle(user_id(classes.cluster, Owner(name="q").user))
    await gone.terminate()
    await classes.apply(snapshot(team="b"))
    await eventually(classes.state, lambda s: list(s.users) == [P], "q is found gone when it is told")
    await classes.until_told({P: [2]})


async def test_a_class_is_not_deleted_while_pools_use_it(classes: Classes) -> None:
    for name in (P, "m1"):
        await classes.user(name)
    await eventually(classes.state, lambda s: len(s.users) == 2)
    delete = MachineClassWorkflow.delete
    assert await refused(classes.handle.execute_update(delete, Intent(id="a"))) == (
        "machineclass c1 is used by 1 pool (p) and 1 machine (m1): delete them first, or give them another class "
        "(hostler update-class MACHINE CLASS; for a pool, apply its manifest with another class)"
    )
    for name in (P, "m1"):
        await classes.handle.signal(MachineClassWorkflow.forget_user, name)
    await classes.handle.execute_update(delete, Intent(id="b"))
    await classes.handle.result()


async def test_pools_that_name_it_are_looked_for(idle: Classes) -> None:
    named = [SearchAttributePair(attributes.CLUSTER, idle.cluster), SearchAttributePair(attributes.CLASS, "c1")]
    for name in ("p", "q"):
        await idle.client.start_workflow(
            "MachineDeploymentWorkflow",
            id=pool_id(idle.cluster, name),
            task_queue=f"{idle.queue}-nobody",
            search_attributes=TypedSearchAttributes(named),
        )
    await idle.start()
    await idle.user("m1")

    async def listed() -> list[str]:
        return (await ClassActivities(idle.deps).find_users(ClassId(cluster=idle.cluster, name="c1"))).users

    try:
        await eventually(listed, lambda found: found == ["m1", P, Owner(name="q").user], "visibility")
    finally:
        for name in ("p", "q"):
            await idle.client.get_workflow_handle(pool_id(idle.cluster, name)).terminate()


# -- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("users", "counted", "named"),
    [
        ([], "no machine", "no machine"),
        (["m2", "m1"], "2 machines", "2 machines (m1, m2)"),
        ([P], "1 pool", "1 pool (p)"),
        ([*"abc", P, Owner(name="q").user], "2 pools and 3 machines", "2 pools (p, q) and 3 machines (a, b, …)"),
    ],
    ids=["nobody", "machines", "a pool", "both"],
)
def test_machines_and_pools_are_counted_apart(users: list[str], counted: str, named: str) -> None:
    assert (users_words(users), users_words(users, 2)) == (counted, named)


def test_a_user_by_its_kind() -> None:
    assert [user_words(u) for u in ("m1", P)] == ["machine m1", "pool p"]
    assert some(["m1", P]) == "m1, pool p"


def state(**users: User) -> ClassState:
    return ClassState(name="c1", machine_class=snapshot(2), users={k.replace("__", "/"): u for k, u in users.items()})


def test_the_page_in_the_web_ui_names_pools() -> None:
    newest = OLD._replace(generation=2, applied=2)
    shown = details(state(m1=newest, pool__p=newest, pool__q=newest))
    assert "- 2 pools and 1 machine, all have the newest generation\n- Used by pool p, pool q\n" in shown
    assert "Used by" not in details(state(m1=newest))


def test_a_class_without_users_may_be_deleted() -> None:
    assert refusal_to_delete(state()) is None
    assert "1 machine (m1)" in str(refusal_to_delete(state(m1=OLD)))


@pytest.mark.parametrize(
    ("users", "limit", "told"),
    [
        ({"a": OLD, P: OLD}, 1, [P, "a"]),
        ({"a": OLD, P: OLD, "b": OLD}, 1, [P, "a"]),
        ({"a": OLD, P: SILENT, "b": OLD}, 1, [P, "a"]),
        ({"a": BUSY, P: OLD, "b": OLD}, 1, [P, "a"]),
    ],
    ids=["a pool first", "it takes no place", "also one that was silent", "whoever is at work holds up no pool"],
)
def test_who_is_told(users: dict[str, User], limit: int, told: list[str]) -> None:
    assert to_tell(users, 2, limit, NOW) == told


async def test_machines_wait_for_the_window_of_their_pool(classes: Classes) -> None:
    """As their pool reports it: never, then from a time on. What does not touch VMs, and who is of no pool or of
    another one, waits for nothing."""
    mine, other = "p-aaaaa-00001", "q-aaaaa-00001"
    for name in (mine, other, "m1"):
        await classes.user(name)
    await classes.user(P, applied=0, openings=[])
    await classes.apply(snapshot(team="b"))
    await classes.until_told({mine: [], other: [2], "m1": [2], P: [2]})
    state = await eventually(classes.state, lambda s: any(h.reason == "UpdateHeld" for h in s.journal))
    assert state.users[mine].told == 0
    begins = datetime.now(UTC) + timedelta(seconds=3)
    await classes.report(P, 2, applied=0, openings=[Opening(begin=begins, end=begins + timedelta(hours=1))])
    await eventually(classes.state, lambda s: "opens" in s.deadlines, "a deadline")
    await classes.until_told({mine: [2], other: [2], "m1": [2], P: [2]})
    assert datetime.now(UTC) >= begins

    for name in (mine, other, "m1"):
        await classes.report(name, 2)
    await classes.report(P, 2, applied=0, openings=[])
    rotated = snapshot(team="b").model_copy(update={"secret_ref": SecretRef(name="rotated")})
    await classes.apply(rotated)
    await classes.until_told({mine: [2, 3], other: [2, 3], "m1": [2, 3], P: [2, 3]})
    await classes.handle.signal(MachineClassWorkflow.forget_user, P)
    assert not (await eventually(classes.state, lambda s: P not in s.users)).openings


async def test_nobody_is_told_before_its_owner_has_what_may_hold_it_up(classes: Classes) -> None:
    """A changed class and the windows that are to hold it back, in one `apply`: the pool takes both together, and only
    its word about that says whether its machines may be changed. It hears how many wait."""
    mine, other = "p-aaaaa-00001", "q-aaaaa-00001"
    for name in (mine, other):
        await classes.user(name)
    await classes.user(P, applied=0)
    await classes.apply(snapshot(team="b"), after=[P, "pool/stranger"])
    await classes.until_told({mine: [], other: [2], P: []})
    await classes.report(P, 1, applied=0)  # on its way since before
    begins = datetime.now(UTC) + timedelta(seconds=4)
    await classes.report(P, 2, applied=0, openings=[Opening(begin=begins, end=begins + timedelta(hours=1))])
    await eventually(lambda: classes.waiting(P), lambda held: held == [1], "that one machine waits")
    assert not (await classes.state()).awaited
    await classes.until_told({mine: [2], other: [2], P: []})  # it said itself that it has the newest
    assert datetime.now(UTC) >= begins
    await eventually(lambda: classes.waiting(P), lambda held: held == [1, 0], "that none waits any longer")


async def test_an_owner_that_says_nothing_is_not_waited_for_for_ever(idle: Classes) -> None:
    mine = "p-aaaaa-00001"
    async with idle.worker():
        await idle.start(silence=timedelta(seconds=1))
        await idle.user(mine)
        await idle.user(P, applied=0)
        await idle.apply(snapshot(team="b"), after=[P])
        assert "Waits for the word of pool p" in details(await idle.state())
        await eventually(idle.told, lambda told: told[mine] and told[P], "both are told")
        assert not (await idle.state()).awaited


async def test_machines_of_classes_that_share_a_budget_are_updated_one_class_after_the_other(idle: Classes) -> None:
    """A class asks the one before it until no machine there is at work, or is yet to be told: that one is a zone's of
    the same worker pool."""
    second = Classes(idle.client, idle.queue)
    second.cluster, second.handle = idle.cluster, idle.client.get_workflow_handle(class_id(idle.cluster, "c2"))
    async with idle.worker():
        await idle.start(update_concurrency=1)
        after = {UPDATES_AFTER_ANNOTATION: "c1"}
        of_second = snapshot().model_copy(update={"name": "c2"})
        await second.start(name="c2", machine_class=of_second, annotations=after, update_concurrency=1)
        for machine in ("m1", "m2"):
            await idle.user(machine)
        await second.user("m3")
        newer = snapshot(team="b")
        await idle.apply(newer)
        await second.apply(newer.model_copy(update={"name": "c2"}), annotations=after)
        await idle.until_told({"m1": [2], "m2": []})
        assert "Waits until the machines of class c1 are updated" in details(await second.state())
        await idle.report("m1", 2)
        await idle.until_told({"m1": [2], "m2": [2]})
        assert await second.told() == {"m3": []}
        await idle.report("m2", 2, UpdateState.FAILED)
        await second.until_told({"m3": [2]})
        await second.report("m3", 2)
        assert (await second.state()).turn == 2


def test_how_many_machines_of_a_class_are_busy() -> None:
    """Those at work, and those yet to be told. Silence, failure and owners hold up nobody."""
    done = OLD._replace(generation=2, told=2)
    for users, count in (
        ({P: OLD}, 0),
        ({"m1": OLD}, 1),
        ({"m1": OLD._replace(told=2, patience=NOW + timedelta(minutes=1))}, 1),
        ({"m1": SILENT}, 0),
        ({"m1": done}, 0),
        ({"m1": done._replace(state=UpdateState.UPDATING, patience=NOW + timedelta(minutes=1))}, 1),
        ({"m1": done._replace(state=UpdateState.FAILED, patience=NOW + timedelta(minutes=1))}, 0),
    ):
        assert busy(users, 2, NOW) == count, users


HELD: list[tuple[str, dict[str, list[Opening]], int, dict[str, datetime | None]]] = [
    ("no windows", {}, 2, {}),
    ("shut", {P: []}, 2, {"p-a-1": None}),
    ("open", {P: [Opening(begin=NOW, end=NOW + timedelta(hours=1))]}, 2, {}),
    ("just over", {P: [Opening(begin=NOW - timedelta(hours=1), end=NOW)]}, 2, {"p-a-1": None}),
    ("opens", {P: [Opening(begin=NOW + timedelta(hours=1), end=NOW + timedelta(hours=2))]}, 2, {"p-a-1": LATER}),
    ("another pool's", {"pool/p-a": []}, 2, {}),
    ("nothing that touches VMs", {P: []}, 1, {}),
]


@pytest.mark.parametrize(("openings", "touching", "waiting"), [r[1:] for r in HELD], ids=[r[0] for r in HELD])
def test_whom_a_class_holds_back(
    openings: dict[str, list[Opening]], touching: int, waiting: dict[str, datetime | None]
) -> None:
    users = {"p-a-1": OLD, "p-a-2": OLD._replace(generation=2), "m1": OLD, P: OLD}
    assert held(users, openings, touching, NOW) == waiting
    assert to_tell(users, 2, 10, NOW, waiting) == [P, "m1", *(["p-a-1"] if not waiting else [])]
