"""No secret in any history, heartbeat, query answer, rejection or log (I11)."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from histories.recorded import assert_no_canary, canaries_of, found_in, texts_of, tokens_of
from lifekit import Stack, asked, end_running, eventually, new_stack
from machine.classes import LiveClass, refuse, relent, start_by_hand, tagged
from machine.lives import knobs
from pools.lives import Pool, machine_handle, pool_class, pool_spec
from temporalio.client import WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import ActivityInboundInterceptor, ActivityOutboundInterceptor, Interceptor

from resources.machine.state import Phase
from resources.names import rollout_id
from resources.pool.intents import PoolQuestion, ScaleIntent
from simulator.frame import FaultRule
from workflows.machine_class import MachineClassWorkflow
from workflows.pool import MachineDeploymentWorkflow

pytestmark = pytest.mark.core

CANARY = "s3cret/canary+with signs"


@pytest.mark.parametrize(
    "text",
    [
        CANARY.encode(),
        json.dumps({"a": CANARY}).encode(),
        b"xx" + base64.b64encode(b"a" + CANARY.encode()),
        base64.b64encode(b"ab" + CANARY.encode() + b"tail"),
        base64.urlsafe_b64encode(b"abc" + CANARY.encode()),
        b"before" + gzip.compress(b"in " + CANARY.encode(), mtime=0),
        base64.b64encode(gzip.compress(base64.b64encode(CANARY.encode()), mtime=0)),
        b"a=s3cret%2Fcanary%2Bwith%20signs",
    ],
)
def test_a_planted_canary_is_found(text: bytes) -> None:
    assert found_in([CANARY], [b"other", text]) == [CANARY]


def test_what_is_no_canary_is_not_found() -> None:
    assert found_in([CANARY], [b"s3cret", base64.b64encode(b"harmless " * 9), gzip.compress(b"harmless")]) == []


class Recorder(Interceptor):
    """Keeps every heartbeat that an activity sends."""

    def __init__(self) -> None:
        self.heartbeats: list[bytes] = []

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        recorder = self

        class Outbound(ActivityOutboundInterceptor):
            def heartbeat(self, *details: Any) -> None:
                recorder.heartbeats.append(json.dumps(details, default=str).encode())
                super().heartbeat(*details)

        class Inbound(ActivityInboundInterceptor):
            def init(self, outbound: ActivityOutboundInterceptor) -> None:
                super().init(Outbound(outbound))

        return Inbound(next)


def logged(caplog: pytest.LogCaptureFixture) -> list[bytes]:
    ours = ("hostler", "temporalio", "activities")
    return [r.getMessage().encode() for r in caplog.records if r.name.startswith(ours)]


@pytest.fixture
async def bare(temporal: WorkflowEnvironment):
    async with new_stack(temporal.client) as stack:
        yield stack


async def test_a_life_with_troubles_tells_no_secret(bare: Stack, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    recorder = Recorder()
    simulator = bare.simulator.simulator
    rules: list[Mapping[str, Any]] = [
        {"service": "ec2", "operation": "RunInstances", "code": "UnauthorizedOperation"},
        {"service": "ec2", "operation": "RunInstances", "code": "NobodyKnowsThisCode"},
        {"service": "ec2", "operation": "RunInstances", "drop": True},
        {"service": "kubernetes", "operation": "create secrets", "code": "InternalError", "status": 500},
    ]
    for rule in rules:
        bare.simulator.call(lambda rule=rule: simulator.frame.faults.append(FaultRule.model_validate(rule)))
    knobs(bare, "m-1*", join_delay=3600)
    answers: list[bytes] = []
    async with bare.worker([recorder]):
        handle = await bare.create()
        await bare.reason("NodeNotSeen")
        tokens = await tokens_of(bare)
        assert tokens
        knobs(bare, "m-1*", join_delay=0)  # not before its token was seen
        state = await bare.phase(Phase.RUNNING)
        answers.append(state.model_dump_json().encode())
        old = state.machine_class.model_copy(update={"provider": "GCP"})
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update("apply", {"id": str(uuid.uuid4()), "spec": state.spec, "machineClass": old})
        answers.append(str(refused.value.cause).encode())
        await bare.delete()
    assert recorder.heartbeats
    logs = logged(caplog)
    texts = await texts_of(bare.client, handle.id, f"cluster/{bare.cluster}")
    assert_no_canary([*await canaries_of(bare), *tokens], [*texts, *recorder.heartbeats, *answers, *logs])
    # The same search finds what a history does hold: it has looked at something.
    assert found_in([state.uid], texts)


async def test_a_class_and_a_hot_update_with_troubles_tell_no_secret(
    bare: Stack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    recorder, of = Recorder(), LiveClass(bare, **tagged({"team": "a"}))
    async with bare.worker([recorder]):
        await of.start()
        await start_by_hand(bare, "m-1", of)
        uid = (await bare.phase(Phase.RUNNING)).uid
        await of.known("m-1")
        rule = refuse(bare, uid, "NobodyKnowsThisCode")
        await of.apply(**tagged({"team": "b"}))
        troubled = await eventually(bare.state, lambda s: s.status.update_trouble is not None, "the failure")
        relent(bare, rule)
        told = await of.updated(2)
        snapshot = await asked(of.handle, MachineClassWorkflow.snapshot)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await of.apply(vmTags={"kubernetes.io/cluster/another": "1"})
        answers = [x.model_dump_json().encode() for x in (troubled, told, snapshot)]
        answers += [str(refused.value.cause).encode(), (await of.refusal()).encode()]
        await bare.delete()
    assert recorder.heartbeats
    assert found_in([uid, "NobodyKnowsThisCode", "is used by"], answers) == [uid, "NobodyKnowsThisCode", "is used by"]
    texts = await texts_of(bare.client, bare.started["m-1"].id, of.handle.id, f"cluster/{bare.cluster}")
    assert_no_canary(await canaries_of(bare), [*texts, *recorder.heartbeats, *answers, *logged(caplog)])


async def test_a_pool_and_a_rollout_with_troubles_tell_no_secret(bare: Stack, caplog: pytest.LogCaptureFixture) -> None:
    """What the cloud says about a machine reaches its pool, and from there the story of the rollout."""
    caplog.set_level(logging.DEBUG)
    recorder, pool = Recorder(), Pool(bare)
    rule = FaultRule(service="ec2", operation="RunInstances", code="NobodyKnowsThisCode")
    question = PoolQuestion(machine_class=pool_class(3, ami="ami-0a1b2c3d4e5f60004"))
    async with bare.worker([recorder]):
        bare.simulator.call(lambda: bare.simulator.simulator.frame.faults.append(rule))
        await pool.start(pool_spec(1))
        await pool.rolled_out(1)
        knobs(bare, f"{pool.name}-*", never_joins=True)
        await pool.apply(machine_class=pool_class(2, ami="ami-0a1b2c3d4e5f60002"))
        tokens = await eventually(lambda: tokens_of(bare), what="the token of the new machine")
        told = [await pool.summary(), await pool.state(), await pool.rollout(2)]
        told.append(await pool.handle.query(MachineDeploymentWorkflow.rehearse, question))
        told += (await pool.machines()).values()
        answers = [x.model_dump_json().encode() for x in told]
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await pool.ask("scale", ScaleIntent(replicas=3, current=7))
        answers.append(str(refused.value.cause).encode())
        names = sorted((await pool.state()).members)
        await pool.delete()
    await end_running(bare)
    assert recorder.heartbeats
    assert found_in(["NobodyKnowsThisCode"], answers)
    ids = [machine_handle(bare, name).id for name in names]
    texts = await texts_of(bare.client, *ids, pool.handle.id, rollout_id(bare.cluster, pool.name, 2))
    secrets = [*await canaries_of(bare), *tokens]
    assert_no_canary(secrets, [*texts, *recorder.heartbeats, *answers, *logged(caplog)])
    assert found_in(["NobodyKnowsThisCode"], await texts_of(bare.client, pool.handle.id)), "the pool was told nothing"
