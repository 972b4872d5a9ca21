"""The CustomResourceDefinitions of machine configs, and the examples, on an API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from apiserver.simulated import MERGE, KubeTarget, Obj
from paths import ROOT

from resources.machine_config.keys import API, CONFIG_KINDS, GROUP, MACHINE_CONFIG_POOL
from resources.machine_config.objects import CONFIG_MODELS, MachineConfigPool

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PLURALS = {kind.kind: kind.plural for kind in CONFIG_KINDS}
POOLS = f"/apis/{API}/{MACHINE_CONFIG_POOL.plural}"


def path_of(obj: Obj) -> str:
    return f"/apis/{API}/{PLURALS[obj['kind']]}"


def documents(folder: str) -> list[Obj]:
    return [d for file in sorted((ROOT / folder).glob("*.yaml")) for d in yaml.safe_load_all(file.read_text())]


@pytest.fixture(scope="module")
async def served(kube: KubeTarget) -> AsyncIterator[KubeTarget]:
    """An API server that has the four kinds."""
    made = documents("deploy/crds")
    for one in made:
        await kube.create(DEFINITIONS, one)
    for one in made:
        name = one["metadata"]["name"]
        async for event in kube.watch(DEFINITIONS, fieldSelector=f"metadata.name={name}", timeoutSeconds="20"):
            conditions = {c["type"]: c for c in (event["object"].get("status") or {}).get("conditions") or ()}
            assert conditions.get("NonStructuralSchema", {}).get("status") != "True", conditions
            if conditions.get("Established", {}).get("status") == "True":
                break
    yield kube
    for one in made:
        await kube.delete(f"{DEFINITIONS}/{one['metadata']['name']}")


@pytest.fixture
async def examples(served: KubeTarget) -> AsyncIterator[list[Obj]]:
    """The examples as the API server keeps them."""
    made = []
    for one in documents("examples/machine-configs"):
        answer = await served.call("POST", path_of(one), one, fieldValidation="Strict")
        assert "Warning" not in answer.headers, answer.headers["Warning"]
        made.append(answer.ok())
    yield made
    for one in made:
        await served.delete(f"{path_of(one)}/{one['metadata']['name']}")


async def test_the_examples_are_kept_as_they_are(served: KubeTarget, examples: list[Obj]) -> None:
    given = {(d["kind"], d["metadata"]["name"]): d for d in documents("examples/machine-configs")}
    assert len(examples) == len(given)
    for kept in examples:
        wanted = given[kept["kind"], kept["metadata"]["name"]]
        assert kept["spec"] == wanted["spec"]
        assert CONFIG_MODELS[kept["kind"]].of_dict(kept).to_dict()["spec"] == wanted["spec"]
    shorts = {r["name"]: r.get("shortNames") for r in (await served.get(f"/apis/{API}"))["resources"]}
    assert (shorts["machineconfigs"], shorts["machineconfigpools"]) == (["mc"], ["mcp"])


async def test_a_pool_is_printed_as_upstreams(served: KubeTarget, examples: list[Obj]) -> None:
    status = {
        "configuration": {"name": "rendered-worker-1"},
        "machineCount": 3,
        "readyMachineCount": 2,
        "updatedMachineCount": 1,
        "degradedMachineCount": 0,
        "conditions": [{"type": "Updated", "status": "False"}, {"type": "Updating", "status": "True"}],
    }
    await served.patch(f"{POOLS}/worker/status", {"status": status})
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    answer: Any = (await served.call("GET", f"{POOLS}/worker", accept=table)).ok()
    columns = [c["name"].upper() for c in answer["columnDefinitions"]]
    assert columns == [
        *("NAME", "CONFIG", "UPDATED", "UPDATING", "DEGRADED"),
        *("MACHINECOUNT", "READYMACHINECOUNT", "UPDATEDMACHINECOUNT", "DEGRADEDMACHINECOUNT", "AGE"),
    ]
    cells = answer["rows"][0]["cells"]
    assert cells[:3] == ["worker", "rendered-worker-1", "False"]
    assert cells[3] == "True"
    assert cells[5:9] == [3, 2, 1, 0]
    configs: Any = (await served.call("GET", f"/apis/{API}/machineconfigs/60-infra-units", accept=table)).ok()
    assert configs["rows"][0]["cells"][2] == "2.2.0"


async def test_a_status_is_written_apart_and_moves_no_generation(served: KubeTarget, examples: list[Obj]) -> None:
    before = await served.get(f"{POOLS}/worker")
    both = {"spec": {"paused": True}, "status": {"machineCount": 7, "readyMachines": 5}}
    after = await served.patch(f"{POOLS}/worker/status", both)
    assert (after["spec"], after["metadata"]["generation"]) == (before["spec"], before["metadata"]["generation"])
    read = MachineConfigPool.of_dict(after)
    assert (read.status.machine_count, read.status.ready_machines, read.spec.paused) == (7, 5, False)
    paused = await served.patch(f"{POOLS}/worker", both)
    assert MachineConfigPool.of_dict(paused).spec.paused
    assert paused["metadata"]["generation"] == before["metadata"]["generation"] + 1


WRONG = [
    ({"machineSelector": {}, "nodeSelector": {}}, '"spec" must not validate the schema (not)', "<nil>"),
    ({"nodeSelector": {}, "machineSetRef": {"name": "p"}}, "must not validate", "<nil>"),
    ({"maxUnavailable": "60"}, "spec.maxUnavailable in body should match", "maxUnavailable"),
    ({"maxUnavailable": "40 %"}, "spec.maxUnavailable in body should match", "maxUnavailable"),
    ({"maxUnavailable": -1}, "spec.maxUnavailable in body should be greater than or equal to 0", "maxUnavailable"),
    ({"paused": "yes"}, "spec.paused in body must be of type boolean", "paused"),
    ({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}}, "Unsupported value", "operator"),
    ({"machineSetRef": {}}, "spec.machineSetRef.name: Required value", "name"),
]


@pytest.mark.parametrize(("spec", "said", "field"), WRONG)
async def test_what_nobody_could_act_on_is_refused(served: KubeTarget, spec: Obj, said: str, field: str) -> None:
    body = {"apiVersion": API, "kind": "MachineConfigPool", "metadata": {"name": "wrong"}, "spec": spec}
    answer = await served.call("POST", POOLS, body)
    assert answer.reason == "422 Invalid"
    assert said in answer.message
    assert field in answer.body["details"]["causes"][0]["field"]


async def test_an_ignition_config_is_kept_whatever_it_holds(served: KubeTarget) -> None:
    raw = {"ignition": {"version": "9.9.9", "x": [{"y": {}}]}, "list": [1, "a", [True]], "empty": {}}
    body = {"apiVersion": API, "kind": "MachineConfig", "metadata": {"name": "raw"}, "spec": {"config": raw}}
    kept = await served.create(f"/apis/{API}/machineconfigs", body)
    assert kept["spec"]["config"] == raw
    patch = {"spec": {"config": {"list": None}, "kernelArguments": ["a"]}}
    patched = await served.call("PATCH", f"/apis/{API}/machineconfigs/raw", patch, content_type=MERGE)
    assert patched.ok()["spec"] == {
        "config": {k: v for k, v in raw.items() if k != "list"},
        "kernelArguments": ["a"],
    }
    assert patched.body["metadata"]["generation"] == 2
    await served.delete(f"/apis/{API}/machineconfigs/raw")


async def test_the_group_has_the_four_kinds_and_no_status_of_a_machine_config(served: KubeTarget) -> None:
    names = {r["name"] for r in (await served.get(f"/apis/{API}"))["resources"]}
    assert names == {
        "machineconfigs",
        *("machineconfigpools", "machineconfigpools/status"),
        *("kubeletconfigs", "kubeletconfigs/status", "controllerconfigs", "controllerconfigs/status"),
    }
    assert GROUP in {g["name"] for g in (await served.get("/apis"))["groups"]}


async def test_server_side_apply_knows_whose_a_field_is(served: KubeTarget) -> None:
    """As `hostler apply` uses it: what its manifest no longer has goes, what others have written stays, and a field at
    another value is a conflict that names its owner."""
    path = f"{POOLS}/ssa"

    async def apply(manager: str, spec: Obj, **query: str) -> tuple[int, Obj]:
        body = {"apiVersion": API, "kind": "MachineConfigPool", "metadata": {"name": "ssa"}, "spec": spec}
        query = {"fieldManager": manager, **query}
        answer = await served.call("PATCH", path, body, content_type="application/apply-patch+yaml", **query)
        return answer.status, answer.body

    nodes, machines = ({field: {"matchLabels": {"a": "b"}}} for field in ("nodeSelector", "machineSelector"))
    status, _ = await apply("a", {**nodes, "paused": True}, dryRun="All")
    assert (status, (await served.call("GET", path)).status) == (201, 404)
    status, first = await apply("a", {**nodes, "paused": True, "maxUnavailable": 2})
    assert (status, first["spec"]) == (201, {**nodes, "paused": True, "maxUnavailable": 2})
    status, again = await apply("a", {**nodes, "paused": True, "maxUnavailable": 2})
    assert (status, again["metadata"]["resourceVersion"]) == (200, first["metadata"]["resourceVersion"])
    # Another one's apply, and another one's patch.
    status, said = await apply("b", {"paused": False})
    assert (status, said["message"]) == (409, 'Apply failed with 1 conflict: conflict with "a": .spec.paused')
    status, said = await apply("b", {"paused": False}, force="true")
    assert (status, said["spec"]["paused"]) == (200, False)
    await served.call("PATCH", path, {"spec": {"maxUnavailable": 3}}, content_type=MERGE, fieldManager="c")
    status, said = await apply("a", {**nodes, "maxUnavailable": 2})
    assert status == 409
    assert f'conflict with "c" using {API}: .spec.maxUnavailable' in said["message"]
    assert [c["field"] for c in said["details"]["causes"]] == [".spec.maxUnavailable"]
    # One way to choose nodes takes the other's place as a whole; what b and c have written stays.
    status, said = await apply("a", machines)
    assert (status, said["spec"]) == (200, {**machines, "paused": False, "maxUnavailable": 3})
    await served.delete(path)
