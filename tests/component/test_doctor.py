"""`hostler doctor`: a place where all is well, and each thing that may be wrong, made wrong."""

from __future__ import annotations

import asyncio
import json
import os
import re
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from lifekit import Stack, eventually, examples, hostler, new_stack
from paths import ROOT
from pools.behind_cli import pool_yaml
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.testing import WorkflowEnvironment

import worker
from resources.cluster.accounts import Account
from resources.cluster.state import ClusterState
from resources.machine.manifest import SecretRef
from resources.machine.state import ClassSnapshot, MachineState, Phase
from resources.machine_class.state import ClassState
from resources.names import class_id, cloud_queue, cluster_id, drain_queue, machine_id, pool_id, rollout_id
from resources.pool.manifest import MachineDeployment
from resources.pool.rollout import RolloutState
from resources.pool.state import PoolState
from resources.queues import queues
from resources.settings import load_settings
from starter.doctor import secrets as doctor_secrets
from starter.doctor import workers as doctor_workers
from starter.doctor.examination import examine
from starter.doctor.findings import Finding, Level, clock
from workflows.cluster import ClusterWorkflow
from workflows.machine import MachineWorkflow
from workflows.machine_class import MachineClassWorkflow
from workflows.pool import MachineDeploymentWorkflow
from workflows.pool.rollout import RolloutWorkflow

