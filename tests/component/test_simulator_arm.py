"""The simulated Azure in the simulator: its VMs join, its state outlives a restart, commands and faults reach it."""

from __future__ import annotations

import base64
import json
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from clouds.arm import COMPUTE, GROUP, LOCATION, NETWORK, SUBNET, UBUNTU, WORLD
from simulated.process import Http, eventually, fast, kube_http
from simulated.support import condition, is_ready, token_secret, user_data

from simulator.client import Obj
from simulator.clouds.arm import delays_of
from simulator.kubelet import Timings
from simulator.server import SimulatorThread

VERSION = "?api-version=2024-07-01"


def machine(name: str) -> tuple[str, Obj, Obj]:
    """The NIC's and the VM's address with a body for each, as a driver writes them."""
    nic = f"{NETWORK}/networkInterfaces/{name}-nic"
    configuration = {"name": "v4", "properties": {"subnet": {"id": SUBNET}}}
    key = {"path": "/home/core/.ssh/authorized_keys", "keyData": "ssh-ed25519 AAAA"}
    vm = {
        "hardwareProfile": {"vmSize": "Standard_D4s_v5"},
        "storageProfile": {
            "imageReference": UBUNTU,
            "osDisk": {"createOption": "FromImage", "name": f"{name}-os-disk", "deleteOption": "Delete"},
        },
        "osProfile": {
            "adminUsername": "core",
            "customData": base64.b64encode(user_data()).decode(),
            "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {"publicKeys": [key]}},
        },
        "networkProfile": {"networkInterfaces": [{"id": nic, "properties": {"deleteOption": "Delete"}}]},
    }
    return (
        nic,
        {"location": LOCATION, "properties": {"ipConfigurations": [configuration]}},
        {"location": LOCATION, "zones": ["2"], "tags": {"a": "b"}, "properties": vm},
    )


class Cloud:
    """A simulator with Azure alone, and whoever asks it over plain HTTP."""

    def __init__(self, simulator: SimulatorThread) -> None:
        self.kube = kube_http(simulator.kubeconfig)
        self.admin = Http(simulator.admin_url)
        self.url = simulator.cloud_urls["azure"]
        principal = WORLD.principals[0]
        form = {
            "grant_type": "client_credentials",
            "client_id": principal.client_id,
            "client_secret": principal.secret,
            "scope": "x",
        }
        login = f"{self.url}/{principal.tenant}/oauth2/v2.0/token"
        with urllib.request.urlopen(login, urllib.parse.urlencode(form).encode()) as answer:
            self.http = Http(self.url, token=json.load(answer)["access_token"])

    def make(self, name: str) -> tuple[int, Any]:
        address, nic, vm = machine(name)
        assert self.http("PUT", address + VERSION, nic)[0] in (200, 201)
        eventually(lambda: self.state(address), lambda s: s == "Succeeded")
        return self.http("PUT", f"{COMPUTE}/virtualMachines/{name}{VERSION}", vm)

    def state(self, address: str) -> str:
        status, row = self.http("GET", address + VERSION)
        return str(row["properties"]["provisioningState"] if status == 200 else row["error"]["code"])

    def joined(self, name: str) -> Obj:
        def node() -> Obj | None:
            status, found = self.kube("GET", f"/api/v1/nodes/{name}")
            return dict(found) if status == 200 else None

        found = eventually(node, lambda n: n is not None and is_ready(n))
        assert found is not None
        return found


def test_its_vms_join_and_outlive_a_restart(tmp_path: Path) -> None:
    settings = fast(state_dir=tmp_path, clouds={"azure": {}})
    with SimulatorThread(settings) as simulator:
        cloud = Cloud(simulator)
        cloud.kube("POST", "/api/v1/namespaces/kube-system/secrets", token_secret())
        status, vm = cloud.make("m-1")
        assert status == 201
        node = cloud.joined("m-1")
        labels = node["metadata"]["labels"]
        zone, region = (labels[f"topology.kubernetes.io/{what}"] for what in ("zone", "region"))
        assert (zone, region) == (f"{LOCATION}-2", LOCATION)
        assert node["spec"]["providerID"] == f"azure://{vm['id']}"
        assert node["status"]["capacity"]["cpu"] == "4"
    with SimulatorThread(settings) as simulator:
        cloud = Cloud(simulator)
        assert cloud.http("GET", vm["id"] + VERSION)[1]["properties"]["vmId"] == vm["properties"]["vmId"]
        assert cloud.joined("m-1")["metadata"]["uid"] == node["metadata"]["uid"]
        # A person has the last part of a providerID, which is the VM's name.
        assert cloud.admin("POST", "/arm/kill", {"instanceId": "m-1"})[0] == 200
        assert cloud.state(vm["id"]) == "ResourceNotFound"
        eventually(lambda: condition(cloud.kube.get("/api/v1/nodes/m-1"), "Ready")["status"], lambda s: s == "Unknown")
        made = {r["kind"]: r["gone"] for r in cloud.admin.get("/arm/resources")}
        assert made == {"virtualMachines": True}


def test_faults_and_the_journal_know_it_by_its_service() -> None:
    with SimulatorThread(fast(clouds={"azure": {}})) as simulator:
        cloud = Cloud(simulator)
        rules = [{"code": "ZonalAllocationFailed", "match": "m-2"}, {"code": "SkuNotAvailable"}]
        for rule in rules:
            cloud.admin("POST", "/faults", [{"service": "arm", "operation": "VirtualMachines_Create*", **rule}])
        assert (cloud.make("m-1")[0], cloud.make("m-2")[0]) == (409, 201)
        eventually(lambda: cloud.state(f"{COMPUTE}/virtualMachines/m-2"), lambda s: s == "Failed")
        calls = cloud.admin.get("/calls?service=arm&operation=VirtualMachines_CreateOrUpdate")["calls"]
        assert [(c["error"], c["status"]) for c in calls] == [("SkuNotAvailable", 409), (None, 201)]
        disks = cloud.http("GET", f"{COMPUTE}/disks{VERSION}")[1]["value"]
        assert [d["name"] for d in disks] == ["m-2-os-disk"]


def test_an_azure_vm_takes_a_minute_to_go_and_a_nic_seconds() -> None:
    slow, quick = delays_of(Timings.demo()), delays_of(Timings.fast())
    assert (slow.terminate, slow.resource, slow.reservation) == (60, 2, 180)
    assert max(quick.create, quick.terminate, quick.resource, quick.reservation) < 0.5


def test_a_world_of_ones_own() -> None:
    with pytest.raises(ValueError, match="planets"):
        SimulatorThread(fast(clouds={"azure": {"world": {"planets": 9}}})).__enter__()
    with SimulatorThread(fast(clouds={"azure": {"world": {"groups": [GROUP, "mine"]}}})) as simulator:
        cloud = Cloud(simulator)
        group = f"{COMPUTE.partition('/providers')[0].replace(GROUP, 'mine')}{VERSION}"
        assert cloud.http("GET", group)[1]["properties"] == {"provisioningState": "Succeeded"}
