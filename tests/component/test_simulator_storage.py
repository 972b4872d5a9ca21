"""The simulated controllers of volumes: attach them where pods want them, detach them, protect what is in use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from simulated.support import (
    Cluster,
    eventually,
    fake_vm,
    is_ready,
    pod,
    served_cluster,
    taint_keys,
    token_secret,
    user_data,
)

from simulator.client import Obj
from simulator.controllers import Controllers
from simulator.controllers.storage import DETACH_ANNOTATION
from simulator.kubelet import Kubelets, Timings

CSI = "ebs.csi.aws.com"
HOUR = "3600"


class World:
    def __init__(self, cluster: Cluster, kubelets: Kubelets) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.kubelets = kubelets

    async def join(self, n: int) -> str:
        vm = fake_vm(n, user_data=user_data(args="--node-labels="))
        self.kubelets.observe(vm)
        name: str = vm.private_dns_name
        await eventually(lambda: self.cluster.node(name), lambda node: is_ready(node) and not taint_keys(node))
        return name

    async def disk(self, name: str, mode: str = "ReadWriteOnce", detach: str | None = None) -> None:
        """A claim, and its volume."""
        annotations = {DETACH_ANNOTATION: detach} if detach else {}
        spec: Obj = {"accessModes": [mode], "capacity": {"storage": "1Gi"}}
        spec |= {"csi": {"driver": CSI, "volumeHandle": f"vol-{name}"}}
        spec |= {"claimRef": {"namespace": "default", "name": name}}
        meta = {"name": f"pv-{name}", "annotations": annotations}
        await self.client.create("persistentvolumes", {"metadata": meta, "spec": spec})
        wants = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": f"pv-{name}"}
        await self.client.create("persistentvolumeclaims", {"metadata": {"name": name}, "spec": wants}, "default")

    async def pod(self, name: str, node: str, claim: str) -> None:
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
        await self.client.create("pods", pod(name, node, volumes=volumes), "default")
        await eventually(lambda: self.client.get("pods", name, "default"), is_ready)

    async def attached(self) -> set[tuple[str, str, bool]]:
        found = (await self.client.list("volumeattachments"))["items"]
        return {
            (a["spec"]["source"]["persistentVolumeName"], a["spec"]["nodeName"], a["status"]["attached"]) for a in found
        }

    async def becomes(self, *expected: tuple[str, str]) -> None:
        wanted = {(*e, True) for e in expected}
        await eventually(self.attached, lambda found: found == wanted, f"attached {wanted}")

    async def listed(self, node: str) -> list[str]:
        return [v["name"] for v in (await self.cluster.node(node))["status"].get("volumesAttached") or ()]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with served_cluster() as cluster:
        await cluster.client.create("secrets", token_secret(), "kube-system")
        kubelets = Kubelets(cluster.url, cluster.api.ca_pem, timings=Timings.fast(), console=cluster.console)
        controllers = Controllers(cluster.kubeconfig, grace=1.5, resync=1.0)
        await kubelets.start()
        await controllers.start()
        yield World(cluster, kubelets)
        await controllers.stop()
        await kubelets.stop()


async def test_a_volume_follows_its_pod(world: World) -> None:
    here, there = await world.join(1), await world.join(2)
    await world.disk("a")
    await world.pod("p-1", here, "a")
    await world.becomes(("pv-a", here))
    disk = f"kubernetes.io/csi/{CSI}^vol-a"
    await eventually(lambda: world.listed(here), lambda found: found == [disk])
    await world.pod("p-2", there, "a")
    await world.client.delete("pods", "p-1", "default")
    await world.becomes(("pv-a", there))
    await eventually(lambda: world.listed(there), lambda found: found == [disk])
    assert await world.listed(here) == []


async def test_a_volume_for_one_node_is_not_attached_to_two(world: World) -> None:
    """This is the Multi-Attach error of every cluster; a volume for many nodes is attached."""
    here, there = await world.join(1), await world.join(2)
    await world.disk("one")
    await world.disk("many", mode="ReadWriteMany")
    for claim in ("one", "many"):
        await world.pod(f"{claim}-1", here, claim)
    await world.becomes(("pv-one", here), ("pv-many", here))
    for claim in ("one", "many"):
        await world.pod(f"{claim}-2", there, claim)
    await world.becomes(("pv-one", here), ("pv-many", here), ("pv-many", there))


async def test_a_test_says_how_long_detaching_takes(world: World) -> None:
    node = await world.join(1)
    for name, seconds in (("slow", HOUR), ("fast", None)):
        await world.disk(name, detach=seconds)
        await world.pod(f"p-{name}", node, name)
    await world.becomes(("pv-slow", node), ("pv-fast", node))
    for name in ("slow", "fast"):
        await world.client.delete("pods", f"p-{name}", "default")
    await world.becomes(("pv-slow", node))
    annotations: dict[str, Any] = {DETACH_ANNOTATION: "0"}
    await world.client.patch("persistentvolumes", "pv-slow", {"metadata": {"annotations": annotations}})
    await world.becomes()
    await eventually(lambda: world.listed(node), lambda found: found == [])


async def test_a_silent_kubelet_does_not_unmount(world: World) -> None:
    """Its node's volumes stay attached for six minutes although the pod is gone; those of a deleted node do not."""
    silent, other = await world.join(1), await world.join(2)
    for name, node in (("a", silent), ("b", other)):
        await world.disk(name)
        await world.pod(f"p-{name}", node, name)
    await world.becomes(("pv-a", silent), ("pv-b", other))
    world.kubelets.observe(fake_vm(1).in_state("stopped"))
    await eventually(lambda: world.cluster.node(silent), lambda node: not is_ready(node))
    for name in ("a", "b"):
        await world.client.delete("pods", f"p-{name}", "default", grace=0)
    await world.becomes(("pv-a", silent))
    await world.client.delete("nodes", silent)
    await world.becomes()


async def test_what_is_in_use_is_deleted_when_it_no_longer_is(world: World) -> None:
    node = await world.join(1)
    await world.disk("a")
    await world.pod("p", node, "a")
    await world.client.delete("persistentvolumes", "pv-a")
    await world.client.delete("persistentvolumeclaims", "a", "default")
    for read in (("persistentvolumes", "pv-a"), ("persistentvolumeclaims", "a", "default")):
        assert (await world.client.get(*read))["metadata"]["deletionTimestamp"]
    await world.client.delete("pods", "p", "default")

    async def left() -> list[Obj]:
        kinds = ("persistentvolumes", "persistentvolumeclaims")
        return [item for kind in kinds for item in (await world.client.list(kind))["items"]]

    await eventually(left, lambda found: found == [], "both gone")
