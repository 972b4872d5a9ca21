"""What a machine tells its pool, and what it accepts from it: reports, news, refusals. Stubs for the activities."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from histories.recorded import reset
from lifekit import eventually
from machine.stubbed import CLASS, Pool, another, listening, tell, until_told
from machine.stubs import VM, Machines, classified, not_yet, phase, reason, state
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment

from planners.machine.hot_update import rolling_hash
from resources.attributes import POOL
from resources.calls.cloud import CreateOutput, StatusInput, VmLook
from resources.calls.drain import DrainInput, DrainOutput
from resources.errors import ErrorClass
from resources.fleet.member import Trouble, Vm
from resources.fleet.membership import MemberReport, TemplateNews
from resources.intents import Intent
from resources.machine.facts import VmFacts
from resources.machine.intents import DeleteIntent, RecreateIntent
from resources.machine.manifest import MachineTemplate
from resources.machine.state import ApplyIntent, Phase
from resources.names import MARKED_ANNOTATION, PRIORITY_ANNOTATION, machine_id
from resources.timings import Timings
from workflows.entity import RENEW_AFTER
from workflows.machine import MachineWorkflow

SENT = EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED
LOST = EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED


@pytest_asyncio.fixture
async def pool(machines: Machines) -> AsyncIterator[Pool]:
    async with listening(machines) as pool:
        yield pool


def short(reports: list[MemberReport]) -> list[tuple[str, str, str]]:
    return [(str(r.phase), r.vm.name, r.trouble.name + (" ended" if r.ended else "")) for r in reports]


async def events(machines: Machines, kind: int, name: str = "m-1") -> int:
    handle = machines.client.get_workflow_handle(machine_id(machines.prefix, name))
    return sum(1 for e in (await handle.fetch_history()).events if e.event_type == kind)


def template(pool: Pool, generation: int, **spec: Any) -> TemplateNews:
    """The template of the pool's machines, changed."""
    given = pool.new_state().spec.model_dump(by_alias=True) | {k: v for k, v in spec.items() if k != "labels"}
    manifest = {"metadata": {"labels": spec.get("labels", {"team": "x"})}, "spec": given}
    return TemplateNews(generation=generation, template=MachineTemplate.model_validate(manifest), requested_by="ops")


# -- reports ----------------------------------------------------------------------------------------------------------


async def test_a_plain_life_is_six_reports(machines: Machines, pool: Pool) -> None:
    handle = await pool.running()
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    await handle.result()
    heard = await pool.heard()
    assert short(heard) == [
        ("Pending", "UNBORN", "NONE"),
        ("Pending", "LIVES", "NONE"),
        ("Running", "LIVES", "NONE"),
        ("Terminating", "LIVES", "NONE"),
        ("Terminating", "GONE", "NONE"),
        ("Terminating", "GONE", "NONE ended"),
    ]
    assert [r.seq for r in heard] == sorted({r.seq for r in heard})
    assert {(r.machine, r.template, r.failures, r.asks) for r in heard} == {("m-1", 1, 0, False)}
    assert heard[0].since == heard[1].since < heard[2].since < heard[3].since == heard[5].since
    assert await events(machines, SENT) == 6
    assert await events(machines, LOST) == 0


@pytest.mark.parametrize("share", [0.5, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in (0.0, 1.0))])
async def test_after_a_reset_its_pool_hears_it(machines: Machines, pool: Pool, share: float) -> None:
    """What the pool has heard before has higher numbers than the reset run would count."""
    handle = await pool.running()
    before = max(r.seq for r in await pool.heard())
    await reset(machines.client, handle.id, share)
    await handle.signal(MachineWorkflow.report_again)
    after = await pool.told(lambda r: r.seq > before and r.vm is Vm.LIVES)
    assert after.machine == "m-1"


async def test_a_machine_of_no_pool_tells_nobody(machines: Machines, pool: Pool) -> None:
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.report_again)
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    await handle.result()
    assert await events(machines, SENT) == 0
    await pool.start(pool.new_state("m-2"))
    await pool.told(lambda r: r.vm is Vm.LIVES)
    assert {r.machine for r in await pool.heard()} == {"m-2"}
    assert await events(machines, SENT, "m-2") == 2


async def test_visibility_and_the_web_ui_name_its_pool(machines: Machines, pool: Pool) -> None:
    handle = await pool.running()
    assert (await handle.describe()).typed_search_attributes.get(POOL) == pool.name
    details = await handle.query("__temporal_workflow_metadata")
    assert f"- Pool: {pool.name}, revision 1" in str(details)


