"""Creation: machine-controller-manager's cases C1 to C17 and what surrounds them. docs/conformance.md is the table."""

from __future__ import annotations

import asyncio
import base64
import gzip
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from activitykit import USER_DATA, OneMachine, instance
from clouds.drivers import calls, fault
from histories.deadlines import at_once
from lifekit import eventually
from machine.stubbed import delete, ended, events, operation, phase, reason, running, state, with_vm
from machine.stubs import NODE, VM, Machines, classified
from pydantic import SecretStr
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from activities.kube.tokens import render
from planners.machine.creation import after_failed_create, token_of
from resources import attributes
from resources.calls.cloud import CreateOutput, StatusOutput
from resources.calls.machine import MachineRef
from resources.clouds.aws.spec import PLACEMENT
from resources.errors import IDEMPOTENCY, MISSING_CREDENTIALS, Code, ErrorClass, ErrorInfo
from resources.machine.state import OperationState, OperationType, Phase
from resources.names import TAG_MACHINE
from resources.timings import Timings
from resources.userdata import PLACEHOLDER_NAME, PLACEHOLDER_TOKEN
from simulator.frame import FaultRule
from workflows.machine import MachineWorkflow

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
PROCESSING = (OperationType.CREATE, OperationState.PROCESSING)
CREATE_FAILED = (OperationType.CREATE, OperationState.FAILED)


# -- one VM ----------------------------------------------------------------------------------------------------------


async def test_c01_one_vm_and_its_ids_are_recorded(machines: Machines) -> None:
    machines.stubs.holds["update_machine"] = asyncio.Event()
    handle = await machines.start(machines.new_state("m-1"))
    seen = await reason(handle, "PostStartUpdate")
    assert (seen.status.phase, operation(seen)) == (Phase.PENDING, PROCESSING)  # seed 000; MCM: the phase stays empty
    assert (seen.status.provider_id, seen.status.node_name) == (VM, NODE)
    assert seen.machine_class is not None
    assert seen.status.last_applied_provider_spec is not None
    assert seen.status.last_applied_provider_spec.provider_spec == seen.machine_class.provider_spec
    (asked,) = machines.stubs.called("create_machine")
    assert asked.target.token == token_of(seen.uid, 1)
    machines.stubs.holds["update_machine"].set()


async def test_c01_one_call_to_the_cloud(one: OneMachine) -> None:
    made = await one.create()
    assert one.changes() == ["RunInstances"]
    assert one.living() == [instance(made.provider_id)]
    assert made.node_name
    assert not made.adopted
    assert (await one.world.kube.get(one.token_path()))["type"] == "bootstrap.kubernetes.io/token"


@pytest.mark.parametrize("encoded", [False, True], ids=["gzip", "gzip in base64"])
async def test_compressed_user_data_has_its_placeholders_filled(one: OneMachine, encoded: bool) -> None:
    """machine-controller-manager would send it with the placeholders: it replaces them in text alone."""
    packed = gzip.compress(USER_DATA.encode())
    (one.secret / "userData").write_bytes(base64.encodebytes(packed) if encoded else packed)
    made = await one.create()
    (vm,) = [v for v in one.cloud.do(one.cloud.ec2.instances) if v.instance_id == instance(made.provider_id)]
    assert vm.user_data.startswith(b"\x1f\x8b")
    text = gzip.decompress(vm.user_data).decode()
    secret = await one.world.kube.get(one.token_path())
    parts = [base64.b64decode(secret["data"][f"token-{part}"]).decode() for part in ("id", "secret")]
    assert text == f"#cloud-config\n# {'.'.join(parts)} of m-1\n"


async def test_the_placement_of_the_node_template_reaches_the_call(machines: Machines, one: OneMachine) -> None:
    """MCM's own sample has it as an annotation."""
    annotations = {PLACEMENT: '{"tenancy": "dedicated"}', "example.com/other": "x"}
    s = machines.new_state("m-1")
    s.spec.node_template.metadata.annotations.update(annotations)
    await reason(await machines.start(s), "NodeNotSeen")
    (asked,) = machines.stubs.called("create_machine")
    assert asked.annotations == {PLACEMENT: annotations[PLACEMENT]}
    await one.create(annotations=asked.annotations)
    (launch,) = calls(one.cloud, "RunInstances")
    assert launch.request["Placement"] == {"Tenancy": "dedicated"}


