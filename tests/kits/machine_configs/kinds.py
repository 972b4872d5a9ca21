"""What tests of machine configs share: the kinds at an API server, and objects of them."""

from __future__ import annotations

import asyncio
from typing import Any

import yaml
from apiserver.simulated import DEFINITIONS, MERGE, KubeTarget, Obj
from lifekit import eventually
from paths import ROOT

from resources.machine_config.keys import API, CONFIG_KINDS, MACHINE_CONFIG, MACHINE_CONFIG_POOL, ConfigKind

CRDS = ROOT / "deploy" / "crds"


def path(kind: ConfigKind, name: str = "") -> str:
    return f"/apis/{API}/{kind.plural}" + (f"/{name}" if name else "")


async def install_kinds(kube: KubeTarget) -> None:
    """Does what `kubectl apply -f deploy/crds` does, and waits until the kinds are served."""
    definitions = [d for file in sorted(CRDS.glob("*.yaml")) for d in yaml.safe_load_all(file.read_text())]

    async def served() -> bool:
        for definition in definitions:  # one of a former test may be on its way out
            await kube.call("POST", DEFINITIONS, definition)
        found = await asyncio.gather(*(kube.call("GET", f"{DEFINITIONS}/{d['metadata']['name']}") for d in definitions))
        if any(f.status != 200 or "deletionTimestamp" in f.body["metadata"] for f in found):
            return False
        answers = await asyncio.gather(*(kube.call("GET", path(kind)) for kind in CONFIG_KINDS))
        return all(answer.status == 200 for answer in answers)

    await eventually(served, what="the kinds of machine configs served")


async def remove_all(kube: KubeTarget) -> None:
    """Removes every object of the kinds, with what protects it."""
    for kind in CONFIG_KINDS:
        for found in (await kube.get(path(kind)))["items"]:
            name = found["metadata"]["name"]
            await kube.call("PATCH", path(kind, name), {"metadata": {"finalizers": None}}, content_type=MERGE)
            await kube.call("DELETE", path(kind, name))


def examples() -> list[Obj]:
    """The manifests of examples/machine-configs."""
    files = sorted((ROOT / "examples" / "machine-configs").glob("*.yaml"))
    return [d for file in files for d in yaml.safe_load_all(file.read_text())]


async def create(kube: KubeTarget, *objects: Obj) -> None:
    kinds = {kind.kind: kind for kind in CONFIG_KINDS}
    for one in objects:
        await kube.create(path(kinds[one["kind"]]), one)


def config(name: str, role: str = "worker", **spec: Any) -> Obj:
    """A MachineConfig; on its own it writes one file that has its name."""
    files = [{"path": f"/etc/{name}", "mode": 0o644, "overwrite": True, "contents": {"source": f"data:,{name}"}}]
    content = {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}}, **spec}
    labels = {"machineconfiguration.openshift.io/role": role}
    return {
        "apiVersion": API,
        "kind": MACHINE_CONFIG.kind,
        "metadata": {"name": name, "labels": labels},
        "spec": content,
    }


def config_pool(name: str, **spec: Any) -> Obj:
    """A MachineConfigPool of the Nodes with the role of its name, and of the MachineConfigs with that role."""
    selectors = {
        "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": name}},
        "nodeSelector": {"matchLabels": {f"node-role.kubernetes.io/{name}": ""}},
    }
    metadata = {"name": name}
    return {"apiVersion": API, "kind": MACHINE_CONFIG_POOL.kind, "metadata": metadata, "spec": {**selectors, **spec}}