async def test_each_failed_create_call_is_reported_once(machines: Machines, pool: Pool) -> None:
    """The same error twice is two failures."""
    timings = Timings(retry={ErrorClass.CAPACITY: timedelta(seconds=0.2)})
    machines.stubs.then("create_machine", *[classified(ErrorClass.CAPACITY, "none left")] * 2)
    await pool.start(pool.new_state(timings=timings))
    await pool.told(lambda r: r.vm is Vm.LIVES)
    heard = await pool.heard()
    assert short(heard) == [
        ("Pending", "UNBORN", "NONE"),
        ("CrashLoopBackOff", "UNBORN", "NONE"),
        ("CrashLoopBackOff", "UNBORN", "NONE"),
        ("Pending", "LIVES", "NONE"),
    ]
    assert [r.failures for r in heard] == [0, 1, 2, 2]
    assert [r.failure and (r.failure.error_class, r.failure.message) for r in heard] == [
        None,
        (ErrorClass.CAPACITY, "none left"),
        (ErrorClass.CAPACITY, "none left"),
        None,
    ]


async def test_a_failure_that_was_told_is_in_no_other_report(machines: Machines, pool: Pool) -> None:
    """Otherwise the pool would slow down once more for it."""
    machines.stubs.then("create_machine", classified(ErrorClass.QUOTA, "10 of 10"))
    handle = await pool.start(pool.new_state())
    first = await pool.told(lambda r: r.phase is Phase.CRASH_LOOP_BACK_OFF)
    assert first.failure is not None
    await handle.signal(MachineWorkflow.report_again)
    again = await pool.told(lambda r: r.machine_class)
    await handle.signal(MachineWorkflow.template_changed, template(pool, 2))
    changed = await pool.told(lambda r: r.template == 2)
    assert first.seq < again.seq < changed.seq
    assert [(r.failures, r.failure) for r in (again, changed)] == [(1, None)] * 2


async def test_one_that_never_joins_is_drained_from_the_start(
    temporal: WorkflowEnvironment, machines: Machines, pool: Pool
) -> None:
    handle = await pool.start(pool.new_state(timings=Timings(vm_look=timedelta(hours=1))))
    await reason(handle, "NodeNotSeen")
    await temporal.fast_forward(handle, timedelta(minutes=19, seconds=1))
    await eventually(lambda: state(handle), lambda s: s.suspicion is not None, "the first look")
    await temporal.fast_forward(handle, timedelta(minutes=1, seconds=1))
    failed = await pool.told(lambda r: r.phase is Phase.FAILED)
    assert (failed.trouble, failed.vm, failed.drained) == (Trouble.JOIN, Vm.LIVES, True)
    assert "creationTimeout (20m)" in failed.message
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    await handle.result()
    after = [r for r in await pool.heard() if r.seq > failed.seq]
    assert short(after) == [
        ("Terminating", "LIVES", "JOIN"),
        ("Terminating", "GONE", "JOIN"),
        ("Terminating", "GONE", "JOIN ended"),
    ]


async def test_a_vm_that_somebody_deleted_is_told_whatever_the_machine_is_doing(machines: Machines, pool: Pool) -> None:
    """A drain may take hours; the pool replaces what is gone at once."""
    machines.stubs.then("look_at_vm", VmLook(state="gone"))
    handle = await pool.running()
    await handle.signal(MachineWorkflow.observe_vm, VmFacts(epoch=1, seq=1, provider_id=VM, state="gone"))
    gone = await pool.told(lambda r: r.vm is Vm.GONE)
    assert (gone.phase, gone.trouble, gone.message) == (Phase.UNKNOWN, Trouble.GONE, f"{VM} was deleted by somebody")


async def test_what_is_gone_while_it_is_drained_is_told_at_once(machines: Machines, pool: Pool) -> None:
    hold = machines.stubs.holds["drain_node"] = asyncio.Event()
    machines.stubs.then("look_at_vm", VmLook(state="gone"))
    handle = await pool.running()
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    await pool.told(lambda r: r.phase is Phase.TERMINATING)
    await handle.signal(MachineWorkflow.observe_vm, VmFacts(epoch=1, seq=1, provider_id=VM, state="gone"))
    gone = await pool.told(lambda r: r.vm is Vm.GONE)
    assert (gone.phase, gone.trouble) == (Phase.TERMINATING, Trouble.NONE)
    assert machines.stubs.called("delete_machine") == []
    hold.set()
    await handle.result()


