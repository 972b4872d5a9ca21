"""The simulator as a whole: cloud, cluster, kubelets and controllers together, its admin API, its process."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from simulated.process import Http, ec2_client, eventually, fast, kube_http, launch, process
from simulated.support import NOT_READY_TAINT, is_ready, taint_keys, token_secret

from simulator.client import Obj
from simulator.frame import FaultRule
from simulator.kubelet import KnobRule, Knobs
from simulator.server import PortTakenError, Simulator, SimulatorThread

NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@pytest.fixture
def simulator() -> Iterator[SimulatorThread]:
    with SimulatorThread(fast()) as thread:
        yield thread


def nodes(kube: Http) -> dict[str, Obj]:
    """The nodes by instance id."""
    return {n["spec"]["providerID"].rpartition("/")[2]: n for n in kube.get("/api/v1/nodes")["items"]}


def ready_node(kube: Http, instance_id: str) -> Obj:
    found = eventually(lambda: nodes(kube).get(instance_id), lambda n: n is not None and is_ready(n))
    assert found is not None
    return found


# -- all together


def test_a_launched_instance_becomes_a_node_and_a_terminated_one_is_missed(simulator: SimulatorThread) -> None:
    ec2, kube = ec2_client(simulator.cloud_urls["aws"]), kube_http(simulator.kubeconfig)
    assert kube("POST", "/api/v1/namespaces/kube-system/secrets", token_secret())[0] == 201
    gone, stays = launch(ec2, "m-1"), launch(ec2, "m-2")
    node = ready_node(kube, gone["InstanceId"])
    ready_node(kube, stays["InstanceId"])
    assert node["metadata"]["name"] == gone["PrivateDnsName"]
    assert (NOT_READY_TAINT, "NoSchedule") in taint_keys(node)
    assert node["status"]["capacity"] == {"cpu": "2", "memory": "8388608Ki", "pods": "110"} | {
        "ephemeral-storage": node["status"]["capacity"]["ephemeral-storage"]
    }
    ec2.terminate_instances(InstanceIds=[gone["InstanceId"]])
    eventually(
        lambda: nodes(kube)[gone["InstanceId"]],
        lambda n: ("node.kubernetes.io/unreachable", "NoExecute") in taint_keys(n),
    )
    assert is_ready(nodes(kube)[stays["InstanceId"]])


def test_a_machine_that_cannot_join_says_so_on_its_console(simulator: SimulatorThread) -> None:
    ec2 = ec2_client(simulator.cloud_urls["aws"])
    instance = launch(ec2, "m-1")["InstanceId"]

    def console() -> str:
        return str(ec2.get_console_output(InstanceId=instance).get("Output", ""))

    eventually(console, lambda text: "cannot create certificate signing request: Unauthorized" in text)


def test_a_thread_gives_its_loop_to_callers(simulator: SimulatorThread) -> None:
    async def name() -> str:
        return threading.current_thread().name

    assert simulator.call(name) == "simulator"
    assert simulator.call(lambda: threading.current_thread().name) == "simulator"
    with pytest.raises(ZeroDivisionError):
        simulator.call(lambda: 1 // 0)


async def test_it_runs_inside_a_loop_of_the_callers() -> None:
    async with Simulator(fast()) as simulator:
        assert simulator.kube_url.startswith("https://127.0.0.1:")
        assert {simulator.cloud_urls["aws"][:17], simulator.admin_url[:17]} == {"http://127.0.0.1:"}
    await simulator.stop()  # once more does no harm


# -- state


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    settings = fast(state_dir=tmp_path)
    with SimulatorThread(settings) as first:
        kube, ec2, admin = kube_http(first.kubeconfig), ec2_client(first.cloud_urls["aws"]), Http(first.admin_url)
        kube("POST", "/api/v1/namespaces/kube-system/secrets", token_secret())
        instance = launch(ec2, "m-1")["InstanceId"]
        before = ready_node(kube, instance)
        admin("POST", "/knobs", {"match": "m-9", "knobs": {"never_joins": True}})
        admin("POST", "/faults", {"service": "ec2", "operation": "Nothing", "times": None})
        admin("POST", "/lag", {"tags": 0.5})
        kubeconfig, urls = first.kubeconfig, (first.kube_url, first.cloud_urls["aws"], first.admin_url)
    with SimulatorThread(settings) as second:
        assert (second.kube_url, second.cloud_urls["aws"], second.admin_url) == urls
        assert second.kubeconfig == kubeconfig
        kube, admin = kube_http(kubeconfig), Http(second.admin_url)
        assert nodes(kube)[instance]["metadata"]["uid"] == before["metadata"]["uid"]
        lease = f"{NODE_LEASES}/{before['metadata']['name']}"
        seen = kube.get(lease)["spec"]["renewTime"]
        eventually(lambda: kube.get(lease)["spec"]["renewTime"], lambda now: now != seen)
        assert len(kube.get("/apis/certificates.k8s.io/v1/certificatesigningrequests")["items"]) == 1
        assert admin.get("/knobs") == [{"match": "m-9", "knobs": {"never_joins": True}}]
        assert [rule["operation"] for rule in admin.get("/faults")] == ["Nothing"]
        assert admin.get("/lag")["tags"] == 0.5
        assert [c["operation"] for c in admin.get("/calls?service=ec2")["calls"]] == ["RunInstances"]


def test_state_is_saved_while_it_runs(tmp_path: Path) -> None:
    with SimulatorThread(fast(state_dir=tmp_path)) as simulator:
        kube = kube_http(simulator.kubeconfig)
        kube("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "saved"}})
        eventually(
            lambda: (tmp_path / "simulator.json").read_text() if (tmp_path / "simulator.json").exists() else "",
            lambda text: '"saved"' in text,
        )


def test_what_a_cloud_has_answered_outlives_a_kill(tmp_path: Path) -> None:
    """No cloud forgets a VM: with one that does, I1 and I6 would mean nothing."""
    copy = tmp_path / "killed"
    with SimulatorThread(fast(state_dir=tmp_path / "running")) as simulator:
        instance = launch(ec2_client(simulator.cloud_urls["aws"]), "m-1")["InstanceId"]
        shutil.copytree(tmp_path / "running", copy)  # as it is at the moment of a kill
    with SimulatorThread(fast(state_dir=copy)) as simulator:
        described = ec2_client(simulator.cloud_urls["aws"]).describe_instances(InstanceIds=[instance])
        assert len(described["Reservations"]) == 1


def test_a_state_that_cannot_be_read_is_a_plain_error(tmp_path: Path) -> None:
    (tmp_path / "simulator.json").write_text("{half")
    with pytest.raises(ValueError, match="remove the file to start afresh"), SimulatorThread(fast(state_dir=tmp_path)):
        pass


# -- ports


@pytest.mark.parametrize(
    ("setting", "on"),
    [
        ("kube_port", lambda port: {"kube_port": port}),
        ("ec2_port", lambda port: {"clouds": {"aws": {"port": port}}}),
        ("admin_port", lambda port: {"admin_port": port}),
    ],
)
def test_a_port_that_is_taken_is_named_with_its_setting(setting: str, on: Callable[[int], dict[str, Any]]) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"port {port} on 127.0.0.1 is taken: choose another {setting}"):
            SimulatorThread(fast(**on(port))).__enter__()
    with SimulatorThread(fast(**on(port))) as simulator:  # nothing of the failed start holds it
        assert str(port) in simulator.kube_url + simulator.cloud_urls["aws"] + simulator.admin_url


# -- the admin API


@pytest.fixture
def admin(simulator: SimulatorThread) -> Http:
    return Http(simulator.admin_url)


def test_faults_strike_and_are_taken_back(simulator: SimulatorThread, admin: Http) -> None:
    assert admin("GET", "/healthz") == (200, {"status": "ok"})
    rule = {"service": "ec2", "operation": "RunInstances", "code": "InsufficientInstanceCapacity"}
    status, made = admin("POST", "/faults", [rule, {**rule, "code": "RequestLimitExceeded", "times": None}])
    assert status == 201
    assert [r["code"] for r in admin.get("/faults")] == ["InsufficientInstanceCapacity", "RequestLimitExceeded"]
    ec2 = ec2_client(simulator.cloud_urls["aws"])
    with pytest.raises(ec2.exceptions.ClientError, match="InsufficientInstanceCapacity"):
        launch(ec2, "m-1")
    with pytest.raises(ec2.exceptions.ClientError, match="RequestLimitExceeded"):
        launch(ec2, "m-1")
    assert admin("DELETE", f"/faults/{made[0]['id']}")[0] == 404  # it has struck for the last time
    assert admin("DELETE", f"/faults/{made[1]['id']}") == (200, [])
    assert launch(ec2, "m-1")["InstanceId"].startswith("i-")
    admin("POST", "/faults", {"operation": "x"})
    assert admin("DELETE", "/faults") == (200, [])


def test_calls_are_filtered(simulator: SimulatorThread, admin: Http) -> None:
    ec2 = ec2_client(simulator.cloud_urls["aws"])
    ec2.describe_images()
    mark = admin.get("/calls")["last"]
    launch(ec2, "m-1")
    ec2.describe_instances()
    of_ec2 = admin.get(f"/calls?service=ec2&since={mark}")
    assert [c["operation"] for c in of_ec2["calls"]] == ["RunInstances", "DescribeInstances"]
    mutating = admin.get("/calls?service=ec2&mutating=true")["calls"]
    assert [c["operation"] for c in mutating] == ["RunInstances"]
    assert "UserData" not in mutating[0]["request"] or mutating[0]["request"]["UserData"].startswith("sha256:")
    assert [c["operation"] for c in admin.get("/calls?operation=DescribeI*&mutating=false")["calls"]] == [
        "DescribeImages",
        "DescribeInstances",
    ]
    assert admin.get("/calls?since=1000000000") == {"calls": [], "last": 1000000000}


def test_lag_and_reset(simulator: SimulatorThread, admin: Http) -> None:
    assert admin("POST", "/lag", {"describe_after_create": 3600})[1] == {"describe_after_create": 3600.0, "tags": 0.0}
    assert admin("POST", "/lag", {"tags": 2})[1] == {"describe_after_create": 3600.0, "tags": 2.0}
    ec2 = ec2_client(simulator.cloud_urls["aws"])
    launch(ec2, "m-1")
    assert ec2.describe_instances()["Reservations"] == []
    admin("POST", "/faults", {"operation": "x"})
    admin("POST", "/knobs", {"match": "*", "knobs": {"unready": True}})
    assert admin("POST", "/reset")[0] == 200
    assert (admin.get("/faults"), admin.get("/knobs"), admin.get("/lag")["tags"]) == ([], [], 0.0)
    assert admin.get("/calls?service=ec2")["calls"] == []
    assert len(ec2.describe_instances()["Reservations"]) == 1


def test_knobs_are_replaced_by_match(admin: Http) -> None:
    admin("POST", "/knobs", [{"match": "a", "knobs": {"unready": True}}, {"match": "b", "knobs": {"no_taint": True}}])
    status, now = admin("POST", "/knobs", {"match": "a", "knobs": {"flaps": 2}})
    assert (status, now) == (
        200,
        [{"match": "b", "knobs": {"no_taint": True}}, {"match": "a", "knobs": {"flaps": 2.0}}],
    )
    assert admin("DELETE", "/knobs") == (200, [])


def test_knobs_reach_the_machines(simulator: SimulatorThread, admin: Http) -> None:
    ec2, kube = ec2_client(simulator.cloud_urls["aws"]), kube_http(simulator.kubeconfig)
    kube("POST", "/api/v1/namespaces/kube-system/secrets", token_secret())
    admin("POST", "/knobs", {"match": "m-1*", "knobs": {"no_taint": True}})
    odd, usual = launch(ec2, "m-17")["InstanceId"], launch(ec2, "m-2")["InstanceId"]
    assert NOT_READY_TAINT not in {key for key, _ in taint_keys(ready_node(kube, odd))}
    assert NOT_READY_TAINT in {key for key, _ in taint_keys(ready_node(kube, usual))}


def test_vms_are_impaired_killed_and_talk(simulator: SimulatorThread, admin: Http) -> None:
    ec2 = ec2_client(simulator.cloud_urls["aws"])
    instance = launch(ec2, "m-1", b"#!/bin/sh")["InstanceId"]

    def state() -> str:
        (reservation,) = ec2.describe_instances(InstanceIds=[instance])["Reservations"]
        return str(reservation["Instances"][0]["State"]["Name"])

    eventually(state, lambda s: s == "running")
    assert admin("POST", "/ec2/console", {"instanceId": instance, "text": "Kernel panic\n"})[0] == 200
    assert "Kernel panic" in ec2.get_console_output(InstanceId=instance)["Output"]
    assert admin("POST", "/ec2/impair", {"instanceId": instance, "impaired": True})[0] == 200
    (status,) = ec2.describe_instance_status(InstanceIds=[instance])["InstanceStatuses"]
    assert status["InstanceStatus"]["Status"] == "impaired"
    assert admin("POST", "/ec2/kill", {"instanceId": instance})[0] == 200
    assert state() == "terminated"
    assert admin("POST", "/ec2/kill", {"instanceId": "i-nobody"}) == (404, {"error": "there is no VM 'i-nobody'"})


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", "/faults", {"operation": "x", "time": 3}, "time"),
        ("POST", "/faults", {"operation": "x", "times": 0}, "times"),
        ("POST", "/faults", {"operation": "x", "service": "ec3"}, "service"),
        ("GET", "/calls?service=ec3", None, "service"),
        ("POST", "/lag", {"describe": 1}, "describe"),
        ("POST", "/knobs", {"match": "m", "knobs": {"never_join": True}}, "knobs.never_join"),
        ("POST", "/knobs", {"knobs": {}}, "match"),
        ("POST", "/ec2/kill", {"instance": "i-1"}, "instanceId"),
        ("POST", "/ec2/console", {"instanceId": "i-1"}, "text"),
        ("GET", "/calls?sinc=3", None, "sinc"),
    ],
)
def test_unknown_fields_are_refused_by_name(admin: Http, method: str, path: str, body: Any, field: str) -> None:
    status, answer = admin(method, path, body)
    assert status == 422
    assert field in [f["field"] for f in answer["fields"]]
    assert admin.get("/faults") == []
    assert admin.get("/knobs") == []


def test_a_body_that_is_not_json_is_a_bad_request(simulator: SimulatorThread) -> None:
    request = urllib.request.Request(simulator.admin_url + "/faults", data=b"{", method="POST")
    with pytest.raises(urllib.error.HTTPError) as e:
        urllib.request.urlopen(request, timeout=10)
    assert e.value.code == 400
    assert "not JSON" in json.loads(e.value.read())["error"]


# -- the process


def addresses(started: subprocess.Popen[str]) -> dict[str, Any]:
    assert started.stdout is not None
    line = started.stdout.readline()
    assert line, started.communicate()[1]
    return dict(json.loads(line))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_process_serves_and_stops_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    kubeconfig = tmp_path / "new" / "kubeconfig"
    with process("--state-dir", str(tmp_path / "state"), "--kubeconfig", str(kubeconfig)) as started:
        told = addresses(started)
        assert told["kubeconfig"] == str(kubeconfig)
        assert stat.S_IMODE(os.stat(kubeconfig).st_mode) == 0o600
        assert kube_http(kubeconfig.read_text()).get("/version")["major"] == "1"
        assert Http(told["admin"]).get("/healthz") == {"status": "ok"}
        started.send_signal(number)
        assert started.wait(timeout=20) == 0
        assert started.communicate() == ("", "")
    assert (tmp_path / "state" / "simulator.json").exists()


def test_the_process_dies_with_its_parent_if_asked(tmp_path: Path) -> None:
    with process("--die-with-parent") as mortal, process() as other:
        addresses(mortal)
        admin = Http(addresses(other)["admin"])
        for each in (mortal, other):
            assert each.stdin is not None
            each.stdin.close()
        assert mortal.wait(timeout=20) == 0
        assert other.poll() is None
        assert admin.get("/healthz") == {"status": "ok"}
        for each in (mortal, other):
            each.stdin = None


def test_the_process_says_which_port_is_taken() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with process("--ec2-port", str(port)) as started:
            assert started.wait(timeout=20) == 1
            out, err = started.communicate()
    assert out == ""
    assert (
        err.strip() == f"simulator: port {port} on 127.0.0.1 is taken: choose another ec2_port, or 0 for any free port"
    )


def test_settings_with_knobs_of_a_fresh_start() -> None:
    rule = KnobRule(match="m-1", knobs=Knobs(unready=True))
    with SimulatorThread(fast(knobs=[rule])) as simulator:
        assert simulator.call(lambda: simulator.simulator.kubelets.knobs) == [rule]
        simulator.call(lambda: simulator.simulator.frame.faults.append(FaultRule(operation="x")))
        assert len(Http(simulator.admin_url).get("/faults")) == 1