async def test_labels_of_nodes_never_become_tags(machines: Machines) -> None:
    """Seed 002: whatever the create call makes of what it gets, they are not in it."""
    s = machines.new_state("m-1")
    s.spec.node_template.metadata.labels.update({"example.com/team": "only-on-the-node"})
    s.labels.update({"example.com/team": "only-on-the-node"})
    await reason(await machines.start(s), "NodeNotSeen")
    (asked,) = machines.stubs.called("create_machine")
    assert asked.target.provider_spec["vmTags"]
    assert "only-on-the-node" not in asked.model_dump_json()


async def test_c02_a_run_that_begins_with_an_id_is_pending_and_creates_nothing(machines: Machines) -> None:
    machines.stubs.holds["update_machine"] = asyncio.Event()
    handle = await machines.start(with_vm(machines))
    seen = await reason(handle, "PostStartUpdate")
    assert (seen.status.phase, operation(seen)) == (Phase.PENDING, PROCESSING)
    machines.stubs.holds["update_machine"].set()
    await reason(handle, "NodeNotSeen")
    assert (await handle.describe()).typed_search_attributes.get(attributes.NODE) is None  # it is only promised
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)
    assert machines.stubs.called("create_machine") == []

    async def listed() -> str | None:
        return (await handle.describe()).typed_search_attributes.get(attributes.NODE)

    await eventually(listed, lambda node: node == NODE, "HostlerNode, seed 000's label `node`")


async def test_c03_nothing_new_writes_nothing(machines: Machines) -> None:
    handle = await machines.start(machines.new_state("m-1", timings=Timings(vm_look=timedelta(days=1))))
    await reason(handle, "NodeNotSeen")
    await handle.signal(MachineWorkflow.observe, machines.facts(ready=False))
    before = await reason(handle, "NodeNotReady")
    kinds = ("activity_task_scheduled_event_attributes", "upsert_workflow_search_attributes_event_attributes")
    counts = [await events(handle, k) for k in kinds]
    for _ in range(3):
        await handle.signal(MachineWorkflow.observe, last := machines.facts(ready=False))
    after = await eventually(lambda: state(handle), lambda s: s.node == last, "the last of them")
    assert [await events(handle, k) for k in kinds] == counts
    unlike = {"node", "messages"}
    assert after.model_dump(exclude=unlike) == before.model_dump(exclude=unlike)
    await handle.signal(MachineWorkflow.observe, machines.facts())
    await phase(handle, Phase.RUNNING)


# -- a create call that fails ----------------------------------------------------------------------------------------

CAPACITY, MEDIUM = ErrorClass.CAPACITY, timedelta(minutes=3)


@pytest.mark.parametrize(
    ("error_class", "configured", "code", "wait"),
    [
        pytest.param(ErrorClass.UNKNOWN, None, Code.UNKNOWN, MEDIUM, id="C4"),
        pytest.param(CAPACITY, None, Code.RESOURCE_EXHAUSTED, timedelta(minutes=10), id="C5"),
        pytest.param(CAPACITY, timedelta(minutes=9), Code.RESOURCE_EXHAUSTED, timedelta(minutes=9), id="C6"),
        pytest.param(ErrorClass.QUOTA, None, Code.RESOURCE_EXHAUSTED, timedelta(minutes=10), id="quota"),
        pytest.param(ErrorClass.INVALID, None, Code.INVALID_ARGUMENT, MEDIUM, id="invalid"),
        pytest.param(ErrorClass.AUTH, None, Code.PERMISSION_DENIED, MEDIUM, id="auth"),
        pytest.param(ErrorClass.THROTTLED, None, Code.UNAVAILABLE, timedelta(seconds=30), id="throttled"),
        pytest.param(ErrorClass.TRANSIENT, None, Code.UNAVAILABLE, timedelta(seconds=5), id="transient"),
    ],
)
def test_c04_c05_c06_a_failed_create(
    error_class: ErrorClass, configured: timedelta | None, code: Code, wait: timedelta
) -> None:
    timings = Timings(retry={error_class: configured} if configured else {})
    retry = after_failed_create(ErrorInfo.of(error_class, "the provider's words"), NOW, timings)
    assert (retry.phase, retry.operation, retry.state) == (Phase.CRASH_LOOP_BACK_OFF, *CREATE_FAILED)
    assert (retry.code, retry.next_try - NOW) == (code, wait)
    assert "the provider's words" in retry.message