async def test_a_vm_that_is_gone_before_its_node_joined(machines: Machines, pool: Pool) -> None:
    machines.stubs.then("update_machine", classified(ErrorClass.NOT_FOUND, "no such instance"))
    new = pool.new_state(timings=Timings(consistency=timedelta(0)))
    await pool.start(new)
    failed = await pool.told(lambda r: r.phase is Phase.FAILED)
    assert (failed.vm, failed.trouble, failed.drained) == (Vm.GONE, Trouble.JOIN, True), "it has not joined"
    assert "no such instance" in failed.message


async def test_a_stale_nodes_vm_counts_until_it_is_gone(machines: Machines, pool: Pool) -> None:
    machines.stubs.then("create_machine", CreateOutput(provider_id=VM, node_name="node-1", stale_node="node-1"))
    handle = await pool.start(pool.new_state())
    failed = await pool.told(lambda r: r.phase is Phase.FAILED)
    assert (failed.vm, failed.trouble, failed.drained) == (Vm.LIVES, Trouble.JOIN, True)
    details = str(await handle.query("__temporal_workflow_metadata"))
    assert (
        f"Nothing: pool {pool.name} replaces it, `hostler describe pool {pool.name} --cluster {machines.prefix}` says"
        in details
    )
    assert "hostler recreate" not in details  # it would be refused


async def test_asked_again_it_answers_with_what_it_was_made_from(machines: Machines, pool: Pool) -> None:
    """It does so even when nothing has changed; otherwise the class would have to be in every report."""
    handle = await pool.running()
    before = await pool.told(lambda r: r.phase is Phase.RUNNING)
    assert (before.machine_class, before.hash) == ("", "")
    await handle.signal(MachineWorkflow.report_again)
    again = await pool.told(lambda r: r.seq > before.seq)
    made_from = (await state(handle)).attempt.machine_class
    assert again == before.model_copy(
        update={
            "seq": again.seq,
            "machine_class": CLASS,
            "hash": rolling_hash("AWS", made_from.provider_spec, version=1),
            "rolling_hash": rolling_hash("AWS", made_from.provider_spec),
        }
    )
    await handle.signal(MachineWorkflow.report_again)
    await pool.told(lambda r: r.seq > again.seq)


async def test_a_pool_that_is_not_there_is_no_error(machines: Machines, pool: Pool) -> None:
    """The machine lives, and ends, without it."""
    await pool.leave()
    handle = await pool.running()
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    await handle.result()
    sent = await events(machines, SENT)
    assert sent >= 6
    assert await events(machines, LOST) == sent


async def test_what_nobody_took_is_told_at_the_next_wait(machines: Machines, pool: Pool) -> None:
    """It is told though it is no longer news."""
    await pool.leave()
    handle = await pool.running()
    await eventually(lambda: state(handle), lambda s: s.told_pool == "", "the report was lost")
    await pool.come()
    await handle.signal(MachineWorkflow.observe, machines.facts(addresses=["10.0.0.9"]))
    told = await pool.told(lambda r: r.phase is Phase.RUNNING)
    assert [r.seq for r in await pool.heard()] == [told.seq]


async def test_a_new_run_tells_nothing_twice(machines: Machines, pool: Pool) -> None:
    handle = await pool.running()
    before = await pool.told(lambda r: r.phase is Phase.RUNNING)
    first = (await handle.describe()).run_id
    await handle.execute_update(MachineWorkflow.renew_by_update, Intent(id="n"))
    await eventually(handle.describe, lambda d: d.run_id != first, "a new run")
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    await handle.result()
    after = [r for r in await pool.heard() if r.seq > before.seq]
    assert [r.seq for r in after] == sorted({r.seq for r in after})
    assert [r.phase for r in after] == [Phase.TERMINATING] * 3


async def test_a_new_run_begins_when_the_report_has_arrived(machines: Machines, pool: Pool) -> None:
    """The message that asks for the report is the one too many for the run: what a closed run was about to send would
    be lost."""
    handle = await pool.start(pool.new_state().model_copy(update={"messages": RENEW_AFTER - 2}))
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts())
    before = await pool.told(lambda r: r.phase is Phase.RUNNING)
    first = (await handle.describe()).run_id
    await handle.signal(MachineWorkflow.report_again)
    await eventually(handle.describe, lambda d: d.run_id != first, "a new run")
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    await handle.result()
    after = [r for r in await pool.heard() if r.seq > before.seq]
    assert [r.seq for r in after] == sorted({r.seq for r in after})
    told = [(str(r.phase), bool(r.machine_class)) for r in after]
    assert told == [("Running", True)] + [("Terminating", False)] * 3


# -- what stands on the Node ------------------------------------------------------------------------------------------


