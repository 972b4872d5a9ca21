"""The simulator's plug for clouds: a second one, which nothing in the simulator knows, is served like the first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clouds.drivers import registered
from fakecloud.api import FakeError, NoAnswer, Thing
from fakecloud.wire import Remote
from pydantic import ValidationError
from simulated.process import Http, ec2_client, eventually, fast, kube_http, launch, process
from simulated.support import TOKEN, condition, is_ready, token_secret, user_data

from resources.clouds import simulations
from simulator.server import CloudSettings, SimulatorThread

ONE = "token-of-the-one"


@pytest.fixture(autouse=True)
def second() -> Iterator[None]:
    with registered():
        yield


class Both:
    """A simulator of both clouds, and whoever asks it."""

    def __init__(self, simulator: SimulatorThread) -> None:
        self.simulator = simulator
        self.kube = kube_http(simulator.kubeconfig)
        self.admin = Http(simulator.admin_url)
        self.fake = Remote(simulator.cloud_urls["fake"])
        self.ec2 = ec2_client(simulator.cloud_urls["aws"])

    def make(self, name: str) -> Thing:
        self.fake.call("CreateNic", ONE, 10, name=f"nic-{name}")
        more = {"disks": [], "console": {}, "user_data": user_data().decode()}
        return self.fake.call("CreateVm", ONE, 10, token=name, nic=f"nic-{name}", name=name, labels={}, **more)

    def node(self, name: str) -> dict[str, Any] | None:
        status, node = self.kube("GET", f"/api/v1/nodes/{name}")
        return dict(node) if status == 200 else None

    def joined(self, name: str) -> dict[str, Any]:
        node = eventually(lambda: self.node(name), lambda n: n is not None and is_ready(n))
        assert node is not None
        return node

    def console(self, vm: str) -> str:
        return str(self.simulator.call(lambda: self.simulator.simulator.clouds["fake"].api.things[vm].output))


def test_its_vms_join_beside_those_of_the_first(tmp_path: Path) -> None:
    settings = fast(state_dir=tmp_path)
    with SimulatorThread(settings) as simulator:
        both = Both(simulator)
        both.kube("POST", "/api/v1/namespaces/kube-system/secrets", token_secret())
        first, vm = launch(both.ec2, "m-1"), both.make("m-2")
        node, other = both.joined("m-2"), both.joined(first["PrivateDnsName"])
        assert [n["spec"]["providerID"] for n in (node, other)] == [
            "fake:///vm-1",
            f"aws:///eu-west-1/{first['InstanceId']}",
        ]
        assert [n["status"]["capacity"]["cpu"] for n in (node, other)] == ["3", "2"]
        assert "topology.kubernetes.io/region" not in node["metadata"]["labels"]  # it has none
        assert {"type": "InternalIP", "address": "10.0.0.1"} in node["status"]["addresses"]
        assert "Successfully registered node" in both.console(vm.id)
        assert TOKEN not in both.console(vm.id)
    with SimulatorThread(settings) as simulator:
        both = Both(simulator)
        assert both.fake.call("GetVm", ONE, 10, id=vm.id).name == "m-2"
        assert both.joined("m-2")["metadata"]["uid"] == node["metadata"]["uid"]
        assert both.admin("POST", "/vms/kill", {"instanceId": vm.id})[0] == 200
        assert both.fake.call("GetVm", ONE, 10, id=vm.id).state == "terminated"
        eventually(lambda: condition(both.node("m-2") or {}, "Ready")["status"], lambda s: s == "Unknown")
        assert is_ready(both.joined(first["PrivateDnsName"]))


def test_two_clouds_may_give_the_same_id() -> None:
    """One VM's kubelet, console and end are not the other's."""
    with SimulatorThread(fast()) as simulator:
        both = Both(simulator)
        both.kube("POST", "/api/v1/namespaces/kube-system/secrets", token_secret())
        first = launch(both.ec2, "m-1")
        id, api = first["InstanceId"], simulator.simulator.clouds["fake"].api
        twin = Thing(id, "one", "vm", name="m-2", user_data=user_data().decode())
        simulator.call(lambda: api.things.update({id: twin}))
        both.joined("m-2")
        other = both.joined(first["PrivateDnsName"])
        assert '"Successfully registered node" node="m-2"' in both.console(id)
        assert first["PrivateDnsName"] not in both.console(id)
        refused, answer = both.admin("POST", "/vms/kill", {"instanceId": id})
        assert (refused, [path in answer["error"] for path in ("/ec2/", "/fake/")]) == (409, [True, True])
        assert both.admin("POST", "/fake/kill", {"instanceId": id})[0] == 200
        eventually(lambda: condition(both.node("m-2") or {}, "Ready")["status"], lambda s: s == "Unknown")
        assert is_ready(both.joined(other["metadata"]["name"]))
        made = both.admin("GET", "/vms/resources")[1]
        assert {(r["id"], r["gone"]) for r in made if r["vm"]} == {(id, False), (id, True)}


def test_faults_and_the_journal_know_it_by_its_service() -> None:
    with SimulatorThread(fast()) as simulator:
        both = Both(simulator)
        rules = [{"service": "fake", "code": "NoRoom"}, {"service": "fake", "drop": True}, {"service": "ec2"}]
        assert both.admin("POST", "/faults", [{"operation": "CreateNic", **rule} for rule in rules])[0] == 201
        with pytest.raises(FakeError, match="a fault"):
            both.make("m-1")
        with pytest.raises(NoAnswer):
            both.make("m-1")
        assert both.make("m-1").state in ("pending", "running")
        assert [rule["service"] for rule in both.admin.get("/faults")] == ["ec2"]
        calls = both.admin.get("/calls?service=fake")["calls"]
        assert [(c["operation"], c["error"]) for c in calls] == [
            ("CreateNic", "NoRoom"),
            ("CreateNic", None),
            ("CreateNic", None),
            ("CreateVm", None),
        ]


def test_admin_commands_go_to_the_cloud_that_has_the_vm() -> None:
    with SimulatorThread(fast()) as simulator:
        both = Both(simulator)
        instance, vm = launch(both.ec2, "m-1")["InstanceId"], both.make("m-2").id
        for whose, known in (("vms", [instance, vm]), ("ec2", [instance]), ("fake", [vm])):
            for one in (instance, vm):
                answer = both.admin("POST", f"/{whose}/console", {"instanceId": one, "text": f"to {whose}\n"})
                assert answer[0] == (200 if one in known else 404), (whose, one)
        assert both.console(vm).replace("\r", "").count("to ") == 2
        assert "to vms\nto ec2\n" in both.ec2.get_console_output(InstanceId=instance)["Output"].replace("\r", "")


def test_only_the_clouds_that_are_asked_for(tmp_path: Path) -> None:
    with SimulatorThread(fast(state_dir=tmp_path)) as simulator:
        assert list(simulator.cloud_urls) == [*simulations()]
        Both(simulator).make("m-1")
    with SimulatorThread(fast(state_dir=tmp_path, clouds={"aws": {}})) as simulator:
        assert list(simulator.cloud_urls) == ["aws"]
        launch(ec2_client(simulator.cloud_urls["aws"]), "m-2")
    with SimulatorThread(fast(state_dir=tmp_path, clouds={"fake": {"world": {ONE: "one", "t": "two"}}})) as simulator:
        assert list(simulator.cloud_urls) == ["fake"]
        fake = Remote(simulator.cloud_urls["fake"])
        assert fake.call("Whoami", "t", 10) == "two"
        assert fake.call("GetVm", ONE, 10, id="vm-1").name == "m-1"  # kept, though it was not served meanwhile
    with pytest.raises(ValidationError, match=f"cumulus cannot be simulated; there are {', '.join(simulations())}"):
        fast(clouds={"cumulus": CloudSettings()})


def test_the_process_tells_clouds_by_name() -> None:
    with process("--cloud", "aws") as started:
        assert started.stdout is not None
        told = json.loads(started.stdout.readline())
        assert told["clouds"] == {"aws": told["ec2"]}
    with process("--cloud", "fake") as started:
        assert "invalid choice: 'fake'" in started.communicate()[1]  # registered in this process alone