async def test_c07_older_than_the_creation_timeout_is_failed(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """It is so at the deadline itself; MCM sees it only when the next call fails (its issue 790)."""
    machines.stubs.then("create_machine", *(classified(ErrorClass.UNKNOWN, "internal error") for _ in range(9)))
    handle = await machines.start(machines.new_state("m-1", creation_timeout=timedelta(minutes=5)))
    await reason(handle, "ProviderError")
    await temporal.fast_forward(handle, timedelta(minutes=5, seconds=1))
    failed = await phase(handle, Phase.FAILED)
    assert operation(failed) == CREATE_FAILED
    assert failed.created is not None
    await at_once(handle, failed.created + timedelta(minutes=5), failed.journal[-1].time)
    assert len(machines.stubs.called("create_machine")) == 2  # at 0 and 3 minutes; the next one would have been at 6


# -- a Node that the VM would be taken for ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "since", "named_alike", "stale"),
    [
        pytest.param("aws:///eu-west-1/i-0123456789abcdef0", HOUR, False, True, id="C8"),
        pytest.param("", HOUR, False, True, id="older and nobody's"),
        pytest.param("ours", HOUR, False, False, id="ours: a creation that is tried again"),
        pytest.param("", -HOUR, False, False, id="younger: it may be ours"),
        pytest.param("aws:///eu-west-1/i-0123456789abcdef0", HOUR, True, False, id="the machine's own name"),
    ],
)
async def test_c08_a_stale_node(one: OneMachine, owner: str, since: timedelta, named_alike: bool, stale: bool) -> None:
    made = await one.create()
    if named_alike:
        one, vm = one.named(made.node_name), instance(made.provider_id)
        tags = {**one.cloud.ec2._tags.of(vm), TAG_MACHINE: made.node_name}
        one.cloud.do(lambda: one.cloud.ec2._tags.write(vm, tags))
    await one.attempts.node(made.node_name, made.provider_id if owner == "ours" else owner)
    again = await one.create(started=datetime.now(UTC) + since)
    assert (again.provider_id, again.stale_node) == (made.provider_id, made.node_name if stale else None)
    assert one.changes() == ["RunInstances", "TerminateInstances"] if stale else ["RunInstances"]
    assert await one.nodes() == [made.node_name]  # somebody else's: it stays


async def test_c08_its_machine_is_failed_and_never_pending(machines: Machines) -> None:
    machines.stubs.then("create_machine", CreateOutput(provider_id=VM, node_name=NODE, stale_node=NODE))
    handle = await machines.start(machines.new_state("m-1"))
    failed = await phase(handle, Phase.FAILED)
    assert operation(failed) == CREATE_FAILED
    assert failed.status.last_operation is not None
    assert failed.status.last_operation.description.startswith("VM was referring to stale node object")
    assert machines.stubs.called("update_machine") == []
    await delete(handle)
    await ended(handle)
    assert len(machines.stubs.called("delete_machine")) == 1


# -- adopted, never twice --------------------------------------------------------------------------------------------


async def test_c09_a_vm_that_is_found_is_adopted(machines: Machines) -> None:
    machines.stubs.then(
        "create_machine", classified(ErrorClass.UNKNOWN), CreateOutput(provider_id=VM, node_name=NODE, adopted=True)
    )
    timings = Timings(retry={ErrorClass.UNKNOWN: timedelta(milliseconds=200)})
    handle = await machines.start(machines.new_state("m-1", timings=timings))
    seen = await reason(handle, "NodeNotSeen")
    assert seen.status.phase == Phase.PENDING
    assert [h.reason for h in seen.journal] == ["Created", "ProviderError", "VMAdopted"]


async def test_c09_the_cloud_is_not_asked_for_a_second_one(one: OneMachine) -> None:
    made = await one.create()
    again = await one.create()
    assert (again.provider_id, again.adopted) == (made.provider_id, True)
    assert one.launches() == 1


STATUS_ERRORS = [c for c in ErrorClass if c != ErrorClass.NOT_FOUND]


@pytest.mark.parametrize("error_class", STATUS_ERRORS, ids=str)
async def test_without_a_clear_not_found_nothing_is_created(one: OneMachine, error_class: ErrorClass) -> None:
    """Seed 000, triggerCreationFlow: only "not found" leads to CreateMachine, any other error to CrashLoopBackOff."""
    fault(one.cloud, "DescribeInstances", one.cloud.codes[error_class], times=None)
    with pytest.raises(ApplicationError) as failed:
        await one.create()
    assert failed.value.type == error_class
    assert one.launches() == 0
    one.cloud.do(one.cloud.frame.clear_faults)
    await one.create()
    assert one.launches() == 1