async def test_annotations_of_the_node_reach_the_pool(machines: Machines, pool: Pool) -> None:
    handle = await pool.running()
    marked = datetime(2026, 1, 31, 12, tzinfo=UTC)
    given = {PRIORITY_ANNOTATION: "1", MARKED_ANNOTATION: "2026-01-31T12:00:00Z"}
    await handle.signal(MachineWorkflow.observe, machines.facts(annotations=given))
    told = await pool.told(lambda r: r.priority == 1)
    assert (told.marked, told.phase) == (marked, Phase.RUNNING)
    await handle.signal(MachineWorkflow.observe, machines.facts())
    told = await pool.told(lambda r: r.priority is None)
    assert told.marked is None


async def test_a_mark_that_cannot_be_read_counts_from_now_on(machines: Machines, pool: Pool) -> None:
    handle = await pool.running()
    given = {PRIORITY_ANNOTATION: "high", MARKED_ANNOTATION: "soon"}
    await handle.signal(MachineWorkflow.observe, machines.facts(annotations=given))
    told = await pool.told(lambda r: r.marked)
    assert told.priority is None
    said = [h for h in (await state(handle)).journal if h.reason == "MarkUnreadable"]
    assert [h.time for h in said] == [told.marked]
    assert "'soon' is not an RFC 3339 time" in said[0].message
    assert MARKED_ANNOTATION in said[0].message
    await handle.signal(MachineWorkflow.observe, machines.facts(annotations=given, ready=False))
    later = await pool.told(lambda r: r.phase is Phase.UNKNOWN)
    assert later.marked == told.marked  # the mark does not become newer with each look
    assert [h.reason for h in (await state(handle)).journal].count("MarkUnreadable") == 1


# -- the class --------------------------------------------------------------------------------------------------------


async def test_of_a_changed_class_it_takes_what_needs_no_new_vm(machines: Machines, pool: Pool) -> None:
    """What rolls is for the pool: the machine is updated and never Outdated."""
    handle = await pool.running()
    own = (await state(handle)).machine_class
    wanted = another(own, 2, ami="ami-2", vmTags={**own.provider_spec["vmTags"], "team": "b"})
    await tell(handle, wanted)
    await until_told(machines, (CLASS, 2, 1, "Updating"), (CLASS, 2, 2, "Updated"))
    after = await state(handle)
    assert after.machine_class.generation == 2
    assert after.machine_class.provider_spec["ami"] == own.provider_spec["ami"] != "ami-2"
    assert after.machine_class.provider_spec["vmTags"]["team"] == "b"
    assert [c.type for c in after.status.conditions] == []
    (call,) = machines.stubs.hot_updates()
    assert call.target.provider_spec == after.machine_class.provider_spec


async def test_a_create_call_that_is_tried_again_uses_its_revisions_image(machines: Machines, pool: Pool) -> None:
    machines.stubs.then("create_machine", classified(ErrorClass.CAPACITY))
    handle = await pool.start(pool.new_state(timings=Timings(consistency=timedelta(seconds=0.2))))
    await phase(handle, Phase.CRASH_LOOP_BACK_OFF)
    own = (await state(handle)).machine_class
    await tell(handle, another(own, 2, ami="ami-2", vmTags={**own.provider_spec["vmTags"], "team": "b"}))
    await pool.told(lambda r: r.vm is Vm.LIVES)
    first, second = (i.target for i in machines.stubs.called("create_machine"))
    assert first.token != second.token
    assert second.provider_spec["ami"] == first.provider_spec["ami"] == own.provider_spec["ami"]
    assert second.provider_spec["vmTags"]["team"] == "b"


async def test_another_provider_is_refused(machines: Machines, pool: Pool) -> None:
    handle = await pool.running()
    own = (await state(handle)).machine_class
    await tell(handle, own.model_copy(update={"provider": "GCP", "generation": 2}))
    refused = await eventually(lambda: state(handle), lambda s: s.journal[-1].reason == "Refused", "a refusal")
    assert refused.machine_class == own
    assert "from AWS to GCP" in refused.journal[-1].message


# -- the template -----------------------------------------------------------------------------------------------------


