"""docs/metrics.md, compared with the code and with what a real worker exports."""

from __future__ import annotations

import ast
import asyncio
import functools
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from lifekit import Stack, eventually, examples, new_stack
from metricskit import parse, value
from paths import ROOT
from pools.lives import Pool, pool_spec
from processes.children import change_settings, free_port, get, worker_process
from temporalio.testing import WorkflowEnvironment

import worker
from activities.census.preserved import BLOCKED, RUNNING
from activities.metered import DEFECT, HOT_UPDATE, UNIMPLEMENTED
from resources.errors import ErrorClass
from resources.machine.state import Phase
from resources.machine_class.state import UpdateState
from simulator.frame import FaultRule
from starter.sdk.client import HostlerClient

DOCS = (ROOT / "docs" / "metrics.md").read_text()
ROOMS = ("activities", "drivers", "planners", "resources", "workflows", "worker.py")
STANDARD = {"service_name", "namespace", "task_queue", "workflow_type", "activity_type", "le"}
"""Labels that Temporal's SDK adds."""

SUFFIX = {"create_counter": "_total", "create_histogram_timedelta": "_seconds", "create_gauge": ""}
TYPE = {"create_counter": "counter", "create_histogram_timedelta": "histogram", "create_gauge": "gauge"}


@functools.cache
def read() -> tuple[frozenset[str], dict[str, tuple[str, str]]]:
    """Every string in the code, and the metrics that it makes. To parse all of it takes seconds: it is done once."""
    said: set[str] = set()
    metrics: dict[str, tuple[str, str]] = {}
    for file in files():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                said.add(node.value)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                how = node.func.attr
                if how.startswith(("create_counter", "create_gauge", "create_histogram")):
                    name = ast.literal_eval(node.args[0])  # a name that is put together could not be found here
                    metrics[name] = (name + SUFFIX[how], TYPE[how])
    return frozenset(said), metrics


def strings() -> frozenset[str]:
    """Every string in the code."""
    return read()[0]


def files() -> list[Path]:
    return [f for room in ROOMS for f in (sorted((ROOT / room).rglob("*.py")) or [ROOT / room])]


def made() -> dict[str, tuple[str, str]]:
    """Metrics that the code makes: name in the code to name in Prometheus and type."""
    return read()[1]


OF_CONTROL_PLANES = ("desired", "current", "ready", "updated", "serving")
"""States of machines in hostler_control_plane_machines (tests/unit/test_control_plane_metrics.py)."""