async def test_c10_a_failed_post_start_update_stays_pending(temporal: WorkflowEnvironment, machines: Machines) -> None:
    """Seed 000, 3.3: Update/Failed in Pending; MCM: CrashLoopBackOff with the code Uninitialized."""
    machines.stubs.then("update_machine", classified(ErrorClass.CONFLICT, "IncorrectState: eni-1 is attaching"))
    handle = await machines.start(machines.new_state("m-1", timings=Timings(retry={ErrorClass.CONFLICT: 10 * MINUTE})))
    seen = await reason(handle, "Conflict")
    assert (seen.status.phase, operation(seen)) == (Phase.PENDING, (OperationType.UPDATE, OperationState.FAILED))
    assert seen.status.last_operation is not None
    assert seen.status.last_operation.error_code == Code.ABORTED
    assert "eni-1 is attaching" in seen.status.last_operation.description
    assert seen.status.provider_id == VM
    await temporal.fast_forward(handle, 12.5 * MINUTE)  # up to a quarter longer, by chance
    seen = await reason(handle, "NodeNotSeen")
    assert (seen.status.phase, operation(seen)) == (Phase.PENDING, (OperationType.UPDATE, OperationState.SUCCESSFUL))
    assert (len(machines.stubs.called("create_machine")), len(machines.stubs.called("update_machine"))) == (1, 2)


GONE = StatusOutput(gone=True, message=f"{VM} is terminated")
STOPPED = StatusOutput(message=f"{VM} is stopped")


@pytest.mark.parametrize(
    ("activity", "news", "why"),
    [
        pytest.param("update_machine", classified(ErrorClass.NOT_FOUND, f"{VM} does not exist"), "VMGone", id="C11"),
        pytest.param("watch_machine", GONE, "VMGone", id="C11: while it joins"),
        pytest.param("watch_machine", STOPPED, "VMStopped", id="it stops while it joins"),
    ],
)
async def test_c11_gone_is_failed_and_not_created_again(machines: Machines, activity: str, news: Any, why: str) -> None:
    machines.stubs.then(activity, news)
    timings = Timings(vm_look=timedelta(0), consistency=timedelta(0))
    handle = await machines.start(machines.new_state("m-1", timings=timings))
    failed = await phase(handle, Phase.FAILED)
    assert failed.journal[-1].reason == why
    assert failed.status.provider_id == VM
    assert len(machines.stubs.called("create_machine")) == 1


async def test_c12_the_api_server_fails_right_after_the_create_call(one: OneMachine) -> None:
    one.world.frame.faults.append(FaultRule(operation="get nodes", code="InternalError"))
    with pytest.raises(ApplicationError, match="Kubernetes API"):
        await one.create()
    (vm,) = one.living()
    again = await one.create()
    assert (instance(again.provider_id), again.adopted) == (vm, True)
    assert one.launches() == 1


async def test_c13_an_empty_node_name_is_no_error(machines: Machines) -> None:
    """A Node is known by its providerID; MCM needs the name."""
    machines.stubs.then("create_machine", CreateOutput(provider_id=VM, node_name=""))
    handle = await machines.start(machines.new_state("m-1"))
    seen = await reason(handle, "NodeNotSeen")
    assert (seen.status.phase, seen.status.node_name) == (Phase.PENDING, None)
    await handle.signal(MachineWorkflow.observe, machines.facts(name="x1.corp"))
    assert (await phase(handle, Phase.RUNNING)).status.node_name == "x1.corp"


# -- what a creation needs -------------------------------------------------------------------------------------------


async def test_c15_without_its_class_it_waits_with_words(machines: Machines) -> None:
    handle = await machines.start(machines.new_state("m-1").model_copy(update={"machine_class": None}))
    seen = await reason(handle, "ClassMissing")
    assert seen.status.waiting_for is not None
    assert f"asks MachineClass {seen.spec.class_.name}" in seen.status.waiting_for.message
    assert seen.attempt is None
    await running(machines, "m-2")
    await delete(handle)
    await ended(handle)
    assert [input.target.machine.name for input in machines.stubs.called("create_machine")] == ["m-2"]


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("the Secret", "Secret default/credentials is not in the directory"),
        ("its user data", "Secret default/credentials has no key 'userData'"),
    ],
)
async def test_c15_a_missing_secret_is_said_before_any_call_to_the_cloud(
    one: OneMachine, missing: str, words: str
) -> None:
    away = one.secret if missing == "the Secret" else one.secret / "userData"
    away.rename(one.secret.parent / "away")
    with pytest.raises(ApplicationError, match=words) as refused:
        await one.create()
    assert refused.value.type == MISSING_CREDENTIALS
    assert one.cloud.frame.calls() == []
    (one.secret.parent / "away").rename(away)
    await one.create()
    assert one.launches() == 1


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        pytest.param(PLACEHOLDER_TOKEN, "abcdef.0123456789abcdef", id="C16"),
        pytest.param(quote(PLACEHOLDER_TOKEN, safe=""), "abcdef.0123456789abcdef", id="C16: URL-encoded"),
        pytest.param("no placeholder", "no placeholder", id="C16: none"),
        pytest.param(PLACEHOLDER_NAME, "m-1", id="C16: the name"),
        pytest.param(quote(PLACEHOLDER_NAME, safe=""), "m-1", id="C16: the name, URL-encoded"),
    ],
)
def test_c16_placeholders(text: str, becomes: str) -> None:
    machine = MachineRef(cluster="demo", name="m-1", uid="u")
    rendered = render(SecretStr(f"a {text} b"), machine, SecretStr("abcdef.0123456789abcdef"))
    assert rendered.get_secret_value() == f"a {becomes} b"