async def test_a_changed_template_is_told_when_the_node_carries_it(machines: Machines, pool: Pool) -> None:
    handle = await pool.running()
    before = await state(handle)
    hold = machines.stubs.holds["join_node"] = asyncio.Event()
    labels = {"metadata": {"labels": {"zone": "a"}}}
    await handle.signal(MachineWorkflow.template_changed, template(pool, 2, nodeTemplate=labels, labels={"a": "b"}))
    await reason(handle, "NodeTemplate")
    assert (await pool.heard())[-1].template == 1
    hold.set()
    told = await pool.told(lambda r: r.template == 2, "the Node carries it")
    assert told.phase is Phase.RUNNING
    after = await state(handle)
    assert after.status.last_applied_node_template.metadata.labels == {"zone": "a"}
    assert (after.labels, after.template) == ({"a": "b"}, 2)
    assert after.spec.class_ == before.spec.class_
    assert type(after.spec) is type(before.spec)
    assert machines.stubs.called("join_node")[-1].node_template == after.spec.node_template


async def test_what_is_no_work_is_told_at_once_and_older_news_is_dropped(machines: Machines, pool: Pool) -> None:
    handle = await pool.running()
    changed = template(pool, 3, drainTimeout="5m", **{"class": {"name": "another"}})
    await handle.signal(MachineWorkflow.template_changed, changed)
    await pool.told(lambda r: r.template == 3)
    assert (await state(handle)).spec.class_.name == CLASS  # another one is another revision's
    for generation in (2, 3):
        await handle.signal(MachineWorkflow.template_changed, template(pool, generation, drainTimeout="9m"))
    await handle.signal(MachineWorkflow.template_changed, template(pool, 4, healthTimeout="9h"))
    await pool.told(lambda r: r.template == 4)
    seen = await state(handle)
    said = [h.message for h in seen.journal if h.reason == "Applied"]
    assert said == [f"template of pool {pool.name}, generation {n}" for n in (3, 4)]
    assert seen.spec.health_timeout == timedelta(hours=9)


async def test_a_creation_deadline_moves_with_the_template(machines: Machines, pool: Pool) -> None:
    handle = await pool.start(pool.new_state(timings=Timings(vm_look=timedelta(0))))

    async def watches() -> list[StatusInput]:
        return machines.stubs.called("watch_machine")

    before = await reason(handle, "NodeNotSeen")
    await eventually(watches, what="a watch of the VM")
    await handle.signal(MachineWorkflow.template_changed, template(pool, 2, creationTimeout="3h"))
    told = await pool.told(lambda r: r.template == 2)  # there is no Node yet that should carry it
    assert told.phase is Phase.PENDING
    moved = before.created + timedelta(hours=3)
    assert (await state(handle)).status.deadlines["creation"] == moved
    # Whoever watches the VM keeps its token: with the former deadline a node that joins late could not.
    first, second = await eventually(watches, lambda w: len(w) == 2, "another watch")
    assert (first.deadline, second.deadline) == (before.status.deadlines["creation"], moved)


async def test_a_machine_that_leaves_takes_no_template(machines: Machines, pool: Pool) -> None:
    def blocked(input: DrainInput) -> DrainOutput:
        raise not_yet("0 of 1 pods gone", timedelta(days=1))

    machines.stubs.then("drain_node", *[blocked] * 9)
    handle = await pool.running()
    await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    before = await reason(handle, "Draining")
    await handle.signal(MachineWorkflow.template_changed, template(pool, 2, drainTimeout="1s"))
    await handle.signal(MachineWorkflow.report_again)
    told = await pool.told(lambda r: r.machine_class)
    assert (told.template, (await state(handle)).spec) == (1, before.spec)


# -- what it refuses --------------------------------------------------------------------------------------------------


async def test_its_spec_and_its_lives_are_the_pools(machines: Machines, pool: Pool) -> None:
    handle = await pool.running()
    now = await state(handle)
    apply = ApplyIntent(id="a", spec=now.spec, machine_class=now.machine_class.model_copy(update={"generation": 9}))
    again = RecreateIntent(id="r")
    for name, intent, words in (
        (
            "apply",
            apply,
            f"from the template of pool {pool.name}; change the template or its class: `hostler apply -f FILE",
        ),
        ("recreate", again, f"pool {pool.name} replaces machines that are deleted; use `hostler delete machine m-1"),
    ):
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update(name, intent)
        assert words in str(refused.value.cause)
        await handle.signal(name, intent)
        told = await eventually(lambda: state(handle), lambda s: s.journal[-1].reason == "Refused", "a refusal")
        assert words in told.journal[-1].message
    seen = await state(handle)
    assert (seen.machine_class, seen.deletion) == (now.machine_class, None)
    answer = await handle.execute_update(MachineWorkflow.delete, DeleteIntent(id="d"))
    assert (
        answer.message
        == f"machine m-1 is being deleted; pool {pool.name} creates another one if its replicas require it"
    )
    await handle.result()
