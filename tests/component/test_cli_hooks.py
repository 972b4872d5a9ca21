"""`hostler hook` and HostlerClient.hooks with the real workflow (stubs for its activities), and docs/hooks.md."""

from __future__ import annotations

import json
import re
import shlex
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from cli.pages import parse, typed
from cli.place import Place, class_yaml, eventually, impatient, machine_yaml, place, text, working
from machine.stubs import Handle, Machines, phase, reason, stubbed
from paths import ROOT
from temporalio.testing import WorkflowEnvironment
from typer.main import get_command

from resources.machine.hooks import HookIntent
from resources.machine.manifest import HOOKS_MOST, HookKind, LifecycleHooks
from resources.machine.state import Phase
from resources.manifests import load_manifests
from resources.names import machine_id
from resources.settings import load_settings
from starter.commands.hook import app
from starter.sdk.apply.diff import HOT, IN_PLACE, _pool_effect
from starter.sdk.client import HostlerClient
from starter.sdk.errors import NotFound, Refused
from starter.sdk.machines.hooks import Held, hooks_of
from workflows.machine import MachineWorkflow

__all__ = ["impatient", "place", "working"]  # fixtures
PAGE = (ROOT / "docs/hooks.md").read_text()


def client_of(place: Place) -> HostlerClient:
    return HostlerClient(place.client, load_settings(place.settings_file), requested_by="tester")


@dataclass
class Real:
    """A machine that runs, by the real workflow, in a place of the command line."""

    place: Place
    machines: Machines
    name: str
    handle: Handle

    async def hook(self, verb: str, *words: str) -> str:
        return (await self.place.run("hook", verb, self.name, *words)).ok()


@pytest.fixture
async def real(temporal: WorkflowEnvironment, place: Place) -> AsyncIterator[Real]:
    async with stubbed(temporal.client) as machines:
        place.write_settings(queuePrefix=machines.prefix, defaultCluster=machines.prefix)
        state = machines.new_state(f"m-{uuid.uuid4().hex[:8]}")
        state.spec.lifecycle_hooks = LifecycleHooks.model_validate(
            {"preTerminate": [{"name": "example.com/Backup", "owner": "backup operator"}]}
        )
        handle = await temporal.client.start_workflow(
            MachineWorkflow.run, state, id=machine_id(state.cluster, state.name), task_queue=machines.prefix
        )
        machines.started.append(handle)
        await reason(handle, "NodeNotSeen")
        await handle.signal(MachineWorkflow.observe, machines.facts())
        await phase(handle, Phase.RUNNING)
        yield Real(place, machines, state.name, handle)


async def test_hooks_come_and_go(real: Real) -> None:
    added = await real.hook(
        "add", "EtcdQuorumOperator", "--owner", "clusteroperator/etcd", "--as", "ops", "--reason", "r"
    )
    assert added == (
        f"machine/{real.name}: preDrain hook EtcdQuorumOperator of clusteroperator/etcd is added; it holds up the "
        "drain until it is removed\n"
    )
    head, first, second = (await real.hook("list")).splitlines()
    assert head.split() == ["KIND", "NAME", "OWNER", "HOLDS", "FROM"]
    assert re.fullmatch(r"preDrain +EtcdQuorumOperator +clusteroperator/etcd +later +added \d+s ago by ops: r", first)
    assert re.fullmatch(r"preTerminate +example.com/Backup +backup operator +later +spec", second)
    assert await real.hook("list", "-o", "name") == "preDrain/EtcdQuorumOperator\npreTerminate/example.com/Backup\n"
    (one,) = json.loads(await real.hook("list", "-o", "json", "--kind", "preDrain"))["items"]
    assert one.pop("added").keys() == {"time", "requestedBy", "reason"}
    assert one == {"kind": "preDrain", "name": "EtcdQuorumOperator", "owner": "clusteroperator/etcd", "holds": False}

    removed = await real.hook("remove", "EtcdQuorumOperator")
    assert removed.endswith("is removed; the drain is no longer held up\n")
    assert len((await real.hook("list")).splitlines()) == 2
    none = await real.place.run("hook", "list", f"machine/{real.name}", "--kind", "preDrain")
    assert (none.code, none.out, none.err) == (0, "", f"Machine {real.name} has no preDrain hooks.\n")


async def test_the_command_in_the_wait_frees_the_machine(real: Real) -> None:
    """A person copies it from `describe` at night; the owner has a blank in it."""
    (await real.place.run("delete", "machine", real.name, "--no-wait")).ok()
    held = await reason(real.handle, "PreTerminateHook")
    (command,) = re.findall(r"`hostler ([^`]*)`", held.status.waiting_for.message)
    assert re.search(r"preTerminate +example.com/Backup +backup operator +now +spec", await real.hook("list"))
    assert "\nHooks:\n" in (await real.place.run("describe", "machine", real.name)).ok()
    (await real.place.run(*shlex.split(command))).ok()
    await real.handle.result()


async def test_what_is_refused(real: Real) -> None:
    for words, said in (
        (("add", real.name, "no name", "--owner", "bob"), "is not a hook's name"),
        (("add", real.name, "Backup", "--owner", "me"), "is not a hook's owner"),
        (("remove", real.name, "Backup"), "has no hook 'Backup'; it has preTerminate example.com/Backup of backup op"),
        (("remove", real.name, "example.com/Backup", "--owner", "bob"), "belongs to backup operator, not to bob"),
    ):
        ran = await real.place.run("hook", *words)
        assert (ran.code, ran.out) == (1, "")
        assert said in ran.err
    for wrong in (("add", real.name, "Backup"), ("add", real.name, "Backup", "--owner", "bob", "--kind", "post")):
        assert (await real.place.run("hook", *wrong)).code == 2
    node = await real.place.run("hook", "list", "node/n")
    assert (node.code, "'node/n' is not a machine; write NAME or machine/NAME" in node.err) == (2, True)
    gone = await real.place.run("hook", "list", "m-none")
    assert (gone.code, "m-none" in gone.err) == (1, True)