def table() -> dict[str, tuple[str, set[str]]]:
    """Metrics of docs/metrics.md: name to type and labels."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*?) ?\| \w+ \| .+ \|$", DOCS, re.M)
    return {name: (type, {label for label in labels.split(", ") if label}) for name, type, labels in rows}


def test_docs_name_every_metric_of_the_code() -> None:
    assert {name: type for name, (type, _) in table().items()} == dict(made().values())
    prefixed = {s for s in strings() if re.fullmatch(r"hostler_[a-z_]+", s)}
    assert prefixed == set(made()), "a name that looks like a metric's and is none"


def test_every_histogram_has_buckets() -> None:
    """The SDK's own buckets end at 10 s, where a machine's life begins."""
    assert set(worker.BUCKETS) == {name for name, (_, type) in made().items() if type == "histogram"}
    assert all(b == sorted(b) for b in worker.BUCKETS.values())


def names_in(text: str) -> set[str]:
    """Metrics in PromQL, histograms by their own names."""
    return {re.sub(r"_(bucket|sum|count)$", "", n) for n in re.findall(r"\b(?:hostler|temporal)_[a-z_]+", text)}


def queries() -> list[str]:
    rules = yaml.safe_load("".join(re.findall(r"^```yaml\n(.*?)^```", DOCS, re.M | re.S)))
    alerts = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    assert len(alerts) >= 5
    return [*alerts, *re.findall(r"```promql\n(.*?)```", DOCS, re.S)]


def test_queries_of_the_docs_ask_for_what_there_is() -> None:
    known = {
        "phase": {*Phase, *(f"{phase}:Preserved" for phase in Phase), "Parked"},
        "error_class": {"", *ErrorClass, UNIMPLEMENTED, DEFECT},
        "reason": strings(),
        "state": {*UpdateState, RUNNING, BLOCKED, *OF_CONTROL_PLANES},
        "kind": {"used", "max"},
    }
    asked: dict[str, set[str]] = {}
    for query in queries():
        assert {n for n in names_in(query) if n.startswith("hostler_")} <= set(table()), query
        for label, values in re.findall(r'(\w+)!?=~?"([^"]*)"', query):
            asked.setdefault(label, set()).update(values.split("|"))
    for label, allowed in known.items():
        assert asked[label] <= allowed, label


# -- a real worker ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def bare(temporal: WorkflowEnvironment) -> AsyncIterator[Stack]:
    async with new_stack(temporal.client) as stack:
        yield stack


async def a_canary(stack: Stack, counted: Callable[..., Awaitable[float | None]]) -> None:
    """A pool whose rollout stops after the first machine, for a person to look at it, and then ends."""
    pool = Pool(stack, "p")
    await pool.start(pool_spec(2, rolling={"pauseAfter": 1}))
    await pool.rolled_out(2)
    await pool.ask("restart")
    await pool.waits("Canary")
    await eventually(lambda: counted("hostler_pool_waiting", reason="Canary"), lambda n: n == 1, "it waits")
    await eventually(lambda: counted("hostler_pool_rollout_old", revision="2"), lambda n: n == 1, "one is left")
    await pool.ask("resume")
    await pool.rolled_out(2)
    await eventually(lambda: counted("hostler_rollouts_total", outcome="Complete"), lambda n: n == 1, "it is over")


@pytest.mark.system
async def test_a_worker_exports_what_the_docs_say(bare: Stack) -> None:
    """A hard life of a machine, a change of its class, a pool's rollout: every metric of the docs with its labels, and
    no other."""
    port = free_port()
    change_settings(bare, metrics=f"127.0.0.1:{port}", census="200ms")
    frame = bare.simulator.simulator.frame
    full = FaultRule(service="ec2", operation="RunInstances", code="InsufficientInstanceCapacity", times=1)
    bare.simulator.call(lambda: frame.faults.append(full))

    async def counted(name: str = "hostler_machines", **labels: str) -> float | None:
        return value(parse((await get(port, "/metrics"))[1]), name, cluster="demo", **labels)

    hostler, manifest = HostlerClient(bare.client, bare.settings, cluster="demo"), examples().classes[0]
    spec = manifest.provider_spec
    changed = manifest.model_copy(update={"provider_spec": {**spec, "vmTags": {**spec.get("vmTags", {}), "cost": "b"}}})

    async with worker_process(bare) as process:
        await hostler.apply(manifest)
        await bare.create()
        await bare.phase(Phase.RUNNING)
        await eventually(lambda: counted(phase="Running"), lambda n: n == 1, "counted")
        await hostler.apply(changed)
        await hostler.classes.wait(manifest.metadata.name, timeout=timedelta(minutes=2))
        done = {"class": manifest.metadata.name, "state": "Updated"}
        await eventually(lambda: counted("hostler_class_machines", **done), lambda n: n == 1, "its class counts it")
        await bare.delete()
        await eventually(lambda: counted(phase="Running"), lambda n: n == 0, "counted no more")
        alone = parse((await get(port, "/metrics"))[1])
        await a_canary(bare, counted)
        text = (await get(port, "/metrics"))[1]
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
        assert process.stderr is not None
        assert "cannot be counted" not in (await process.stderr.read()).decode()
    seen = parse(text)
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
    labels: dict[str, set[str]] = {name: set() for name in types}
    for sample, having in seen:
        name = sample if sample in types else re.sub(r"_(bucket|sum|count)$", "", sample)
        labels[name] |= {label for label, _ in having} - STANDARD
    exported = {n: (types[n], labels[n]) for n in types if n.startswith("hostler_")}
    absent = ("hostler_control_plane", "hostler_config_")  # there is neither a control plane nor a config pool
    assert exported == {n: of for n, of in table().items() if not n.startswith(absent)}
    assert {n for q in queries() for n in names_in(q) if n.startswith("temporal_")} <= set(types)
    capacity = {"error_class": "capacity", "activity": "create_machine"}
    assert value(alone, "hostler_call_errors_total", **capacity) == 1
    for error_class in ("", "capacity"):
        calls = {"provider": "AWS", "operation": "create_machine", "error_class": error_class}
        assert value(alone, "hostler_driver_calls_total", **calls) == 1
    hot = {"provider": "AWS", "operation": HOT_UPDATE, "error_class": ""}
    assert (value(alone, "hostler_driver_calls_total", **hot) or 0) >= 1
    assert value(alone, "hostler_machine_creation_seconds_bucket", le="3600") == 1
