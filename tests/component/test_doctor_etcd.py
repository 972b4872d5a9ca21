"""`hostler doctor` and an etcd that a control plane guards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from etcd.fake import FakeEtcd, fake_etcd
from etcd.members import authority, issue
from faults.control_plane_flows import LiveControlPlane
from lifekit import Stack, eventually, new_stack, tenant
from machine.lives import client_of
from temporalio.testing import WorkflowEnvironment

from resources.names import CONTROL_PLANE_LABELS, MACHINE_NAME_LABEL
from starter.doctor import etcd as doctor
from starter.doctor.findings import Finding, Level


@dataclass
class Guarded:
    stack: Stack
    etcd: FakeEtcd
    folder: Path

    async def said(self) -> list[Finding]:
        found: list[Finding] = await doctor.examine(self.stack.settings, self.stack.cluster, client_of(self.stack))
        return found


@pytest.fixture
async def guarded(temporal: WorkflowEnvironment) -> AsyncIterator[Guarded]:
    """A control plane that guards an etcd of three members, whose Nodes are there; no worker runs."""

    async def nobody() -> list[str]:
        return []

    async with new_stack(temporal.client) as alone, tenant(alone, "c1") as stack:
        await LiveControlPlane(stack, "cp").start(etcdGuard=True)
        for name in "abc":
            labels = {CONTROL_PLANE_LABELS[0]: "", MACHINE_NAME_LABEL: name}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{name}", "labels": labels}}
            file = stack.settings_file.with_name(f"{name}.json")
            file.write_text(json.dumps(node))
            await asyncio.to_thread(stack.kubectl, "create", "-f", str(file))
        async with fake_etcd(stack, nobody) as etcd:
            for name in "abc":
                etcd.join(f"node-{name}")
            found = Guarded(stack, etcd, stack.settings_file.parent / "etcd")
            await eventually(found.said, bool, "the control plane is known")
            yield found


async def test_all_is_well(guarded: Guarded) -> None:
    (found,) = await guarded.said()
    assert (found.subject, found.level) == ("etcd of c1", Level.OK)
    assert found.message == f"3 members vote, and all are healthy; asked at {guarded.etcd.url}"


async def test_members_that_do_not_answer(guarded: Guarded) -> None:
    guarded.etcd.down = {"node-b"}
    (found,) = await guarded.said()
    assert found.level is Level.PROBLEM
    assert found.message.startswith("members that vote are not healthy: node-b (")
    guarded.etcd.down = {"node-b", "node-c"}
    (found,) = await guarded.said()
    assert found.message.startswith("it has no quorum: 1 of 3 voting members answer; node-b (")
    assert "restore etcd from a snapshot" in found.remedy


async def test_a_member_of_no_machine(guarded: Guarded) -> None:
    guarded.etcd.join("somebodys")
    (found,) = await guarded.said()
    assert (found.level, found.message.partition(";")[0]) == (
        Level.WARNING,
        "members of no machine that is known: somebodys",
    )


async def test_an_endpoint_that_is_none(guarded: Guarded) -> None:
    reached = guarded.stack.settings.clusters["c1"].etcd
    assert reached is not None
    wrong = reached.endpoints[0].replace(":2379", ":2378")
    reached.endpoints.append(wrong)
    (found,) = await guarded.said()
    assert found.level is Level.WARNING
    assert wrong in found.message
    reached.endpoints.pop(0)
    (found,) = await guarded.said()
    assert found.level is Level.PROBLEM
    assert found.message.startswith(f"no member answers: {wrong}: ")


async def test_files_that_cannot_be_read_and_settings_that_name_none(guarded: Guarded) -> None:
    (guarded.folder / "client.key").unlink()
    (found,) = await guarded.said()
    assert found.level is Level.PROBLEM
    assert "cannot be read: key: " in found.message
    assert "certificate" not in found.message
    guarded.stack.settings.clusters["c1"] = guarded.stack.settings.clusters["c1"].model_copy(update={"etcd": None})
    (found,) = await guarded.said()
    assert "these settings have no clusters.c1.etcd" in found.message
    roles = guarded.stack.settings.worker.model_copy(update={"roles": ["workflows"]})
    guarded.stack = replace(guarded.stack, settings=guarded.stack.settings.model_copy(update={"worker": roles}))
    (found,) = await guarded.said()
    assert found.level is Level.OK


async def test_a_certificate_of_another_authority(guarded: Guarded) -> None:
    for file in ("client.crt", "client.key", "ca.crt"):
        (guarded.folder / file).unlink()
    authority(guarded.folder)
    issue(guarded.folder, "client", None)
    (found,) = await guarded.said()
    assert found.message.startswith(f"no member answers: {guarded.etcd.url}: ")
    assert "certificate verify failed" in found.message
    assert "PRIVATE" not in found.message + found.remedy
