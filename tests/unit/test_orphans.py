"""Which VMs nobody owns, by the server's own records."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.testing import ActivityEnvironment

from activities.temporal.orphans import LATE, OrphanActivities
from resources.orphans import OwnedVm, OwnersInput

VM = OwnedVm(provider_id="aws:///eu-west-1/i-1", machine="m-1", uid="u-1", state="running", account="AWS/eu-west-1")


class Ended:
    """Stands in place of Temporal's client: the machine's workflow came to its end this long ago."""

    def __init__(self, ago: timedelta, uid: str) -> None:
        self.closed, self.uid = datetime.now(UTC) - ago, uid

    def get_workflow_handle(self, id: str, **_: Any) -> Any:
        async def describe() -> Any:
            status = WorkflowExecutionStatus.COMPLETED
            return SimpleNamespace(id=id, run_id="r", status=status, close_time=self.closed)

        async def result(follow_runs: bool) -> Any:
            return SimpleNamespace(uid=self.uid)

        return SimpleNamespace(describe=describe, result=result)


@pytest.mark.parametrize(
    ("ago", "uid", "orphaned"),
    [
        pytest.param(timedelta(seconds=2), "u-1", False, id="the listing may be older than its end"),
        pytest.param(timedelta(seconds=2), "u-0", True, id="of another life"),
        pytest.param(LATE * 2, "u-1", True, id="made after its end"),
    ],
)
async def test_a_vm_whose_machine_came_to_its_end(ago: timedelta, uid: str, orphaned: bool) -> None:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, started_time=datetime.now(UTC))
    activities = OrphanActivities(SimpleNamespace(client=Ended(ago, uid)))  # type: ignore[arg-type]
    output = await environment.run(activities.find_owners, OwnersInput(cluster="demo", vms=[VM]))
    assert [o.vm for o in output.orphans] == [VM] * orphaned
