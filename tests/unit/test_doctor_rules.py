"""The doctor's rules, without a server: what waits for a person, one verdict on each thing, which worker is silent."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.enums.v1 import WorkerStatus
from temporalio.api.worker.v1 import WorkerHeartbeat, WorkerHostInfo, WorkerInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse, ListWorkersResponse
from temporalio.service import RPCError, RPCStatusCode

import worker
from activities.kube.client import Kube
from resources.cluster.accounts import Account
from resources.fleet.state import FleetWait
from resources.machine.manifest import SecretRef
from resources.machine_config.state import MachineConfigPoolState
from resources.queues import Queue
from resources.settings import Settings
from starter.commands import nodes
from starter.commands.doctor import _summary
from starter.commands.selection import Selection
from starter.doctor import clusters, configs, examination, findings, secrets, waiting, workers
from starter.doctor.findings import Finding, Level, by_gravity, ok, problem, verdict, warning
from starter.doctor.waiting import Waiting
from starter.sdk import kube as sdk_kube
from starter.sdk import orphans
from starter.sdk.errors import Unreachable
from starter.sdk.machine_config.results import ConfigPoolShown

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ACCOUNT = Account(provider="AWS", scope="eu-west-1", secret_ref=SecretRef(name="aws"))


def said(*waits: Waiting) -> list[Finding]:
    return waiting.findings(waits, "prod", "waiting in prod", NOW)


# -- what waits for a person ------------------------------------------------------------------------------------------


def test_one_that_waits_has_its_name_since_when_why_what_to_do_and_where_more_is() -> None:
    (found,) = said(Waiting("machine", "m1", "QuotaExceeded", "too much", NOW - 5 * MINUTE))
    assert found.level is Level.PROBLEM
    assert found.message == "QuotaExceeded: machine m1, since 2026-03-01 11:55:00 UTC (5m ago): too much"
    assert found.remedy.startswith("Delete machines that you do not need")
    assert found.remedy.endswith("More: `hostler describe machine m1 --cluster prod`")


def test_many_with_one_reason_are_one_finding_the_oldest_first() -> None:
    (found,) = said(*(Waiting("machine", f"m{n}", "QuotaExceeded", "a\nb", NOW - n * MINUTE) for n in range(22)))
    lines = found.message.splitlines()
    assert (lines[0], lines[1][:4], lines[-1]) == ("QuotaExceeded: 22 machines", "m21,", "and 17 more")
    assert all(line.endswith(": a b") for line in lines[1:6])  # a stranger's newline begins no line of ours
    assert found.remedy.startswith("For m21, the first; each of the others needs the same: Delete machines")
    assert "describe machine m21 " in found.remedy
    assert found.remedy.endswith("All: `hostler get machines --cluster prod -o wide`, with REASON QuotaExceeded")
    (blocked,) = said(*(Waiting("machine", f"m{n}", "DrainBlocked", "PDB web", NOW) for n in range(2)))
    assert blocked.remedy.endswith("with REASON Draining")  # as lists show it


@pytest.mark.parametrize(
    ("wait", "level"),
    [
        (Waiting("machine", "m1", "PreDrainHook", since=NOW), Level.WARNING),  # meant so; and yet somebody has to act
        (Waiting("machine", "m1", "ReasonOfTheFuture", since=NOW), Level.PROBLEM),
        (Waiting("machine", "m1", "NodeNotReady", since=NOW), Level.PROBLEM),
        (Waiting("machine", "m1", "NodeNotReady", since=NOW, joining=True), Level.WAITS),  # it boots
        (Waiting("machine", "m1", "NodeNotReady", since=NOW - 20 * MINUTE, joining=True), Level.WARNING),
        (Waiting("pool", "p1", "Canary", since=NOW), Level.WARNING),
        (Waiting("pool", "p1", "ClusterPaused", since=NOW), Level.PROBLEM),
        (Waiting("class", "c1", "UpdateFailed"), Level.PROBLEM),
        (Waiting("machine", "m1", "HealthTimeout", since=NOW), Level.PROBLEM),
        (Waiting("machine", "m1", "HealthTimeout", since=NOW, owner="p1"), Level.WAITS),  # its pool replaces it
        (Waiting("machine", "m1", "HealthTimeout", since=NOW - 16 * MINUTE, owner="p1"), Level.WARNING),  # and does not
        (Waiting("machine", "m1", "CreationTimeout", owner="p1", failed=True), Level.WAITS),
        (Waiting("machine", "m1", "CreationTimeout", owner="p1", failed=True, held="RepairBudget"), Level.WAITS),
        (
            Waiting("machine", "m1", "CreationTimeout", owner="p1", failed=True, held="NewMachinesNeverJoin"),
            Level.PROBLEM,
        ),
        (Waiting("machine", "m1", "OutOfCapacity", since=NOW - 14 * MINUTE), Level.WAITS),
        (Waiting("machine", "m1", "OutOfCapacity", since=NOW - 16 * MINUTE), Level.WARNING),
        (Waiting("machine", "m1", "Draining"), Level.WAITS),  # nobody knows since when
        (Waiting("machine", "m1", "DrainBlocked", since=NOW), Level.WARNING),  # a budget may allow nothing for ever
        (Waiting("machine", "m1", "InternalError", since=NOW), None),  # told under `workflows`
        (Waiting("pool", "p1", "Unreachable", since=NOW), None),  # told under the cluster, or the cloud
    ],
)
def test_who_has_to_act(wait: Waiting, level: Level | None) -> None:
    assert [f.level for f in said(wait)] == ([] if level is None else [level])


async def test_config_pools_are_looked_at_too() -> None:
    """Each is judged by what it says; one that does not answer, by what lists show of it."""
    wait = FleetWait(reason="ConfigNodesDegraded", message="1 node: disk full", since=NOW)
    pools = [
        ConfigPoolShown("infra", "Paused", "ConfigPoolPaused", None),
        ConfigPoolShown("master", "Updated", "", None),
        ConfigPoolShown("worker", "Degraded", wait.reason, MachineConfigPoolState(name="worker", waits=[wait])),
    ]

    async def states(**_: Any) -> list[ConfigPoolShown]:
        return pools

    client: Any = SimpleNamespace(config_pools=SimpleNamespace(states=states))
    degraded, paused = said(*await waiting._config_pools(client, "prod"))
    assert degraded.level is Level.PROBLEM
    assert degraded.message.startswith("ConfigNodesDegraded: mcp worker, since ")
    assert degraded.remedy.endswith("More: `hostler describe mcp worker --cluster prod`")
    assert paused.level is Level.WARNING
    assert "`hostler rollout resume mcp/infra --cluster prod`" in paused.remedy


def test_what_waits_by_itself_is_counted_and_stands_in_the_verdict() -> None:
    waits = [Waiting("machine", name, "OutOfCapacity", since=NOW) for name in ("m1", "m2")]
    waits += [Waiting("pool", "p1", reason, since=NOW) for reason in ("OutOfCapacity", "SlowStart")]
    found = said(*waits)
    assert [f.message for f in found] == ["2 machines and 1 pool wait, on their own: OutOfCapacity, SlowStart"]
    assert _summary(found) == "All is well; 2 machines and 1 pool wait, on their own."
    assert _summary([problem("c", "x"), *said(waits[0])]) == "1 problem; 1 machine waits, on its own."
    assert _summary([ok("c", "x")]) == "All is well."


def test_a_rollout_is_shown_by_its_status() -> None:
    (found,) = said(Waiting("pool", "p1", "Canary", since=NOW))
    assert found.remedy.endswith("More: `hostler rollout status p1 --cluster prod`")


# -- one verdict ------------------------------------------------------------------------------------------------------


def test_the_worst_evidence_wins_and_what_is_better_explains_it() -> None:
    (found,) = verdict([ok("c", "answers"), problem("c", "the worker cannot reach it", "do")])
    assert found == problem("c", "the worker cannot reach it\nalthough answers", "do")
    assert verdict([ok("c", "a"), ok("c", "b")]) == [ok("c", "a"), ok("c", "b")]
    assert verdict([problem("c", "a", "x"), problem("c", "b", "x")]) == [problem("c", "a\nb", "x")]


def test_what_is_wrong_comes_first_and_a_subject_stays_together() -> None:
    found = [ok("a", "1"), ok("b", "2"), problem("b", "3"), warning("c", "4"), ok("c", "5"), problem("d", "6")]
    assert [f.message for f in by_gravity(found)] == ["3", "2", "6", "4", "5", "1"]


# -- one cause, one problem -------------------------------------------------------------------------------------------


async def test_an_api_that_is_down_is_told_under_its_cluster_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def down(*_: object) -> list[Finding]:
        raise Unreachable("its API does not answer")

    monkeypatch.setattr(secrets, "_source", down)
    settings = Settings(default_cluster="prod")
    (found,) = await secrets.examine(settings, [], ["prod"])
    assert (found.level, "while the API of cluster prod does not answer" in found.message) == (Level.WARNING, True)
    with pytest.raises(Unreachable):  # nobody else tells it
        await secrets.examine(settings, [], ["another"])


async def test_an_api_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the doctor nor `get nodes` waits."""
    monkeypatch.setattr(sdk_kube, "PATIENCE", 0.01)
    kube: Any = SimpleNamespace(name="prod", server="https://prod", get=lambda *_, **__: asyncio.sleep(60))
    assert await sdk_kube.soon(kube, asyncio.sleep(0, "answer")) == "answer"
    for names in ((), ("n-1",)):
        with pytest.raises(Unreachable, match=r"its API at https://prod does not answer: nothing came within 0\.01 s"):
            await nodes._read({"prod": kube}, Selection(names), [])


