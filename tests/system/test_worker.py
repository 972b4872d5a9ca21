"""The worker's process: roles, health, metrics, refusals, a graceful end."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from lifekit import Stack, eventually, new_stack
from paths import ROOT
from processes.children import change_settings, free_port, get, worker_process
from temporalio.testing import WorkflowEnvironment

import worker
from activities.base import Activities, methods
from activities.deps import Deps
from resources.machine.state import Phase
from resources.settings import Settings, SettingsError, load_settings

pytestmark = pytest.mark.core


@pytest.fixture
async def bare(temporal: WorkflowEnvironment) -> AsyncIterator[Stack]:
    async with new_stack(temporal.client) as stack:
        yield stack


async def test_health_metrics_and_a_graceful_end(bare: Stack) -> None:
    health, metrics = free_port(), free_port()
    change_settings(bare, health=f"127.0.0.1:{health}", metrics=f"127.0.0.1:{metrics}")
    async with worker_process(bare) as process:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        prefix = bare.settings.queue_prefix
        assert line.startswith("worker ready:")
        assert {q.strip() for q in line.partition(":")[2].split(",")} == {
            prefix,
            f"{prefix}-cluster-demo",
            f"{prefix}-watch-demo",
            f"{prefix}-drain-demo",
            f"{prefix}-cloud-aws",
        }
        assert (await get(health, "/healthz"), await get(health, "/readyz")) == ((200, "ok"), (200, "ok"))
        await bare.create()
        await bare.phase(Phase.RUNNING)
        _, text = await get(metrics, "/metrics")
        for name in (
            "temporal_activity_schedule_to_start_latency_seconds_bucket",
            "temporal_num_pollers",
            "hostler_machine_creation_seconds_bucket",
            'hostler_machine_phases_total{cluster="demo",',
        ):
            assert name in text, name
        await bare.delete()
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0


async def test_a_thread_that_never_comes_back_ends_the_worker(bare: Stack) -> None:
    """The SDK would wait for ever for a thread that never comes back from a task, with one slot less."""
    metrics = free_port()
    change_settings(bare, metrics=f"127.0.0.1:{metrics}")
    async with worker_process(bare, program=("-m", "processes.wont_end")) as process:
        assert process.stdout is not None
        await asyncio.wait_for(process.stdout.readline(), 60)
        prefix = bare.settings.queue_prefix
        stuck = await bare.client.start_workflow("WontEnd", id=f"wont-end/{prefix}", task_queue=prefix)

        async def shown() -> bool:
            _, text = await get(metrics, "/metrics")
            return any(
                line.startswith("hostler_worker_stuck_tasks") and line.endswith(" 1") for line in text.splitlines()
            )

        await eventually(shown, what="the metric")
        _, err = await asyncio.wait_for(process.communicate(), 60)
        await stuck.terminate()
    assert process.returncode == worker.STUCK
    assert f"does not finish the workflow task of run {stuck.first_execution_run_id}: its slot is lost" in err.decode()


async def test_a_taken_port_is_said_plainly(bare: Stack) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        change_settings(bare, health=address)
        async with worker_process(bare) as process:
            _, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert f"error: worker.health: {address} cannot be used" in err.decode()


async def test_temporal_out_of_reach_is_said_plainly(bare: Stack) -> None:
    async with worker_process(bare, address=f"127.0.0.1:{free_port()}") as process:
        _, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert "error: Temporal at 127.0.0.1:" in (said := err.decode())
    assert "cannot be reached (" in said


@pytest.mark.parametrize(
    ("roles", "queues"),
    [
        (["workflows"], [""]),
        (["cloud"], ["-cloud-aws"]),
        (["cluster", "drain"], ["-cluster-demo", "-drain-demo"]),
        (["watch"], ["-watch-demo"]),
    ],
)
async def test_roles_split_the_queues(bare: Stack, roles: list[str], queues: list[str]) -> None:
    """Cloud credentials live only where that cloud's queue is polled."""
    change_settings(bare, roles=roles)
    settings = load_settings(bare.settings_file)
    deps = Deps(settings, bare.client)
    built = worker.build(bare.client, settings, deps)
    assert [w.task_queue for w in built] == [settings.queue_prefix + q for q in queues]


ROLES: dict[str, set[str]] = {
    "workflows": {
        *("tell_users", "tell_held", "await_turn", "report_to_class", "ask_class", "find_users"),
        *("start_machines", "tell_members", "find_members", "find_pools", "register_pool", "forget_pool"),
        *("start_rollout", "tell_machines", "find_uses", "find_left", "find_owners"),
        *("look_at_pool", "await_templates", "work_out_windows"),
        *("start_config_pools", "start_config_rollout", "select_machines", "find_owners_of_machines"),
    },
    "cluster": {
        *("join_node", "tell_node", "remove_ready_taint", "look_at_node", "forget_machine", "remove_stale_node"),
        *("mark_nodes", "preserve_node", "find_control_plane_nodes", "look_at_etcd", "change_etcd"),
        *("sync_configs", "read_config_pool", "read_stray_nodes", "target_config_nodes", "set_update_taints"),
        *("read_tainted_nodes", "write_pool_status"),
    },
    "watch": {"watch_nodes", "watch_configs"},
    "drain": {"drain_node", "drain_for_config", "uncordon_for_config"},
    "cloud": {
        *("create_machine", "find_machine", "update_machine", "watch_machine", "look_at_vm", "delete_machine"),
        *("watch_instances", "list_vms"),
    },
}
"""What runs where. Histories and older workers know these names, and the queue on which each is requested."""


