"""A worker pool through the real command and the real workflows of pools and classes, with machines that are played."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from cli.place import Place, eventually, place
from paths import ROOT
from pools.behind_cli import Machines, played

from resources.settings import load_settings
from starter.sdk.client import HostlerClient

__all__ = ["place"]  # fixture
EXAMPLES = ROOT / "examples" / "workerpool"
A, B, C = "workers-eu-west-1a", "workers-eu-west-1b", "workers-eu-west-1c"


@pytest.fixture
async def machines(place: Place) -> AsyncIterator[Machines]:
    async with played(place) as machines:
        yield machines


def hostler_of(place: Place) -> HostlerClient:
    return HostlerClient(place.client, load_settings(place.settings_file), requested_by="tester")


def manifest(**spec: Any) -> str:
    found = yaml.safe_load((EXAMPLES / "aws.yaml").read_text())
    found["spec"] |= spec
    return yaml.safe_dump(found)


def image(version: str) -> dict[str, Any]:
    return {"type": "m5.large", "image": {"name": "flatcar", "version": version}}


async def said(place: Place, *args: str, stdin: str = "", code: int = 0) -> list[str]:
    done = await place.run(*args, stdin=stdin)
    assert done.code == code, done
    return done.out.splitlines()


async def applied(place: Place, given: str) -> list[str]:
    return await said(place, "apply", "-f", "-", stdin=given)


def of(lines: list[str], beginning: str) -> list[str]:
    return [line.removeprefix(beginning) for line in lines if line.startswith(beginning)]


async def rolled_out(place: Place, *pools: str) -> None:
    for pool in pools:
        await said(place, "wait", "pool", pool, "--for=rolled-out", "--timeout=60s")


async def test_a_worker_pool_from_its_first_machine_to_its_last(place: Place, machines: Machines) -> None:
    # It begins with its minimum, a pool and a class in each zone.
    lines = await applied(place, manifest())
    assert of(lines, "workerpool/workers ") == [
        f"zone eu-west-1a: new, pool {A} with 1 machine of 1 to 3",
        f"zone eu-west-1b: new, pool {B} with 1 machine of 1 to 3",
        "created: 2 zones",
    ]
    assert of(lines, "machinedeployment/") == [f"{A} created", f"{B} created"]
    await rolled_out(place, A, B)
    assert sorted({m.pool for m in machines.there.values()}) == [A, B]
    head, row = (await said(place, "get", "workerpools"))[:2]
    assert head.split()[:3] == ["NAME", "ZONES", "REPLICAS"]
    assert row.split()[:3] == ["workers", "2", "2"]

    # What an autoscaler sets stays, and nothing else has changed.
    await said(place, "scale", "pool", A, "--replicas", "3")
    await rolled_out(place, A)
    assert await said(place, "diff", "-f", "-", stdin=manifest()) == []
    assert of(await applied(place, manifest(maximum=4)), "workerpool/workers zone eu-west-1a: ") == [
        "replicas 3 -> 2, of 1 to 2"
    ]
    await rolled_out(place, A)

    # Tags are hot, in all zones; their classes keep their names.
    tagged = manifest(maximum=4, providerConfig={"vmTags": {"team": "core"}, "nicTags": {}, "diskTags": {}})
    lines = await said(place, "diff", "-f", "-", stdin=tagged, code=1)
    assert "  spec.providerConfig.vmTags.team: platform -> core: hot update" in lines
    assert "  zone eu-west-1a: hot update of 2 machines" in lines
    assert "  in all zones: 3 machines updated in place" in lines
    assert not [line for line in lines if "roll" in line]

    # Another image is a class of another name: each zone rolls.
    newer = manifest(maximum=4, machine=image("4459.2.2"))
    lines = await said(place, "apply", "--dry-run", "-f", "-", stdin=newer)
    assert "  spec.machine.image.version: 4459.2.1 -> 4459.2.2: needs replacement (a rollout)" in lines
    assert "  zone eu-west-1b: rolls 1 machine" in lines
    assert "  in all zones: 3 machines replaced" in lines
    before = set(machines.there)
    await applied(place, newer)
    await rolled_out(place, A, B)
    assert not before & set(machines.there)
    assert "flatcar 4459.2.2" in "\n".join(await said(place, "describe", "workerpool", "workers"))
    status = "jsonpath={.status.phase} {.status.availableReplicas}"
    assert await said(place, "get", "workerpool", "workers", "-o", status) == ["Ready 3"]

    # A zone is taken out and another one comes in; classes that nobody uses any longer go with the next apply.
    moved = manifest(maximum=4, machine=image("4459.2.2"), zones=["eu-west-1a", "eu-west-1c"])
    lines = await said(place, "diff", "-f", "-", stdin=moved, code=1)
    assert "  zone eu-west-1b is taken out of worker pool workers, with 1 machine" in lines
    assert f"  zone eu-west-1c: new, pool {C} with 1 machine of 1 to 2" in lines
    lines = await applied(place, moved)
    assert [line.partition(":")[0] for line in of(lines, f"machinedeployment/{B} ")] == ["deleted"]
    assert len(of(lines, "machineclass/workers-eu-west-1a-be692 deleted")) == 1
    await said(place, "wait", "pool", B, "--for=deleted", "--timeout=60s")
    await rolled_out(place, A, C)
    assert sorted({m.pool for m in machines.there.values()}) == [A, C]

    # Its number is distributed over the zones, within minimum and maximum.
    foretold = await said(place, "scale", "workerpool/workers", "--replicas", "3", "--dry-run")
    assert [line.split()[0] for line in foretold if line.endswith("(dry run)")] == [
        f"machinedeployment/{A}",
        f"machinedeployment/{C}",
    ]
    await said(place, "scale", "workerpool", "workers", "--replicas", "3", "--current-replicas", "3")
    assert await said(place, "wait", "workerpool", "workers", "--timeout=60s") == [
        f"machinedeployment/{A} is rolled-out",
        f"machinedeployment/{C} is rolled-out",
    ]
    assert Counter(m.pool for m in machines.there.values()) == {A: 2, C: 1}
    for given, wrong in (
        (["--replicas", "5"], "5 is not within its minimum 2 and maximum 4: change these in its manifest"),
        (["--replicas", "2", "--current-replicas", "4"], "has 3 replicas in all zones, not 4: nothing was changed"),
        (["--remove", "m1"], "--remove needs exactly one pool, the one of a zone"),
    ):
        assert wrong in (await place.run("scale", "workerpool", "workers", *given)).err

    # What is printed can be applied, and changes nothing.
    printed = "\n".join(await said(place, "get", "workerpool", "workers", "-o", "yaml"))
    assert await said(place, "diff", "-f", "-", stdin=printed) == []
    assert (await said(place, "tree", "workerpool", "workers"))[1].startswith("workerpool/workers")

    # It goes with all its zones.
    lines = await said(place, "delete", "workerpool", "workers", "--dry-run")
    assert lines[0] == "workerpool/workers deletion, with 2 zones (dry run)"
    await said(place, "delete", "workerpool", "workers", "--wait", "--timeout", "60s")
    assert machines.there == {}

    async def gone() -> bool:
        return await hostler_of(place).worker_pools.list() == []

    await eventually(gone, "no worker pools")
    assert await said(place, "wait", "workerpool/workers", "--for=deleted") == ["workerpool/workers is not there"]
    assert "is not known" in (await place.run("wait", "workerpool/workers")).err


@pytest.mark.parametrize("provider", ["azure", "gcp"])
async def test_a_workers_block_on_another_cloud(place: Place, machines: Machines, provider: str) -> None:
    document = yaml.safe_load((EXAMPLES / f"{provider}.yaml").read_text())
    spec = document["spec"]
    infrastructure, cloud = spec.pop("infrastructure"), spec.pop("provider")
    worker = {"name": "w", **spec}
    shoot = {
        "kind": "Shoot",
        "metadata": {"name": "s"},
        "spec": {"provider": {"type": provider, "workers": [worker]}},
    }
    beside = {"kind": "Infrastructure", "metadata": {"name": "s"}, "provider": cloud, "spec": infrastructure}
    await applied(place, yaml.safe_dump_all([shoot, beside]))
    pools = [f"w-{zone}" for zone in spec["zones"]]
    await rolled_out(place, *pools)
    assert sorted({m.pool for m in machines.there.values()}) == pools


async def test_a_pool_of_the_same_name_that_stands_alone_is_not_taken_over(place: Place, machines: Machines) -> None:
    document = yaml.safe_load((ROOT / "examples" / "pool" / "pool.yaml").read_text())
    document["metadata"]["name"] = A
    document["spec"]["replicas"] = 0
    of_pool = yaml.safe_dump_all([document, yaml.safe_load((ROOT / "examples" / "aws" / "class.yaml").read_text())])
    await applied(place, of_pool)
    done = await place.run("apply", "-f", "-", stdin=manifest())
    assert done.code == 1
    assert f"workerpool workers: pool {A} is there and is not of worker pool workers" in done.err
    assert await said(place, "get", "workerpools") == []


async def test_a_shoot_without_its_infrastructure_says_what_is_missing(place: Place) -> None:
    shoot = next(yaml.safe_load_all((EXAMPLES / "shoot.yaml").read_text()))
    done = await place.run("apply", "-f", "-", stdin=yaml.safe_dump(shoot))
    assert done.code == 1
    assert "workerpool shoot-w1: spec.infrastructureRef: no Infrastructure 'demo' is in the files: add it" in done.err
