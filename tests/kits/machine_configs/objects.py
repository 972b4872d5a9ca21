"""Objects of machine configs as an API server has them, for tests of rendering."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import yaml
from paths import ROOT

from planners.machine_config.ignition import content_of
from planners.machine_config.picture import Picture, RenderOptions
from planners.machine_config.rehearsal import Settled, settled, stored
from resources.machine_config import templates
from resources.machine_config.keys import API, CONTROLLER, GROUP, ROLE_LABEL

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OPTIONS = RenderOptions()
SHIPPED = templates.shipped()
GOLDEN = ROOT / "tests/testdata/machineconfigs"
"""MachineConfigs as they are rendered: a change of one is a reboot of nodes, and is to be seen in a review."""
Obj = dict[str, Any]


def made(kind: str, name: str, spec: Mapping[str, Any], at: datetime = NOW, **meta: Any) -> Obj:
    obj = {"apiVersion": API, "kind": kind, "metadata": {"name": name, **meta}, "spec": dict(spec)}
    return stored(obj, at)


def ignition(*files: Mapping[str, Any], version: str = "3.2.0", **sections: Any) -> Obj:
    storage = {"storage": {"files": list(files)}} if files else {}
    return {"ignition": {"version": version}, **storage, **sections}


def file(path: str, text: str, **fields: Any) -> Obj:
    return {"path": path, "mode": 420, "contents": {"source": f"data:,{text}"}, **fields}


def config(name: str, *files: Mapping[str, Any], role: str = "worker", **spec: Any) -> Obj:
    """A person's MachineConfig."""
    whole = {"config": ignition(*files)} if files else {}
    return made("MachineConfig", name, {**whole, **spec}, labels={ROLE_LABEL: role})


def pool(name: str = "worker", *roles: str, **spec: Any) -> Obj:
    """A pool that selects a role, or several. Its label is `pool: <name>`."""
    chosen = {"matchExpressions": [{"key": ROLE_LABEL, "operator": "In", "values": list(roles or (name,))}]}
    return made("MachineConfigPool", name, {"machineConfigSelector": chosen, **spec}, labels={"pool": name})


def kubelet_config(name: str, pool: str = "worker", at: datetime = NOW, spec: Any = None, **fields: Any) -> Obj:
    """A KubeletConfig for a pool that sets fields of the kubelet."""
    whole = {"machineConfigPoolSelector": {"matchLabels": {"pool": pool}}, "kubeletConfig": fields, **(spec or {})}
    return made("KubeletConfig", name, whole, at)


def controller_config(name: str = CONTROLLER, **spec: Any) -> Obj:
    given = {
        "clusterDNSIP": "10.3.0.10",
        "rootCAData": "-----BEGIN CERTIFICATE-----\nroot\n-----END CERTIFICATE-----\n",
        "etcdCAData": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCmV0Y2QKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=",
        "internalRegistryPullSecret": '{"auths": {}}',
        "osImageURL": "registry/os@sha256:1",
    }
    return made("ControllerConfig", name, {**given, **spec})


def cluster(*objects: Obj, **more: Any) -> Picture:
    """A picture with objects of any kind, and the templates that come with Hostler."""

    def of(kind: str) -> tuple[Obj, ...]:
        return tuple(o for o in objects if o["kind"] == kind)

    return Picture(
        **{
            "configs": of("MachineConfig"),
            "pools": of("MachineConfigPool"),
            "kubelet_configs": of("KubeletConfig"),
            "controller_configs": of("ControllerConfig"),
            "templates": SHIPPED,
            **more,
        }
    )


def at_rest(*objects: Obj, options: RenderOptions = OPTIONS, **more: Any) -> Settled:
    """Where rendering these objects comes to a rest."""
    return settled(cluster(*objects, **more), options, NOW)


def named(objects: Any, name: str) -> Obj:
    return next(o for o in objects if o["metadata"]["name"] == name)


def names(objects: Any) -> list[str]:
    return sorted(o["metadata"]["name"] for o in objects)


def told(obj: Obj, type_: str) -> Obj:
    """A condition."""
    return next(c for c in obj["status"]["conditions"] if c["type"] == type_)


def target(picture: Picture, pool: str = "worker") -> Obj:
    """The rendered config that a pool is to have."""
    return named(picture.configs, named(picture.pools, pool)["spec"]["configuration"]["name"])


def key(word: str) -> str:
    return f"{GROUP}/{word}"


def edited(objects: Any, name: str, spec: Any = None, **meta: Any) -> tuple[Obj, ...]:
    """The objects after a person has changed one."""
    old = named(objects, name)
    generation = old["metadata"]["generation"] + (spec is not None)
    new = {**old, "spec": {**old["spec"], **(spec or {})}}
    new["metadata"] = {**old["metadata"], **meta, "generation": generation, "resourceVersion": "99"}
    return tuple(new if o is old else o for o in objects)


def without(objects: Any, name: str) -> tuple[Obj, ...]:
    """The objects after a person has deleted one by force."""
    return tuple(o for o in objects if o["metadata"]["name"] != name)


class Lines(yaml.SafeDumper):
    """Writes texts of several lines as such."""


Lines.add_representer(
    str, lambda d, t: d.represent_scalar("tag:yaml.org,2002:str", t, style="|" if "\n" in t else None)
)


def readable(config: dict[str, Any]) -> str:
    """A MachineConfig for people: contents as text."""
    for file in config["spec"]["config"].get("storage", {}).get("files", ()):
        file["contents"] = (content_of(file["contents"]) or b"").decode()
    return yaml.dump(config, Dumper=Lines, sort_keys=True)