async def test_c17_a_vm_that_was_never_set_up_is_set_up_and_not_created(machines: Machines) -> None:
    """The status call only reads; what the VM lacks, the post-start update does, whoever made the VM (seed 000)."""
    machines.stubs.then("create_machine", CreateOutput(provider_id=VM, node_name=NODE, adopted=True))
    handle = await machines.start(machines.new_state("m-1"))
    await reason(handle, "NodeNotSeen")
    assert [name for name, _ in machines.stubs.calls] == ["create_machine", "look_at_node", "update_machine"]


# -- between two tries -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["user data edited", "token cleaned away"])
async def test_another_request_with_a_token_that_was_used_makes_no_second_vm(one: OneMachine, what: str) -> None:
    """The reply to the first call is lost, reads lag, and the second call would be a different one: the attempt is
    over. After the lag window the VM is found by its uid."""
    one.cloud.frame.lag.describe_after_create = 60.0
    fault(one.cloud, "RunInstances", drop=True)
    with pytest.raises(ApplicationError):
        await one.create()
    if what == "user data edited":
        (one.secret / "userData").write_text(USER_DATA + "# edited\n")
    else:
        await one.world.kube.delete(one.token_path())
    with pytest.raises(ApplicationError) as over:
        await one.create()
    assert over.value.type == IDEMPOTENCY
    one.cloud.frame.lag.describe_after_create = 0.0
    found = await one.create(2)
    assert found.adopted
    assert one.living() == [instance(found.provider_id)]


async def test_a_node_that_joins_late_and_in_time_is_running(temporal: WorkflowEnvironment, machines: Machines) -> None:
    timings = Timings(vm_look=timedelta(days=1))
    handle = await machines.start(machines.new_state("m-1", timings=timings, creation_timeout=timedelta(minutes=20)))
    await reason(handle, "NodeNotSeen")
    await temporal.fast_forward(handle, timedelta(minutes=18))  # from 19 on fresh looks count, which find no Node here
    assert (await state(handle)).status.phase == Phase.PENDING
    await handle.signal(MachineWorkflow.observe, machines.facts())
    seen = await phase(handle, Phase.RUNNING)
    assert "creation" not in seen.status.deadlines


async def test_token_id_collision_waits_for_the_other_and_takes_nothing_of_it(one: OneMachine) -> None:
    """Six characters may clash: the other machine's token is neither used nor changed, and nothing is created."""
    other: dict[str, Any] = {
        "metadata": {"name": one.token_path().rpartition("/")[2], "annotations": {"hostler.io/uid": "another"}},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": "x", "token-secret": "y"},
    }
    made = await one.world.kube.create("/api/v1/namespaces/kube-system/secrets", other)
    with pytest.raises(ApplicationError, match="belongs to another machine") as clash:
        await one.create()
    assert clash.value.type == ErrorClass.CONFLICT
    assert one.launches() == 0
    assert (await one.world.kube.get(one.token_path()))["metadata"] == made["metadata"]
    await one.world.kube.delete(one.token_path())  # the other has joined
    await one.create()
    assert one.launches() == 1


async def test_crash_between_create_and_state_write(machines: Machines) -> None:
    """The worker dies after the cloud has answered: the call is tried again with the same token and the same
    request."""
    died = ApplicationError("the worker is gone", type="Crash")
    machines.stubs.then("create_machine", died, CreateOutput(provider_id=VM, node_name=NODE, adopted=True))
    handle = await machines.start(machines.new_state("m-1"))
    seen = await reason(handle, "NodeNotSeen")
    first, second = machines.stubs.called("create_machine")
    assert first == second
    assert (first.attempt, first.target.token) == (1, token_of(seen.uid, 1))