async def test_names_are_completed(real: Real) -> None:
    await real.hook("add", "Etcd", "--owner", "etcd-operator")
    offered = (await real.place.run("__complete", "--", "hook", "remove", real.name, "")).ok().splitlines()
    assert offered == ["Etcd\tpreDrain, etcd-operator", "example.com/Backup\tpreTerminate, backup operator"]
    kinds = (await real.place.run("__complete", "--", "hook", "add", real.name, "X", "--kind", "")).ok().splitlines()
    assert [k.strip() for k in kinds] == list(HookKind)


async def test_the_sdk(real: Real) -> None:
    hooks = client_of(real.place).hooks
    sent = await hooks.add(real.name, "Etcd", owner="etcd-operator", reason="a member")
    assert "is added" in sent.message
    first, second = await hooks.list(real.name)
    assert (first.kind, first.name, first.owner, first.holds) == (HookKind.PRE_DRAIN, "Etcd", "etcd-operator", False)
    assert first.added is not None
    assert (first.added.requested_by, first.added.reason) == ("tester", "a member")
    assert second == Held(HookKind.PRE_TERMINATE, "example.com/Backup", "backup operator", holds=False)
    assert await hooks.list(real.name, "preTerminate") == [second]
    assert "is removed" in (await hooks.remove(real.name, "Etcd", owner="etcd-operator")).message
    with pytest.raises(Refused, match="has no hook 'Etcd'"):
        await hooks.remove(real.name, "Etcd")
    with pytest.raises(NotFound):
        await hooks.add("m-none", "Etcd", owner="etcd-operator")


async def test_without_a_worker_it_is_recorded(place: Place, impatient: None) -> None:
    async with place.worker():
        (await place.run("apply", "-f", "-", stdin=text(class_yaml(), machine_yaml()))).ok()
    ran = await place.run("hook", "add", "m1", "Backup", "--owner", "alice")
    assert ran.ok() == f"machine/m1: recorded; no worker is polling {place.queue}\n"
    for words in (("Other", "--owner", "bob"), ("Backup", "--owner", "bob")):  # the latter is alice's, and is refused
        (await place.run("hook", "add", "m1", *words)).ok()
    client = client_of(place)

    async def hooks() -> list[Held]:
        """What `hostler adopt` would take over. Signals are not in the history while the worker that left had a task:
        until that task has timed out."""
        return hooks_of(await client.state(await client.life("m1")))

    assert [(h.kind, h.name, h.owner) for h in await eventually(hooks, "the hooks")] == [
        (HookKind.PRE_DRAIN, "Backup", "alice"),
        (HookKind.PRE_DRAIN, "Other", "bob"),
    ]
    assert "HookAsked" in (await place.run("events", "machine", "m1")).ok()


# -- manifests --------------------------------------------------------------------------------------------------------


async def test_a_changed_hook_is_taken_in_place(working: Place) -> None:
    (await working.run("apply", "-f", "-", stdin=text(class_yaml(), machine_yaml()))).ok()
    changed = machine_yaml()
    changed["spec"]["lifecycleHooks"] = {"preDrain": [{"name": "Backup", "owner": "alice"}]}
    diff = (await working.run("diff", "-f", "-", stdin=text(changed))).out.splitlines()
    assert f"  spec.lifecycleHooks.preDrain[0].name: (none) -> Backup: {IN_PLACE}" in diff
    assert "machine/m1 configured" in (await working.run("apply", "-f", "-", stdin=text(changed))).ok()
    assert "machine/m1 unchanged" in (await working.run("apply", "-f", "-", stdin=text(changed))).ok()
    stored = (await working.run("get", "machine", "m1", "-o", "json")).ok()
    assert json.loads(stored)["spec"]["lifecycleHooks"]["preDrain"] == [{"name": "Backup", "owner": "alice"}]


def test_in_a_pool_it_replaces_no_machine() -> None:
    for kind in HookKind:
        assert _pool_effect(f"template.spec.lifecycleHooks.{kind}[0].owner") == HOT


# -- docs/hooks.md ----------------------------------------------------------------------------------------------------


def test_the_page_has_a_manifest_that_loads() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    loaded = load_manifests(block, "hooks.md")
    assert loaded.warnings == []
    assert all(len(loaded.machines[0].spec.lifecycle_hooks.of(kind)) == 1 for kind in HookKind)


def test_the_command_line_takes_what_the_page_says() -> None:
    taken = [parse(words) for words in typed("docs/hooks.md")]
    assert sorted(set(taken)) == [f"hostler hook {verb}" for verb in ("add", "list", "remove")]
    assert set(get_command(app).commands) == {"add", "list", "remove"}


def test_plain_temporal_takes_what_the_page_says() -> None:
    lines = [shlex.split(line) for line in PAGE.splitlines() if line.startswith("temporal ")]
    sent = [HookIntent.model_validate_json(line[line.index("--input") + 1]) for line in lines]
    assert [(i.kind, i.remove) for i in sent] == [(HookKind.PRE_DRAIN, False), (None, True)]
    assert {line[line.index("--name") + 1] for line in lines} == {"hook"}
    assert {line[line.index("--workflow-id") + 1] for line in lines} == {machine_id("CLUSTER", "m-1")}


def test_the_page_has_the_codes_figures_and_words() -> None:
    assert f"At most {HOOKS_MOST} of a kind" in PAGE
    assert re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE) == list(HookKind)
