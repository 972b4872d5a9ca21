"""MachineClassWorkflow with stand-ins for its users: they keep what they are told, and the test answers for them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from lifekit import eventually
from machine.classes import Classes, DeafUser, classes, idle, names, refused, snapshot
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.testing import WorkflowEnvironment

from activities.temporal.classes import ClassActivities
from planners.machine_class import rollout as class_rollout
from resources import attributes
from resources.converter import data_converter
from resources.intents import Answer, Intent
from resources.journal import Happening
from resources.machine.state import ClassSnapshot
from resources.machine_class.state import (
    ClassId,
    ClassIntent,
    ClassPreview,
    ClassQuestion,
    ClassState,
    UpdateState,
    User,
    UserTrouble,
)
from resources.names import UPDATE_CONCURRENCY_ANNOTATION, machine_id
from workflows.machine_class import MachineClassWorkflow
from workflows.machine_class.words import details

__all__ = ["classes", "idle"]  # fixtures

MIB = 2**20


# -- telling ----------------------------------------------------------------------------------------------------------


async def test_a_change_goes_to_two_at_a_time_until_all_have_it(idle: Classes) -> None:
    async with idle.worker(strict=True):  # for all tests of a class
        await idle.start(update_concurrency=2)
        for name in names(5):
            await idle.user(name)
        answer = await idle.apply(snapshot(team="b"), requested_by="alice", reason="costs")
        assert answer == "configured; generation 2: hot update of vmTags; 5 machines to tell"
        await idle.until_told({"m1": [2], "m2": [2], "m3": [], "m4": [], "m5": []})
        (news,) = await idle.heard("m1")
        assert (news.requested_by, news.reason) == ("alice", "costs")
        assert news.machine_class == snapshot(2, team="b")

        # A machine at work keeps its place; any end of the work, good or bad, gives it to the next.
        await idle.report("m1", 2, UpdateState.UPDATING, applied=1)
        await idle.report("m2", 2, UpdateState.FAILED, applied=1, reason="NotAuthorized", message="not allowed")
        await idle.until_told({"m1": [2], "m2": [2], "m3": [2], "m4": [], "m5": []})
        await idle.report("m1", 2)
        await idle.report("m3", 2, UpdateState.OUTDATED)
        await idle.until_told({name: [2] for name in names(5)})
        found = await idle.state()
        assert found.last_updated_generation == 1
        assert found.troubles["m2"].message == "not allowed"
        for name in ("m2", "m4", "m5"):
            await idle.report(name, 2)
        found = await idle.state()
        assert (found.last_updated_generation, found.troubles) == (2, {})
        assert [h.reason for h in found.journal] == ["Applied", "UserFailed", "UsersUpdated"]
        assert await idle.told() == {name: [2] for name in names(5)}  # nobody twice


async def test_how_many_at_a_time_is_an_annotation(classes: Classes) -> None:
    for name in names(3):
        await classes.user(name)
    for wrong in ("0", "many", "-1"):
        annotations = {UPDATE_CONCURRENCY_ANNOTATION: wrong}
        assert f"{wrong!r} is not a number of machines" in await refused(
            classes.apply(snapshot(team="b"), annotations=annotations)
        )
    await classes.apply(snapshot(team="b"), annotations={UPDATE_CONCURRENCY_ANNOTATION: "1"})
    await classes.until_told({"m1": [2], "m2": [], "m3": []})
    await classes.report("m1", 2)
    await classes.until_told({"m1": [2], "m2": [2], "m3": []})
    await classes.apply(snapshot(team="b"))  # without it, as many as usual
    await classes.until_told({"m1": [2], "m2": [2], "m3": [2]})


async def test_phases_are_found_by_search(classes: Classes) -> None:
    async def found() -> tuple[Any, ...]:
        seen = (await classes.handle.describe()).typed_search_attributes
        return tuple(seen.get(k) for k in (attributes.CLUSTER, attributes.CLASS, attributes.PHASE, attributes.REASON))

    async def becomes(phase: str, reason: str | None) -> None:
        wanted = (classes.cluster, "c1", phase, reason)
        await eventually(found, lambda seen: seen == wanted, f"{wanted}")

    await becomes("Updated", None)
    await classes.user("m1")
    await classes.apply(snapshot(team="b"))
    await becomes("Updating", None)
    await classes.report("m1", 2, UpdateState.FAILED, reason="NotAuthorized")
    await becomes("Updating", "NotAuthorized")
    await classes.report("m1", 2)
    await becomes("Updated", None)


async def test_a_silent_one_holds_up_the_others_for_two_minutes_only(
    idle: Classes, temporal: WorkflowEnvironment
) -> None:
    async with idle.worker():
        await idle.start(update_concurrency=1)
        for name in names(2):
            await idle.user(name)
        await idle.apply(snapshot(team="b"))
        await idle.until_told({"m1": [2], "m2": []})
        await temporal.fast_forward(idle.handle, timedelta(minutes=1, seconds=50))
        assert await idle.told() == {"m1": [2], "m2": []}
        await temporal.fast_forward(idle.handle, timedelta(seconds=11))
        await idle.until_told({"m1": [2], "m2": [2]})
        await idle.report("m2", 2)
        await idle.until_told({"m1": [2, 2], "m2": [2]})  # and then again
        assert "UserSilent" in [h.reason for h in (await idle.state()).journal]


async def test_the_newest_wins(idle: Classes) -> None:
    """The class changes in the middle: machines at work on the older generation are told first, so no more are at
    work."""
    async with idle.worker():
        await idle.start(update_concurrency=2)
        for name in names(3):
            await idle.user(name)
        await idle.apply(snapshot(team="b"))
        await idle.until_told({"m1": [2], "m2": [2], "m3": []})
        await idle.apply(snapshot(team="c"))
        await idle.until_told({"m1": [2, 3], "m2": [2, 3], "m3": []})
        await idle.report("m1", 2)  # of the older: no answer to the newer
        await idle.report("m1", 3)
        await idle.until_told({"m1": [2, 3], "m2": [2, 3], "m3": [3]})


async def test_one_that_was_born_while_the_class_changed_is_told(classes: Classes) -> None:
    await classes.apply(snapshot(team="b"))
    await classes.user("m1", generation=1, state=UpdateState.PENDING, applied=0)
    await classes.user("m2", generation=2, state=UpdateState.PENDING, applied=0)
    await classes.until_told({"m1": [2], "m2": []})
    assert (await classes.state()).last_updated_generation == 2  # neither has a VM


async def test_a_report_that_was_overtaken_changes_nothing(classes: Classes) -> None:
    await classes.user("m1")
    late = datetime.now(UTC)
    await classes.apply(snapshot(team="b"))
    await classes.until_told({"m1": [2]})
    await classes.report("m1", 2)
    await classes.report("m1", 1, UpdateState.FAILED, time=late)
    await classes.report("m2", 2)  # what came before it has been processed by now
    user = (await eventually(classes.state, lambda s: "m2" in s.users)).users["m1"]
    assert (user.generation, user.state) == (2, UpdateState.UPDATED)


async def test_machines_that_are_gone_are_forgotten(classes: Classes) -> None:
    for name in names(3):
        await classes.user(name)
    for name in ("m1", "m3"):
        handle = classes.client.get_workflow_handle(machine_id(classes.cluster, name))
        await handle.signal(DeafUser.stop)
        await handle.result()
    await classes.handle.signal(MachineClassWorkflow.forget_user, "m1")
    assert "m1" not in (await eventually(classes.state, lambda s: len(s.users) == 2)).users
    await classes.apply(snapshot(team="b"))
    await eventually(classes.state, lambda s: list(s.users) == ["m2"], "m3 is found gone when it is told")
    await classes.until_told({"m2": [2]})


async def test_it_raises_its_generation_above_what_a_user_has(classes: Classes) -> None:
    """Its former workflow was ended from outside, and the new one counts from 1: a machine would drop that as old
    news."""
    await classes.user("m1", generation=7)
    await classes.until_told({"m1": [8]})
    found = await classes.state()
    assert (found.generation, found.journal[-1].reason) == (8, "GenerationRaised")
    assert found.machine_class.provider_spec == snapshot().provider_spec


async def test_machines_that_name_it_are_looked_for(idle: Classes) -> None:
    """It is started with plain JSON, as a person does in the web UI, while a machine already names it."""
    await idle.client.start_workflow(
        DeafUser.run,
        id=machine_id(idle.cluster, "m1"),
        task_queue=f"{idle.queue}-users",
        search_attributes=TypedSearchAttributes(
            [SearchAttributePair(attributes.CLUSTER, idle.cluster), SearchAttributePair(attributes.CLASS, "c1")]
        ),
    )

    async def listed() -> list[str]:
        return (await ClassActivities(idle.deps).find_users(ClassId(cluster=idle.cluster, name="c1"))).users

    await eventually(listed, lambda found: found == ["m1"], "visibility")
    plain = {
        "cluster": idle.cluster,
        "name": "c1",
        "queuePrefix": idle.queue,
        "machineClass": snapshot().model_dump(mode="json", by_alias=True),
    }
    async with idle.worker():
        await idle.client.start_workflow("MachineClassWorkflow", plain, id=idle.handle.id, task_queue=idle.queue)
        await idle.until_told({"m1": [1]})
        found = await idle.state()
        assert [(c.generation, c.time) for c in found.changes] == [(1, found.created)]


# -- intents ----------------------------------------------------------------------------------------------------------


async def test_what_counts_as_a_change(classes: Classes) -> None:
    assert await classes.apply(snapshot()) == "unchanged"
    assert await classes.apply(snapshot(), labels={"a": "b"}) == "configured"
    assert (await classes.state()).generation == 1
    answer = await classes.apply(snapshot(ami="ami-2", team="b"), requested_by="alice")
    assert answer == "configured; generation 2: hot update of vmTags; needs replacement: ami"
    credentials = snapshot(ami="ami-2", team="b").model_copy(update={"credentials_secret_ref": {"name": "s2"}})
    answer = await classes.apply(credentials)
    assert answer == "configured; generation 3: nothing that affects a running VM"
    found = await classes.state()
    assert [(c.generation, c.requested_by, c.hot, c.rolls) for c in found.changes] == [
        (1, "", [], []),
        (2, "alice", ["vmTags"], ["ami"]),
        (3, "", [], []),
    ]
    shown: ClassSnapshot = await classes.handle.query(MachineClassWorkflow.snapshot)
    assert shown == found.machine_class


async def test_an_intent_counts_once(classes: Classes) -> None:
    intent = ClassIntent(id="one", machine_class=snapshot(team="b"))
    await classes.handle.signal(MachineClassWorkflow.apply_by_signal, intent)
    first: Answer = await classes.handle.execute_update(MachineClassWorkflow.apply, intent)
    await classes.apply(snapshot(team="c"))
    again: Answer = await classes.handle.execute_update(MachineClassWorkflow.apply, intent)
    assert again == first
    found = await classes.state()
    assert (found.generation, found.machine_class.provider_spec["vmTags"]) == (3, {"team": "c"})


async def test_what_is_refused(classes: Classes) -> None:
    other = snapshot().model_copy(update={"provider": "GCP"})
    assert "VMs cannot move from AWS to GCP" in await refused(classes.apply(other))
    await classes.handle.signal(MachineClassWorkflow.apply_by_signal, ClassIntent(machine_class=other))
    assert "this is class c1, not c2" in await refused(classes.apply(snapshot(name="c2")))
    tagged = snapshot(**{"kubernetes.io/cluster/demo": "1"})
    await classes.apply(tagged)
    await classes.user("m1", generation=2)  # from now on a machine carries it
    assert "the tag kubernetes.io/cluster/demo may not be removed" in await refused(classes.apply(snapshot()))
    found = await classes.state()
    assert (found.generation, [h.reason for h in found.journal]) == (2, ["Refused", "Applied"])


async def test_what_a_change_would_do_is_told_beforehand(classes: Classes) -> None:
    async def preview(**question: Any) -> ClassPreview:
        found: ClassPreview = await classes.handle.query(MachineClassWorkflow.preview, ClassQuestion(**question))
        return found

    wanted = snapshot(ami="ami-2", team="b")
    assert await preview(machine_class=wanted) == ClassPreview(hot=["vmTags"], rolls=["ami"])
    assert await preview(machine_class=wanted, instead_of=wanted) == ClassPreview()
    (why,) = (await preview(machine_class=wanted.model_copy(update={"provider": "GCP"}))).refused
    assert "cannot move from AWS to GCP" in why
    assert (await classes.state()).generation == 1


async def test_it_is_not_deleted_while_it_is_used(classes: Classes) -> None:
    for name in names(7):
        await classes.user(name)
    await eventually(classes.state, lambda s: len(s.users) == 7)
    delete = MachineClassWorkflow.delete
    assert await refused(classes.handle.execute_update(delete, Intent(id="a"))) == (
        "machineclass c1 is used by 7 machines (m1, m2, m3, m4, m5, …): delete them first, or give them another class "
        "(hostler update-class MACHINE CLASS)"
    )
    await classes.handle.signal(MachineClassWorkflow.delete_by_signal, Intent(id="b"))
    for name in names(7):
        await classes.handle.signal(MachineClassWorkflow.forget_user, name)
    found = await eventually(classes.state, lambda s: not s.users)
    assert [h.reason for h in found.journal] == ["Refused"]
    answer: Answer = await classes.handle.execute_update(delete, Intent(id="c"))
    assert answer.message == "machineclass c1 is gone"
    await asyncio.wait_for(classes.handle.result(), 30)


async def test_a_user_that_comes_while_it_is_deleted_keeps_it(idle: Classes) -> None:
    """Both came before a worker did: otherwise the machine would have a class that nobody answers for."""
    await idle.start()
    await idle.handle.signal(MachineClassWorkflow.delete_by_signal, Intent(id="a"))
    await idle.user("m1")
    async with idle.worker():
        await eventually(idle.state, lambda s: "m1" in s.users)
        assert "is being deleted" in await refused(idle.apply(snapshot(team="b")))
        await idle.handle.signal(MachineClassWorkflow.forget_user, "m1")
        await asyncio.wait_for(idle.handle.result(), 30)


# -- a long life ------------------------------------------------------------------------------------------------------


async def test_a_new_run_knows_what_the_former_knew(classes: Classes) -> None:
    await classes.user("m1")
    await classes.apply(snapshot(team="b"))
    await classes.until_told({"m1": [2]})
    before = await classes.state()
    run = (await classes.handle.describe()).run_id
    await classes.handle.execute_update(MachineClassWorkflow.renew_by_update, Intent(id="r"))

    async def renewed() -> bool:
        return (await classes.handle.describe()).run_id != run

    await eventually(renewed, bool, "a new run")
    after = await classes.state()
    different = {f for f in ClassState.model_fields if getattr(before, f) != getattr(after, f)}
    assert different <= {"intents", "messages"}
    await classes.report("m1", 2)
    await eventually(classes.state, lambda s: s.last_updated_generation == 2)
    assert await classes.told() == {"m1": [2]}  # a new run is no reason to tell it again


async def test_many_messages_begin_a_new_run(idle: Classes) -> None:
    await idle.start(messages=399)
    first = (await idle.handle.describe()).run_id
    await idle.report("m1")
    async with idle.worker():

        async def renewed() -> bool:
            return (await idle.handle.describe()).run_id != first

        await eventually(renewed, bool, "a new run")
        assert set((await idle.state()).users) == {"m1"}


async def test_a_cancellation_means_nothing(classes: Classes) -> None:
    await classes.state()  # begun
    await classes.handle.cancel()
    await eventually(classes.state, lambda s: [h.reason for h in s.journal] == ["CancelIgnored"])
    assert await classes.apply(snapshot(team="b")) == "configured; generation 2: hot update of vmTags"


async def test_an_error_of_our_own_parks_it(idle: Classes, monkeypatch: pytest.MonkeyPatch) -> None:
    def buggy(*_: object) -> list[str]:
        raise ValueError("a bug")

    monkeypatch.setattr(class_rollout, "to_tell", buggy)
    monkeypatch.setattr("workflows.machine_class.workflow.to_tell", buggy)
    async with idle.worker():
        await idle.start()
        parked = await eventually(idle.state, lambda s: s.parked, "a parked class")
        assert parked.parked == "ValueError: a bug"
        assert "Parked" in details(parked)
        monkeypatch.undo()
        await idle.user("m1")
        await idle.handle.execute_update(MachineClassWorkflow.renew_by_update, Intent(id="r"))
        await idle.apply(snapshot(team="b"))
        await idle.until_told({"m1": [2]})


def test_when_a_class_is_updated() -> None:
    now = datetime.now(UTC)
    done = User(2, 2, UpdateState.UPDATED, "", now)

    def updated(*users: User) -> bool:
        known = {f"m{n}": user for n, user in enumerate(users)}
        return ClassState(name="c1", machine_class=snapshot(2), users=known).updated

    assert updated()
    assert updated(done, done._replace(state=UpdateState.OUTDATED))
    at_it = done._replace(state=UpdateState.UPDATING)
    for other in (done._replace(generation=1), at_it, done._replace(state=UpdateState.FAILED), User()):
        assert not updated(done, other)


def test_five_thousand_users_fit_into_one_payload() -> None:
    """They have names of 63 characters, all of them have failed, and all are at work."""
    now = datetime.now(UTC)
    worst = User(1000, 1000, UpdateState.NOT_SUPPORTED, "CredentialsMissing", now, 1001, 3, now)
    users = {f"{n:063d}": worst for n in range(5000)}
    happening = Happening(time=now, reason="UserFailed", message="x" * 400)
    state = ClassState(
        name="c1",
        machine_class=snapshot(),
        users=users,
        troubles={n: UserTrouble(message="x" * 300, next_try=now) for n in list(users)[:100]},
        journal=[happening] * 50,
    )
    (payload,) = data_converter.payload_converter.to_payloads([state])
    assert len(payload.data) < MIB
    (again,) = data_converter.payload_converter.from_payloads([payload], [ClassState])
    assert again == state


async def test_the_page_in_the_web_ui(classes: Classes) -> None:
    await classes.user("m1")
    await classes.apply(snapshot(team="b"), requested_by="alice")
    await classes.report("m1", 2, UpdateState.FAILED, applied=1, reason="NotAuthorized", message="may not")
    shown = details(await classes.state())
    for words in (
        "### Class c1, generation 2",
        "1 machine, **1 without the newest generation**, 0 not told yet",
        "every machine has: 1",
        "Failed (NotAuthorized): 1",
        "m1: may not",
        "What can be done about NotAuthorized: If the cloud refuses: correct the Secret",
        "alice: hot update of vmTags",
    ):
        assert words in shown
