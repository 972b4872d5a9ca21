"""A drain's own calls in trouble, pass by pass: refused, without an answer, slow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from apiserver.simulated import NODES, PODS
from machine.drains import CSI, NODE, Drain, new_drain
from temporalio.testing import WorkflowEnvironment

from activities.drain import sweep
from resources.calls.drain import DrainOutput
from resources.errors import ErrorClass
from simulator.frame import FaultRule

NO_RIGHT = "volumeattachments.storage.k8s.io is forbidden"
OTHER = "n-2"


@pytest.fixture
async def drain(temporal: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Drain]:
    async with new_drain(temporal.client, tmp_path) as drain:
        yield drain


def fault(drain: Drain, operation: str, **fields: Any) -> FaultRule:
    rule = FaultRule(operation=operation, **{"times": None, **fields})
    drain.world.frame.faults.append(rule)
    return rule


# -- what the workflow hears -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["get nodes", "patch nodes", "list pods", "delete pods"])
@pytest.mark.parametrize("how", [{"code": "InternalError", "message": "failed calling webhook"}, {"drop": True}])
async def test_with_force_a_failure_is_the_workflows(drain: Drain, operation: str, how: dict[str, Any]) -> None:
    """The workflow goes on without the Node's pods when somebody insists. If it were tried again here, the workflow
    would never hear of it."""
    await drain.pod("web-1")
    fault(drain, operation, **how)
    error = await drain.fails(force=True)
    assert (error.type, error.non_retryable) == (str(ErrorClass.TRANSIENT), True)
    assert "failed calling webhook" in error.message or "cannot be reached" in error.message
    assert error.details[0].error_class is ErrorClass.TRANSIENT


async def test_without_force_it_is_tried_again_here(drain: Drain) -> None:
    await drain.pod("web-1")
    fault(drain, "patch nodes", code="InternalError", times=1)
    assert not (await drain.fails()).non_retryable
    assert await drain.waits() == "0 of 1 pods gone, force at 14:05 UTC"


async def test_without_the_right_to_read_budgets_the_refusal_has_the_api_servers_words(drain: Drain) -> None:
    await drain.pod("web-1", labels={"app": "web"})
    await drain.budget("web", {"matchLabels": {"app": "web"}})
    fault(drain, "list poddisruptionbudgets", code="Forbidden", message="no right")
    assert "default/web-1 blocked: Cannot evict pod as it would violate" in await drain.waits()


async def test_one_pod_that_cannot_be_deleted_does_not_keep_the_others(drain: Drain) -> None:
    await drain.pod("a-broken")
    await drain.pod("web-1")
    fault(drain, "delete pods", match="a-broken", code="InternalError")
    assert (await drain.fails(force=True)).non_retryable
    assert await drain.names() == {"a-broken"}


@pytest.mark.parametrize("force", [False, True])
async def test_a_pass_ends_in_time_where_each_call_is_slow(
    drain: Drain, force: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its attempt would be ended, and what it did and what failed would not be said."""
    for n in range(sweep.AT_ONCE + 4):
        await drain.pod(f"web-{n}")
    slow = fault(drain, "create pods/eviction", delay=1.0)
    with monkeypatch.context() as hasty:
        hasty.setattr(sweep, "BEGINS", timedelta(seconds=0.5))
        await drain.waits(force=force)
    assert len(drain.evicted()) == sweep.AT_ONCE
    drain.world.frame.faults.remove(slow)
    await drain.waits(force=force)
    assert len(set(drain.evicted())) == len(drain.evicted()) == sweep.AT_ONCE + 4


async def test_an_eviction_that_ends_in_a_conflict_is_asked_for_again(drain: Drain) -> None:
    """No other pod with volumes waits for the one that is unchanged."""
    for name in ("a", "b"):
        await drain.claim(name)
        await drain.attach(name)
        await drain.stateful(f"db-{name}", name, grace=3600)
    fault(drain, "create pods/eviction", code="Conflict", times=1)
    await drain.waits()
    assert "deletionTimestamp" not in (await drain.kube.get(f"{PODS}/db-a"))["metadata"]
    await drain.waits()
    assert drain.evicted() == ["db-a", "db-a"]
    assert (await drain.kube.get(f"{PODS}/db-a"))["metadata"]["deletionTimestamp"]


# -- without the right to read volumes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("missing", ["* volumeattachments", "get persistentvolumeclaims", "get persistentvolumes"])
async def test_pods_go_although_volumes_are_not_known(drain: Drain, missing: str, keep: bool) -> None:
    await drain.node(volumes=tuple(f"kubernetes.io/csi/{CSI}^vol-{name}" for name in "ab"))  # this may always be read
    for name in ("a", "b"):
        await drain.claim(name)
        await drain.attach(name)
        await drain.stateful(f"db-{name}", name)
    fault(drain, missing, code="Forbidden", message=NO_RIGHT)
    for name in ("a", "b"):
        await drain.waits(keep=keep)
        assert drain.evicted()[-1] == f"db-{name}"
        await drain.stopped(f"db-{name}")
    if "attachments" not in missing and not keep:
        # What is attached is known, and nobody but those pods needs it.
        assert "waiting for volume pv-a and 1 more to detach" in await drain.waits()
        drain.later(130)
        left = ["volume pv-a still attached", "volume pv-b still attached"]
    else:
        left = [f"volumes are not known: {NO_RIGHT}"]
    assert await drain.once(keep=keep) == DrainOutput(pods=2, left=left)


@pytest.mark.parametrize("missing", ["list volumeattachments", "delete volumeattachments"])
async def test_a_machine_is_forgotten_all_the_same(
    drain: Drain, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    await drain.claim("a")
    await drain.attach("a")
    fault(drain, missing, code="Forbidden", message=NO_RIGHT)
    await drain.forget()
    assert (await drain.kube.call("GET", f"{NODES}/{NODE}")).status == 404
    assert f"volumes of node {NODE} not detached: {NO_RIGHT}" in caplog.text