async def test_a_check_that_does_not_end_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "DEADLINE", 0.01)
    (found,) = await findings.attempt("etcd of prod", lambda: asyncio.sleep(60, []))
    assert (found.subject, found.level) == ("etcd of prod", Level.PROBLEM)
    assert "did not come within 0.01 s" in found.message


async def test_what_may_hang_is_asked_side_by_side_and_an_api_that_hangs_is_told_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each question here is answered only when all have been asked."""
    file = tmp_path / "settings.yaml"
    clouds = "clouds: {aws: {endpoint: 'http://127.0.0.1:1'}, gcp: {endpoint: 'http://127.0.0.1:1'}}"
    file.write_text(f"defaultCluster: prod\nclusters: {{prod: {{machineConfigs: {{enabled: true}}}}}}\n{clouds}\n")
    monkeypatch.setattr(findings, "DEADLINE", 5)
    asked = asyncio.Barrier(6)  # two clouds, the API, Secrets in it, and the two questions about machine configs

    @asynccontextmanager
    async def hangs(*_: object) -> AsyncIterator[Kube]:
        await asked.wait()
        raise Unreachable("cluster prod: its API does not answer")
        yield

    class Session:
        async def __aenter__(self) -> None:
            await asked.wait()
            raise TimeoutError

        async def __aexit__(self, *_: object) -> None: ...

    async def nobody(*_: object) -> tuple[None, list[Finding]]:
        return None, []

    for module in (clusters, configs, secrets):
        monkeypatch.setattr(module, "connect_cluster", hangs)
    monkeypatch.setattr(configs, "config_objects", hangs)
    monkeypatch.setattr(examination, "_temporal", nobody)
    monkeypatch.setattr(examination.aiohttp, "ClientSession", lambda **_: Session())
    found = [f for f in await examination.examine(file) if f.level is not Level.OK]
    assert {f.subject: f.level for f in found} == {
        **dict.fromkeys(("cloud aws", "cloud gcp", "cluster prod"), Level.PROBLEM),
        **dict.fromkeys(("machine configs of prod", "secrets"), Level.WARNING),  # of which the API is the cause
    }
    assert len(found) == 5


async def test_a_search_for_orphans_does_not_hold_up_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    async def terminate(reason: str) -> None:
        ended.append(reason)

    async def polled(*_: object) -> tuple[datetime, str]:
        return datetime.now(UTC), "1@a"

    handle = SimpleNamespace(result=lambda: asyncio.sleep(60), terminate=terminate, id="orphans/prod/1")
    connection: Any = SimpleNamespace(
        settings=Settings(), queue="hostler", temporal=SimpleNamespace(start_workflow=lambda *_, **__: started())
    )

    async def started() -> Any:
        return handle

    monkeypatch.setattr(clusters, "SWEEP_PATIENCE", 0.01)
    monkeypatch.setattr(orphans.live, "last_poll", polled)
    shelf: Any = SimpleNamespace(connection=connection)
    (found,) = await clusters._installations(shelf, "prod", [ACCOUNT], "cluster prod")
    assert found.level is Level.WARNING
    assert "cannot be searched: not done within 0.01 s" in found.message
    assert len(ended) == 1


@pytest.mark.parametrize(("served", "level"), [(False, Level.WARNING), (True, Level.PROBLEM)])
async def test_a_watch_without_a_worker_is_no_second_problem(served: bool, level: Level) -> None:
    async def describe(_: str) -> Any:
        return SimpleNamespace(state=None, summary=SimpleNamespace(machines=0), no_answer="nobody polls q")

    shelf: Any = SimpleNamespace(describe=describe)
    (found,) = await clusters._watch(shelf, "prod", "cluster prod", clusters.ApiSeen(), served)
    assert (found.level, found.message) == (level, "its watch does not answer: nobody polls q")


# -- workers ----------------------------------------------------------------------------------------------------------


class Server:
    """Answers as Temporal does: heartbeats, and task queues that look polled."""

    def __init__(self, *answers: list[WorkerHeartbeat] | None) -> None:
        self.namespace = "default"
        self.workflow_service = SimpleNamespace(list_workers=self._list, describe_task_queue=self._describe)
        self.answers = list(answers)
        self.build = self.current = ""

    async def _list(self, request: Any) -> ListWorkersResponse:
        beats = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if beats is None:
            raise RPCError("unknown method", RPCStatusCode.UNIMPLEMENTED, b"")
        return ListWorkersResponse(workers_info=[WorkerInfo(worker_heartbeat=b) for b in beats])

    async def _describe(self, request: Any) -> DescribeTaskQueueResponse:
        answer = DescribeTaskQueueResponse()
        for beat in next(a for a in self.answers if a is not None) if any(self.answers) else []:
            if beat.task_queue == request.task_queue.name:
                answer.pollers.add(identity=beat.worker_identity).last_access_time.FromDatetime(datetime.now(UTC))
        if not any(self.answers):
            answer.pollers.add(identity="1@old").last_access_time.FromDatetime(datetime.now(UTC))
        for poller in answer.pollers:
            poller.deployment_options.build_id = self.build
        answer.versioning_info.current_deployment_version.build_id = self.current
        answer.stats.approximate_backlog_count = 2
        answer.stats.approximate_backlog_age.FromTimedelta(timedelta(seconds=7))
        return answer


def beat(
    identity: str,
    queue: str,
    ago: float,
    pid: str = "1",
    host: str = "elsewhere",
    left: bool = False,
    every: float = 5,
) -> Any:
    status = WorkerStatus.WORKER_STATUS_SHUTDOWN if left else WorkerStatus.WORKER_STATUS_RUNNING
    made = WorkerHeartbeat(worker_identity=identity, task_queue=queue, status=status)
    made.host_info.CopyFrom(WorkerHostInfo(host_name=host, process_id=pid))
    made.heartbeat_time.FromDatetime(datetime.now(UTC) - timedelta(seconds=ago))
    made.elapsed_since_last_heartbeat.FromTimedelta(timedelta(seconds=every))
    return made


async def examined(*answers: list[WorkerHeartbeat] | None) -> dict[str, Finding]:
    queues = [Queue(name, role) for name, role in (("q", "workflows"), ("q-watch", "watch"))]  # type: ignore[arg-type]
    found = await workers.examine(Server(*answers), queues)  # type: ignore[arg-type]
    return {f.subject: f for f in found.found}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LONGEST_LOOK", timedelta(0))


async def test_a_silent_worker_is_named_with_all_its_queues() -> None:
    dead = [beat("1@a", "q", 13), beat("1@a", "q-watch", 13)]
    found = await examined(dead)
    assert list(found) == ["worker 1@a"]  # the queues stand under it, and nowhere as "ok"
    head, *queues = found["worker 1@a"].message.splitlines()
    assert head.startswith("silent for 13s, where a heartbeat is due every 5s: it is frozen, dead, or without")
    assert queues == ["q: 2 tasks waiting, the oldest for 7s", "q-watch: 2 tasks waiting, the oldest for 7s"]


async def test_one_whose_next_heartbeat_comes_has_only_another_clock() -> None:
    found = await examined([beat("1@a", "q", 40), beat("1@a", "q-watch", 40)], [beat("1@a", "q", 35)])
    assert not any(f.subject.startswith("worker") for f in found.values())
    assert found["queue q"].level is Level.OK


async def test_beside_another_worker_it_is_a_warning_and_not_counted() -> None:
    both = [beat(i, q, ago) for q in ("q", "q-watch") for i, ago in (("1@a", 30.0), ("2@b", 1.0))]
    found = await examined(both)
    assert found["worker 1@a"].level is Level.WARNING
    assert found["queue q"].message.startswith("polled by 1 worker, last 0s ago by 2@b")
    long_ago = [beat(i, q, ago) for q in ("q", "q-watch") for i, ago in (("1@a", 400.0), ("2@b", 1.0))]
    assert set(await examined(long_ago)) == {"queue q", "queue q-watch"}


async def test_one_that_falls_silent_after_its_first_heartbeat_is_named_as_soon() -> None:
    assert workers.DUE == worker.HEARTBEAT
    found = await examined([beat("1@a", q, 13, every=0) for q in ("q", "q-watch")])
    assert list(found) == ["worker 1@a"]
    assert "queue q" in await examined([beat("1@a", q, 11, every=0) for q in ("q", "q-watch")])


async def test_of_silent_workers_one_that_another_had_replaced_is_a_warning_and_soon_left_out() -> None:
    async def look(former: float) -> dict[str, Level]:
        beats = [beat(i, q, ago) for q in ("q", "q-watch") for i, ago in (("1@a", former), ("2@b", 20.0))]
        return {subject: found.level for subject, found in (await examined(beats)).items()}

    assert await look(400) == {"worker 2@b": Level.PROBLEM}
    assert await look(60) == {"worker 2@b": Level.PROBLEM, "worker 1@a": Level.WARNING}
    assert await look(30) == {"worker 1@a": Level.PROBLEM, "worker 2@b": Level.PROBLEM}  # neither replaced the other


async def test_one_that_has_left_is_neither_silent_nor_there() -> None:
    found = await examined([beat("1@a", q, 30, left=True) for q in ("q", "q-watch")])
    assert set(found) == {"queue q", "queue q-watch"}
    assert found["queue q"].message.startswith("nobody polls it any more: 1@a is silent, or gone; 2 tasks waiting")


@pytest.mark.parametrize(
    ("build", "current", "says"),
    [
        ("a", "a", "polled by 1 worker of build a, last "),
        ("a", "", "polled only by build a, and none is current; 2 tasks waiting, the oldest for "),
        ("a", "b", "polled only by build a, and b is current; "),
        ("", "b", "polled only by workers without a build, and b is current; "),
    ],
)
async def test_a_build_that_is_not_current_gets_nothing_new_to_do(build: str, current: str, says: str) -> None:
    server = Server(None)
    server.build, server.current = build, current
    (found,) = (await workers.examine(server, [Queue("q", "workflows")])).found  # type: ignore[arg-type]
    assert found.message.startswith(says)
    assert found.level is (Level.OK if build == current else Level.PROBLEM)


async def test_a_server_that_knows_no_heartbeats_still_knows_the_polls() -> None:
    found = await examined(None)
    assert found["queue q"].message.startswith("polled by 1 worker, last 0s ago by 1@old")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield started
    started.kill()
    started.wait()


async def test_on_this_machine_it_is_seen_whether_it_is_frozen_or_dead(process: subprocess.Popen[bytes]) -> None:
    def beats() -> list[WorkerHeartbeat]:
        return [beat("1@a", q, 13, str(process.pid), socket.gethostname()) for q in ("q", "q-watch")]

    assert "is there, and hangs" in (await examined(beats()))["worker 1@a"].message
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)  # noqa: ASYNC222 - it stops at once, and there is no loop to hold up
    if workers._state(process.pid) == "T":  # where the system shows it
        frozen = (await examined(beats()))["worker 1@a"]
        assert "is stopped (SIGSTOP, a debugger). Nobody else polls" in frozen.message
        assert f"kill -CONT {process.pid}" in frozen.remedy
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert "its process is gone" in (await examined(beats()))["worker 1@a"].message