def test_each_activity_runs_where_its_class_says(temporal: WorkflowEnvironment) -> None:
    """A class of activities is in its role's folder, and the worker has all of them."""
    found: dict[str, set[str]] = {}
    for each in worker.ACTIVITIES:
        assert each.__module__.split(".")[1] == {"workflows": "temporal"}.get(each.role, each.role)
        activities = methods(each(Deps(Settings(), temporal.client)))
        found.setdefault(each.role, set()).update(a.__name__ for a in activities)
    assert found == ROLES
    assert set(worker.ACTIVITIES) == set(Activities.__subclasses__())
    written = [f for f in (ROOT / "activities").rglob("*.py") if "(Activities):" in f.read_text()]
    assert len(written) == len(worker.ACTIVITIES)


async def test_roles_that_leave_nothing_are_refused(bare: Stack) -> None:
    content = yaml.safe_load(bare.settings_file.read_text())
    content["clouds"], content["worker"]["roles"] = {}, ["cloud"]
    bare.settings_file.write_text(yaml.safe_dump(content))
    with pytest.raises(SettingsError, match="there is no task queue to serve"):
        async with worker.running(bare.client, load_settings(bare.settings_file)):
            pass


SDKS = {"aws": "boto3", "azure": "azure.mgmt.compute", "gcp": "google.cloud.compute_v1"}


@pytest.mark.parametrize(
    ("roles", "clouds", "sdks"),
    [(["cloud", "cluster"], ["azure", "gcp"], ["azure", "gcp"]), (["cluster"], ["aws", "azure", "gcp"], [])],
)
async def test_what_it_serves_is_imported_before_it_polls(
    bare: Stack, roles: list[str], clouds: list[str], sdks: list[str]
) -> None:
    """An import that comes with the first call lets nothing else heartbeat meanwhile."""
    content = yaml.safe_load(bare.settings_file.read_text())
    content["clouds"], content["worker"]["roles"] = {name: {} for name in clouds}, roles
    bare.settings_file.write_text(yaml.safe_dump(content))
    async with worker_process(bare, program=("-X", "importtime", "-m", "worker")) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        told = asyncio.create_task(process.stderr.read())
        assert (await asyncio.wait_for(process.stdout.readline(), 60)).startswith(b"worker ready:")
        process.kill()
        imported = {line.rpartition("|")[2].strip() for line in (await told).decode().splitlines()}
    assert "workflows.machine" in imported
    assert [name for name, sdk in SDKS.items() if sdk in imported] == sdks


async def test_an_unknown_cluster_is_refused_with_the_known_names(bare: Stack) -> None:
    """The create activity refuses it, for a machine that was started by hand: nothing was made for it."""
    other = Stack(bare.client, bare.simulator, bare.settings, bare.settings_file, cluster="elsewhere")
    async with bare.worker():
        await other.create("m-1")
        state = await eventually(
            lambda: other.state(), lambda s: s.status.waiting_for and s.status.waiting_for.reason == "InvalidSpec"
        )
        assert (
            "cluster 'elsewhere' is not in the settings; the known clusters are: demo"
            in state.status.waiting_for.message
        )
        assert bare.launched() == []
        await other.started["m-1"].terminate("the test is over")


def test_settings_say_file_and_field(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("clusters: {demo: {kubeconfg: x}}\n")
    with pytest.raises(SettingsError, match=r"settings\.yaml: clusters\.demo\.kubeconfg: there is no such field; did"):
        load_settings(file)
    with pytest.raises(SettingsError, match=r"nowhere\.yaml: cannot be read"):
        load_settings(tmp_path / "nowhere.yaml")


def test_a_variable_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "queuePrefix: a\nworker: {stickyTimeout: 2s, health: null}\nclusters: {my-cluster: {fullName: f}}\n"
    )
    monkeypatch.setenv("HOSTLER_QUEUE_PREFIX", "b")
    monkeypatch.setenv("HOSTLER_WORKER__STICKY_TIMEOUT", "3s")
    settings = load_settings(file)
    assert settings.queue_prefix == "b"
    assert settings.worker.sticky_timeout == timedelta(seconds=3)
    assert settings.worker.health is None
    assert settings.clusters["my-cluster"].full_name == "f"


@pytest.mark.parametrize("form", ["json", "human"])
def test_logs_for_machines_and_for_people(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        worker.configure_logging(form)
        try:
            raise ValueError("broken")
        except ValueError:
            logging.getLogger("hostler.test").exception("it is %s", "so")
    finally:
        root.handlers[:], root.level = before[0], before[1]
    err = capsys.readouterr().err
    if form == "json":
        line = json.loads(err)
        assert (line["level"], line["logger"], line["message"]) == ("ERROR", "hostler.test", "it is so")
        assert "ValueError: broken" in line["exception"]
    else:
        assert "ERROR   hostler.test: it is so" in err.splitlines()[0]
