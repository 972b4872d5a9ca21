"""`hostler diff`, `apply --dry-run` and `update-class` on machines that run: what they announce is what is done.

Everything is real except the cloud, and the commands are processes of their own. tests/component/test_cli_classes.py
has their words without a cloud, tests/system/test_cli_class_life.py one class from its first apply to its end.
"""

from __future__ import annotations

import re

from lifekit import Stack, hostler
from machine.hot_updates import MUST, Hot, instance_id, named, tags, text, users

from resources.machine_class.state import UpdateState

CLASS = "demo-m5-large"
CLUSTER_TAG, ROLE_TAG = MUST


WARNED = re.compile("warning: .*providerSpec.monitoring: .*no effect.*")


async def test_what_is_said_beforehand_is_what_is_done(stack: Stack) -> None:
    hot = Hot(stack)
    await hot.apply()
    machines = await hot.machines("m-1", "m-2")
    vms = [instance_id(m) for m in machines]
    before, since = {vm: stack.tags(vm) for vm in vms}, hot.mark()
    changed = text(hot.changed(vmTags=tags(hot, team="web"), machineType="m5.xlarge", monitoring=True))

    said = [
        f"machineclass/{CLASS} configured: generation 1 -> 2",
        "  providerSpec.machineType: m5.large -> m5.xlarge: needs replacement (Outdated)",
        "  providerSpec.monitoring: (none) -> true: affects no running VM",
        "  providerSpec.vmTags.team: platform -> web: hot update",
        "  touches 2 machines (m-1, m-2)",
    ]
    shown = (await hostler(stack, "diff", "-f", "-", stdin=changed, expect=1)).splitlines()
    assert [line for line in shown if not WARNED.fullmatch(line)] == said
    assert len(shown) == len(said) + 1
    dry = await hostler(stack, "apply", "--dry-run", "-f", "-", stdin=changed)
    assert dry.splitlines() == [f"{said[0]} (dry run)", *said[1:]]
    assert (await hot.of_class()).generation == 1
    assert {vm: stack.tags(vm) for vm in vms} == before
    assert hot.changing(since) == []

    await hostler(stack, "apply", "-f", "-", stdin=changed)
    assert await hostler(stack, "diff", "-f", "-", stdin=changed) == ""
    known = await hot.done()
    assert {u.state for u in known.users.values()} == {UpdateState.OUTDATED}
    assert [(c.hot, c.rolls) for c in known.changes[1:]] == [(["vmTags"], ["machineType"])]
    assert {vm: stack.tags(vm) for vm in vms} == {vm: {**before[vm], "team": "web"} for vm in vms}
    assert hot.changing(since) == ["CreateTags"] * 2
    assert sorted(stack.launched()) == sorted(vms)


async def test_what_is_refused_changes_nothing(stack: Stack) -> None:
    """A must-tag that would change, and one that would go: all three commands say so, and nothing is applied."""
    hot = Hot(stack)
    await hot.apply()
    machine = await hot.machine()
    vm = instance_id(machine)
    before, since = stack.tags(vm), hot.mark()
    gone = {k: v for k, v in tags(hot, team="web").items() if k != CLUSTER_TAG}
    for wrong, words in (
        (hot.changed(vmTags=tags(hot, team="web", **{ROLE_TAG: "2"})), f"the tag {ROLE_TAG} may not be changed"),
        (hot.changed(vmTags=gone), f"the tag {CLUSTER_TAG} may not be removed"),
    ):
        shown = await hostler(stack, "diff", "-f", "-", stdin=text(wrong), expect=1)
        assert f"  refused: {words}" in shown
        assert "keep " in shown
        for dry_run in (["--dry-run"], []):
            refused = await hostler(stack, "apply", *dry_run, "-f", "-", stdin=text(wrong), expect=1)
            assert f"machineclass {CLASS}: {words}" in refused
    assert (await hot.of_class()).generation == 1
    assert stack.tags(vm) == before
    assert hot.changing(since) == []
    await hot.everywhere(vmTags=tags(hot, team="web"))
    assert stack.tags(vm) == {**before, "team": "web"}


async def test_a_machine_is_given_another_class(stack: Stack) -> None:
    """The VM gets its hot fields and stays; the former class is free when its last machine has left."""
    hot = Hot(stack)
    await hot.apply()
    first, second = await hot.machines("m-1", "m-2")
    others = Hot(stack, manifest=named(hot.changed(vmTags=tags(hot, team="web", more="1")), "other"))
    await others.apply()
    foreign = Hot(stack, manifest=named(hot.changed(vmTags={**tags(hot), CLUSTER_TAG: "2"}), "foreign"))
    larger = Hot(stack, manifest=named(others.changed(machineType="m5.xlarge"), "larger"))
    for of in (foreign, larger):
        await of.apply()

    assert "'othr' of cluster 'demo' is not known" in await hostler(stack, "update-class", "m-1", "othr", expect=1)
    refused = await hostler(stack, "update-class", "m-1", "foreign", expect=1)
    assert f"the tag {CLUSTER_TAG} may not be changed" in refused
    since = hot.mark()
    said = await hostler(stack, "--as", "alice", "update-class", "m-1", "other", "--reason", "a trial")
    assert said == "machine/m-1 configured; hot update of providerSpec.vmTags\n"
    await users(hot, "m-2")
    await users(others, "m-1")
    assert {k: stack.tags(instance_id(first))[k] for k in ("team", "more")} == {"team": "web", "more": "1"}
    assert stack.tags(instance_id(second))["team"] == "platform"
    assert hot.changing(since) == ["CreateTags"]

    refused = await hostler(stack, "delete", "class", CLASS, expect=1)
    assert f"machineclass {CLASS} is used by 1 machine (m-2)" in refused
    await hostler(stack, "update-class", "m-2", "other")
    await users(others, "m-1", "m-2")
    await users(hot)
    assert f"machineclass {CLASS} is gone" in await hostler(stack, "delete", "class", CLASS)

    said = await hostler(stack, "update-class", "m-2", "larger")
    assert "the VM was created with other values of providerSpec.machineType" in said
    known = await users(larger, "m-2")
    assert known.users["m-2"].state is UpdateState.OUTDATED
    assert "Outdated" in await hostler(stack, "describe", "machine", "m-2")
    # The newest generation of its own class reaches it like any other machine.
    await larger.everywhere(vmTags=tags(others, team="db", more="1"))
    assert stack.tags(instance_id(second))["team"] == "db"
    assert sorted(stack.launched()) == sorted(map(instance_id, (first, second)))