EXAMPLES = ROOT / "examples" / "aws"
TOKEN = "abcdef.0123456789abcdef"
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest_asyncio.fixture
async def idle(temporal: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stack]:
    """A stack without workers, which the command line of this process finds."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal.client.service_client.config.target_host)
    async with new_stack(temporal.client) as stack:
        yield stack


def change(stack: Stack, **sections: Any) -> None:
    """Settings of a person who made a mistake in them."""
    content = yaml.safe_load(stack.settings_file.read_text())
    stack.settings_file.write_text(yaml.safe_dump(content | sections))


def bad(found: list[Finding]) -> dict[str, str]:
    """What is not well: subject and everything that is said of it."""
    words: dict[str, str] = {}
    for f in found:
        if f.level is not Level.OK:
            words[f.subject] = f"{words.get(f.subject, '')}{f.message} → {f.remedy}\n"
    return words


async def seen(stack: Stack, subject: str, words: str) -> list[Finding]:
    """Waits until the doctor says it: lists and queues are a moment behind."""

    async def look() -> list[Finding]:
        return await examine(stack.settings_file)

    return await eventually(look, lambda found: words in bad(found).get(subject, ""), f"{subject}: {words}")


async def test_all_is_well(idle: Stack) -> None:
    async with idle.worker():
        await idle.create()
        await idle.phase(Phase.RUNNING)

        async def look() -> list[Finding]:
            return await examine(idle.settings_file)

        found = await eventually(look, lambda found: not bad(found), "a clean bill of health")
        said = {f"{f.subject}: {f.message}" for f in found}
        for words in (
            "temporal: server ",
            "temporal: Hostler's search attributes are registered",
            f"queue {idle.settings.queue_prefix}: polled by 1 worker, last ",
            f"queue {drain_queue('demo', idle.settings.queue_prefix)}: polled by 1 worker",
            "cluster demo: its API at https://127.0.0.1:",
            "cluster demo: the account of these settings may do all that a worker does in a cluster (",
            "cluster demo: watched, with 1 machine; the API has answered it since ",
            "secrets: the account of these settings may read Secrets of cluster demo in namespace default",
            "waiting in demo: nothing waits for a person",
            "cloud aws: http://127.0.0.1:",
            "versions: hostler ",
        ):
            assert any(line.startswith(words) for line in said), (words, said)
        assert sum("clock" in line for line in said) == 2

        shown = await hostler(idle, "doctor")
        assert shown.endswith("\nAll is well.\n")
        answer = json.loads(await hostler(idle, "doctor", "-o", "json"))
        assert (answer["problems"], answer["warnings"]) == (0, 0)
        assert answer["findings"][0] == {
            "subject": "settings",
            "level": "ok",
            "message": str(idle.settings_file),
            "remedy": "",
        }
    await idle.started["m-1"].terminate()


async def test_nobody_polls(idle: Stack) -> None:
    found = bad(await examine(idle.settings_file))
    prefix = idle.settings.queue_prefix
    every = {f"queue {q.name}": q.role for q in queues(idle.settings, ["demo"])}
    assert set(found) == set(every)
    assert sorted(set(every.values())) == ["cloud", "cluster", "drain", "watch", "workflows"]
    for subject, role in every.items():
        assert found[subject].startswith("nobody polls it (no worker was seen in the last 5 minutes); nothing waiting")
        assert found[subject].endswith(f"hostler worker --role {role}\n")
    await idle.create()
    await seen(idle, f"queue {prefix}", "in the last 5 minutes); 1 task waiting")
    shown = await hostler(idle, "doctor", "--cluster", "demo", expect=1)
    assert "5 problems.\n" in shown
    assert "           → run a worker: hostler worker --role drain\n" in shown


async def test_a_worker_that_left_and_one_that_is_slow(idle: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = f"queue {idle.settings.queue_prefix}"
    async with idle.worker():

        async def look() -> list[Finding]:
            return await examine(idle.settings_file)

        await eventually(look, lambda found: queue not in bad(found), "a worker")
    # The server names the pollers of the last 5 minutes; the doctor decides how long ago is too long.
    monkeypatch.setattr(doctor_workers, "RECENTLY", timedelta(0))
    gone = bad(await examine(idle.settings_file))[queue]
    assert re.match(r"nobody polls it: .* was seen last, \d+s ago; nothing waiting", gone)
    assert gone.endswith("hostler worker --role workflows\n")

    async def older(*of: object) -> dict[str, Any]:
        return {}  # a server that knows no heartbeats

    monkeypatch.setattr(doctor_workers, "heard", older)
    monkeypatch.setattr(doctor_workers, "RECENTLY", timedelta(minutes=5))
    monkeypatch.setattr(doctor_workers, "BACKLOG_AGE", timedelta(0))
    await idle.create()
    found = await seen(idle, queue, "1 task waiting, the oldest for ")
    assert [f.level for f in found if f.subject == queue] == [Level.WARNING]


async def test_workflows_that_stand_still(idle: Stack) -> None:
    """They are parked by an error of our own, or their code fails."""
    prefix = idle.settings.queue_prefix
    loaded = examples("parked")
    machine = MachineState(
        name="parked",
        cluster="demo",
        uid="u-1",
        created=datetime.now(UTC),
        spec=loaded.machines[0].spec,
        machine_class=ClassSnapshot.of(loaded.classes[0]),
        queue_prefix=prefix,
        parked="ValueError: ours",
    )
    async with idle.worker():
        idle.started["parked"] = await idle.client.start_workflow(
            MachineWorkflow.run, machine, id=machine_id("demo", "parked"), task_queue=prefix
        )
        cluster = await idle.client.start_workflow(
            ClusterWorkflow.run,
            ClusterState(name="demo", queue_prefix=prefix, parked="KeyError: ours"),
            id=cluster_id("demo"),
            task_queue=prefix,
        )
        parked_class = await idle.client.start_workflow(
            MachineClassWorkflow.run,
            ClassState(
                name="c1",
                cluster="demo",
                machine_class=ClassSnapshot.of(loaded.classes[0]),
                queue_prefix=prefix,
                parked="TypeError: ours",
            ),
            id=class_id("demo", "c1"),
            task_queue=prefix,
        )
        of_pool = MachineDeployment.model_validate(pool_yaml()).spec
        parked_pool = await idle.client.start_workflow(
            MachineDeploymentWorkflow.run,
            PoolState(name="p1", cluster="demo", spec=of_pool, queue_prefix=prefix, parked="IndexError: ours"),
            id=pool_id("demo", "p1"),
            task_queue=prefix,
        )
        parked_story = await idle.client.start_workflow(
            RolloutWorkflow.run,
            RolloutState(pool="p1", cluster="demo", revision=2, queue_prefix=prefix, parked="IndexError: ours"),
            id=rollout_id("demo", "p1", 2),
            task_queue=prefix,
        )
        found = await seen(
            idle,
            "workflows",
            "5 are parked after an error in Hostler itself: cluster/demo, machine/demo/parked, machineclass/demo/c1, "
            "machinedeployment/demo/p1, rollout/demo/p1/2",
        )
        for handle in (parked_class, parked_pool, parked_story):
            await handle.terminate()
        assert "hostler renew machine|pool|class|cluster NAME. A rollout/…" in bad(found)["workflows"]
        assert "its watch is parked: KeyError: ours" in bad(found)["cluster demo"]
        await cluster.terminate()
        await idle.started["parked"].terminate()

        idle.started["broken"] = await idle.client.start_workflow(
            "NobodyKnowsThis", id=f"broken-{prefix}", task_queue=prefix, task_timeout=timedelta(seconds=1)
        )
        found = await seen(idle, "workflows", f"the workflow tasks of 1 keep failing: broken-{prefix}")
        assert not any("are parked" in words for words in bad(found).values())


async def test_what_waits_for_a_person_and_what_is_missing(idle: Stack) -> None:
    """The Secret of a class, a machine that waits for it, and a VM whose workflow somebody has ended."""
    manifests = yaml.safe_dump_all(
        [
            *yaml.safe_load_all((EXAMPLES / "class.yaml").read_text()),
            {**yaml.safe_load((EXAMPLES / "machine.yaml").read_text()), "metadata": {"name": "m-1"}},
        ]
    ).replace("name: demo-aws", "name: nowhere")
    async with idle.worker():
        warned = await hostler(idle, "apply", "-f", "-", stdin=manifests, errors=True)
        what = "Secret default/nowhere does not exist in cluster demo"
        assert f"warning: machineclass demo-m5-large: {what}: its machines wait for it (CredentialsMissing)" in warned
        handle = idle.client.get_workflow_handle(machine_id("demo", "m-1"))

        async def shown() -> str:
            return await hostler(idle, "doctor", expect=1)

        block = f"  problem  {what}; demo-m5-large names it\n           for it wait 1 machine\n           machine m-1, "
        page = await eventually(shown, lambda page: block in page, "its block: while it tries, it waits on its own")
        assert "  ok       nothing else waits for a person" in page, "one problem, told once"
        await handle.terminate()
        await idle.create("m-2")
        await idle.phase(Phase.RUNNING, "m-2")
        await idle.started["m-2"].terminate()
        found = await seen(idle, "cluster demo", "1 VM that no running workflow owns")
        assert "machine m-2, whose workflow ended at 20" in bad(found)["cluster demo"]
        assert "hostler adopt machine m-2 --cluster demo" in bad(found)["cluster demo"]


async def test_a_secret_of_a_directory_and_one_that_nobody_here_sees(idle: Stack) -> None:
    machine_class = ClassSnapshot.of(examples("m").classes[0])
    where = idle.settings_file.parent / "secrets" / machine_class.secret_ref.namespace / machine_class.secret_ref.name

    async def look(source: str) -> list[str]:
        change(idle, secrets={"source": source, "directory": "secrets"})
        found = await doctor_secrets.examine(load_settings(idle.settings_file), [machine_class])
        return [f"{f.level}: {f.message}" for f in found]

    (idle.settings_file.parent / "secrets").mkdir()
    assert "does not exist in directory" in (await look("directory"))[1]
    where.mkdir(parents=True)
    (where / "other").write_text("x")
    assert "has no key 'userData'" in (await look("directory"))[1]
    (where / "userData").write_text("x")
    assert (await look("directory"))[1].startswith("ok: all that classes name are there: Secret default/")
    said = (await look("environment"))[1]
    assert said.startswith("warning: could not look whether the Secrets that classes name are there: ")


async def test_the_watch_tells_of_what_it_cannot_reach(idle: Stack) -> None:
    account = Account(provider="AWS", scope="eu-west-1", secret_ref=SecretRef(name="nowhere"))
    async with idle.worker():
        state = ClusterState(
            name="demo",
            queue_prefix=idle.settings.queue_prefix,
            looked=True,
            classes={"c": [account.key]},
            accounts={account.key: account},
        )
        handle = await idle.client.start_workflow(
            ClusterWorkflow.run, state, id=cluster_id("demo"), task_queue=idle.settings.queue_prefix
        )
        found = await seen(idle, "cloud aws", f"the watch of cluster demo cannot list account {account.key} since ")
        # One verdict: that the endpoint answers is part of the cause, and not "ok" beside it.
        (said,) = [f for f in found if f.subject == "cloud aws"]
        assert "Secret default/nowhere does not exist" in said.message
        assert "\nalthough http://127.0.0.1:" in said.message
        await handle.terminate()


# -- settings, secrets, clouds ----------------------------------------------------------------------------------------


async def test_settings_that_are_wrong(idle: Stack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    change(idle, nonsense=1)
    found = bad(await examine(idle.settings_file))
    assert list(found) == ["settings"]
    assert "nonsense" in found["settings"]
    assert "nonsense" in await hostler(idle, "doctor", expect=1)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in [v for v in os.environ if v.startswith("HOSTLER_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOSTLER_QUEUE_PREFIX", f"q{uuid.uuid4().hex[:8]}")
    without = [f for f in await examine() if f.subject == "settings"]
    assert [f.level for f in without] == [Level.WARNING] * 3
    assert "no file (looked at $HOSTLER_SETTINGS, .hostler/settings.yaml" in without[0].message
    assert without[0].message.endswith("defaults, and HOSTLER_QUEUE_PREFIX")
    assert [f.message.partition(":")[0] for f in without[1:]] == ["no clusters", "no clouds"]


async def test_clouds_and_secrets_that_are_wrong(idle: Stack) -> None:
    closed = "http://127.0.0.1:1"
    change(
        idle,
        clouds={"aws": {"endpoint": closed, "defaultSecret": {"accessKey": "keys/access"}}, "gcp": {}},
        secrets={"source": "directory", "directory": "nowhere"},
        defaultCluster="elsewhere",
    )
    found = await examine(idle.settings_file)
    messages = [f.message for f in found if f.subject == "cloud aws"]
    assert messages[0] == "files of defaultSecret are missing: accessKey: keys/access"
    assert messages[1].startswith(f"{closed} cannot be reached from here")
    assert "which only the workers of its queue ask" in next(f.message for f in found if f.subject == "cloud gcp")
    assert "there is no such directory on this machine" in bad(found)["secrets"]
    assert "the default cluster 'elsewhere' is not one of demo" in bad(found)["settings"]

    folder = idle.settings_file.parent / "nowhere"
    folder.mkdir()
    assert "secrets" not in bad(await examine(idle.settings_file))
    change(idle, secrets={"source": "kubernetes", "cluster": "typo"})
    assert "typo" in bad(await examine(idle.settings_file))["secrets"]


# -- clusters ---------------------------------------------------------------------------------------------------------


async def test_rights_that_are_missing(idle: Stack) -> None:
    identity, secret = TOKEN.split(".")
    data = {"token-id": identity, "token-secret": secret, "usage-bootstrap-authentication": "true"}
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": f"bootstrap-token-{identity}", "namespace": "kube-system"},
        "stringData": data,
    }
    file = idle.settings_file.parent / "token.yaml"
    file.write_text(yaml.safe_dump(manifest))
    await asyncio.to_thread(idle.kubectl, "create", "-f", str(file))
    config = yaml.safe_load(idle.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": TOKEN}
    idle.kubeconfig.write_text(yaml.safe_dump(config))
    found = await examine(idle.settings_file)
    for role, cannot in {
        "cluster": "remove the Node of a VM that is gone: it may not delete nodes",
        "watch": "follow Nodes: it may not get nodes, list nodes, watch nodes",
        "drain": "evict pods: it may not create pods/eviction",
        "cloud": "make bootstrap tokens: it may not get secrets in kube-system, create secrets in kube-system",
    }.items():
        (lacking,) = [f for f in found if f.remedy.startswith(f"bind the role hostler-{role} of deploy/rbac to it")]
        first, *lines = lacking.message.splitlines()
        assert (lacking.subject, lacking.level) == ("cluster demo", Level.PROBLEM)
        assert first == f"with the account of these settings, a worker with the role {role} cannot"
        assert cannot in lines
    secrets = "read credentials and user data: it may not get secrets in default → bind the role hostler-secrets"
    assert secrets in bad(found)["secrets"]
    change(idle, worker={"roles": ["drain"]})
    of_drain = await examine(idle.settings_file)
    assert [f.remedy.split()[3] for f in of_drain if f.remedy.startswith("bind ")] == ["hostler-drain"]
    assert "secrets" not in bad(of_drain)

    config["users"][0]["user"] = {"token": "nobody"}
    idle.kubeconfig.write_text(yaml.safe_dump(config))
    assert "401" in bad(await examine(idle.settings_file))["cluster demo"]
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    idle.kubeconfig.write_text(yaml.safe_dump(config))
    assert "does not answer" in bad(await examine(idle.settings_file))["cluster demo"]
    change(idle, worker={"roles": ["workflows"]})  # it has no kubeconfig at all, and needs none
    assert "cluster demo" not in bad(await examine(idle.settings_file))
    (stranger,) = await examine(idle.settings_file, "dem")
    assert stranger.message.startswith("cluster 'dem' is not known; the known clusters are demo")
    assert stranger.message.endswith("; did you mean demo?")


# -- Temporal ---------------------------------------------------------------------------------------------------------


async def test_temporal_that_is_not_ready(idle: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "nowhere")
    assert "namespace 'nowhere' does not exist" in bad(await examine(idle.settings_file))["temporal"]

    bare = f"bare-{uuid.uuid4().hex[:8]}"
    request = RegisterNamespaceRequest(namespace=bare)
    request.workflow_execution_retention_period.FromTimedelta(timedelta(days=1))
    await idle.client.workflow_service.register_namespace(request)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", bare)
    found = await seen(idle, "temporal", "search attributes are missing: HostlerCluster, ")
    assert "run `hostler setup`" in bad(found)["temporal"]

    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    found = await examine(idle.settings_file)
    assert "Temporal at 127.0.0.1:1 cannot be reached" in bad(found)["temporal"]
    assert any(f.subject == "cluster demo" and f.level is Level.OK for f in found)  # and the rest is looked at


# -- clocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "level", "words"),
    [
        (0.0, Level.OK, "agree"),
        (-5.9, Level.OK, "agree"),  # a date cut to its second may be one older than it looks
        (5.0, Level.OK, "agree"),
        (-20.0, Level.WARNING, "19 s behind the one here"),
        (20.0, Level.WARNING, "20 s ahead of the one here"),
        (-300.0, Level.PROBLEM, "299 s behind"),
        (300.0, Level.PROBLEM, "300 s ahead"),
    ],
)
def test_clocks(seconds: float, level: Level, words: str) -> None:
    found = clock("cluster demo", NOW + timedelta(seconds=seconds), NOW, NOW, timedelta(seconds=1))
    assert (found.level, words in found.message) == (level, True), found


def test_a_slow_answer_is_no_skew() -> None:
    theirs, after = NOW + timedelta(seconds=20), NOW + timedelta(seconds=30)
    assert clock("temporal", theirs, NOW, after, timedelta(0)).level is Level.OK
    assert clock("temporal", theirs, NOW, NOW, timedelta(0)).level is Level.WARNING


async def test_what_each_account_may_take_is_what_the_server_keeps(idle: Stack) -> None:
    subject = f"queue {cloud_queue('aws', idle.settings.queue_prefix)}"
    aws = {
        "endpoint": idle.settings.clouds["aws"].endpoint,
        "queues": {"own": {"accounts": ["AWS/*/big"]}, "former": {"accounts": []}},
    }
    change(idle, clouds={"aws": {**aws, "callsPerSecondPerAccount": 4}})
    async with worker.running(idle.client, load_settings(idle.settings_file)):

        async def polled() -> dict[str, str]:
            return {f.subject.removeprefix(subject): f.message for f in await examine(idle.settings_file)}

        def all_polled(said: dict[str, str]) -> bool:
            return all("; at most 4 calls/s for each account" in said.get(q, "") for q in ("", "-own", "-former"))

        said = await eventually(polled, all_polled)
        assert "; for AWS/*/big; at most" in said["-own"]
        assert "; for no account any more; at most" in said["-former"]
        change(idle, clouds={"aws": {**aws, "callsPerSecondPerAccount": 3}})
        found = await seen(idle, subject, "callsPerSecondPerAccount is 3 in these settings")
    assert "restart the worker" in bad(found)[subject]


async def test_queues_are_those_that_a_worker_polls(idle: Stack) -> None:
    """So a task queue that worker.py adds is looked at too."""
    async with worker.running(idle.client, idle.settings) as workers:
        assert {w.task_queue for w in workers} == {q.name for q in queues(idle.settings, list(idle.settings.clusters))}
