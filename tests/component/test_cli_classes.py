"""Classes on the command line, with the real MachineClassWorkflow and machines that are played."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from cli.place import Place, class_yaml, eventually, impatient, machine_yaml, place, secret_yaml, text, working
from cli.standins import UPDATE_FAILS

from resources.intents import Intent
from resources.machine.state import ClassSnapshot
from resources.machine_class.state import ClassIntent, ClassReport, ClassState, UpdateState, User, UserTrouble
from resources.manifests import MachineClass
from resources.names import class_id
from resources.reasons import next_step
from resources.settings import load_settings
from starter.commands.describe import class_page
from starter.sdk.client import HostlerClient
from starter.sdk.results import ClassDescription, ClassSummary

NOW = datetime(2026, 3, 1, 3, 0, 0, tzinfo=UTC)

__all__ = ["impatient", "place", "working"]  # fixtures


async def apply(place: Place, *manifests: dict[str, Any]) -> list[str]:
    return (await place.run("apply", "-f", "-", stdin=text(*manifests))).ok().splitlines()


async def diff(place: Place, *manifests: dict[str, Any]) -> tuple[int, list[str]]:
    ran = await place.run("diff", "-f", "-", stdin=text(*manifests))
    assert ran.err == ""
    return ran.code, ran.out.splitlines()


async def known(place: Place, *machines: str) -> None:
    """Waits until the class has heard from exactly these machines."""
    handle = place.client.get_workflow_handle(class_id(place.cluster, "c1"))

    async def look() -> bool:
        state: ClassState = await handle.query("describe", result_type=ClassState)
        return sorted(n for n, u in state.users.items() if u.generation == state.generation) == sorted(machines)

    await eventually(look, f"word of {machines}")


async def test_a_class_from_the_first_apply_to_its_end(working: Place) -> None:
    assert await apply(working, class_yaml()) == [f"cluster/{working.cluster} created", "machineclass/c1 created"]
    await apply(working, machine_yaml("m1"), machine_yaml("m2", **{UPDATE_FAILS: "yes"}))  # of the class's workflow
    await known(working, "m1", "m2")
    await apply(working, class_yaml(team="b"))
    await known(working, "m1", "m2")

    listed = (await working.run("get", "classes")).ok().splitlines()
    assert listed[0].split() == ["NAME", "PROVIDER", "GENERATION", "UPDATED", "USERS", "STATES", "AGE"]
    assert listed[1].split()[:-1] == ["c1", "AWS", "2", "1", "2", "1", "Failed,", "1", "Updated"]
    wide = (await working.run("get", "mcc", "c1", "-o", "wide")).ok().splitlines()[1].split()
    assert wide[-2:] == ["Updating", "NotAuthorized"]
    assert (await working.run("get", "classes", "-o", "name")).ok() == "machineclass/c1\n"

    described = (await working.run("describe", "class", "c1")).ok()
    for words in (
        "Generation:    2",
        "Last updated:  1: the newest that all its users have",
        "At a time:     10 (annotation hostler.io/update-concurrency)",
        "Failed    NotAuthorized   1",
        "may not create tags",
        "(in 9m",  # the next try
        "What can be done about NotAuthorized: If the cloud refuses: correct the Secret",
        "hot update of vmTags\n",
        "created\n",
        "Applied",  # the journal
        "Web UI: http://127.0.0.1:8233/namespaces/default/workflows/machineclass%2F",
    ):
        assert words in described, described

    printed = (await working.run("get", "class", "c1", "-o", "yaml")).ok()
    assert yaml.safe_load(printed)["status"] == {
        "lastUpdatedGeneration": 1,
        "users": 2,
        "states": {"Failed": 1, "Updated": 1},
    }
    assert await apply(working, yaml.safe_load(printed)) == ["machineclass/c1 unchanged"]
    assert json.loads((await working.run("get", "class", "c1", "-o", "json")).ok())["metadata"]["generation"] == 2

    refused = await working.run("delete", "class", "c1")
    assert (refused.code, refused.out) == (1, "")
    assert "machineclass c1 is used by 2 machines (m1, m2): delete them first" in refused.err
    assert (await working.run("delete", "class", "c1", "--dry-run")).code == 1
    (await working.run("delete", "machine", "m1", "m2", "--wait")).ok()
    await known(working)
    assert (await working.run("delete", "class", "c1", "--dry-run")).ok() == "machineclass/c1 deletion (dry run)\n"
    deleted = await working.run("delete", "class", "c1")
    assert deleted.ok() == "machineclass/c1 deletion: machineclass c1 is gone\n"
    await asyncio.wait_for(working.client.get_workflow_handle(class_id(working.cluster, "c1")).result(), 30)

    assert "(gone)" in (await working.run("describe", "class", "c1")).ok()
    gone = await working.run("get", "class", "c1")
    assert (gone.code, "class c1 is gone since" in gone.err) == (1, True)
    assert "is already gone since" in (await working.run("delete", "class", "c1")).ok()
    assert (await apply(working, class_yaml()))[-1] == "machineclass/c1 created"


def page_of(**fields: Any) -> str:
    summary = ClassSummary("c1", "prod", NOW, "Updating", state=ClassState(name="c1", cluster="prod", **fields))
    return "\n".join(class_page(ClassDescription(summary), NOW))


def test_who_has_still_to_take_a_change_is_named() -> None:
    done = User(generation=2, applied=2, state=UpdateState.UPDATED, told=2)
    at_it = done._replace(state=UpdateState.UPDATING, applied=1)
    silent = User(generation=1, applied=1, state=UpdateState.UPDATED, told=2)
    untold = silent._replace(told=1)
    snapshot = ClassSnapshot.of(MachineClass.model_validate(class_yaml()), 2)
    users = {"done": done, "silent": silent}
    users |= {f"at-{n:02}": at_it for n in range(12)} | {f"untold-{n}": untold for n in range(3)}
    shown = page_of(machine_class=snapshot, users=users, update_concurrency=20)
    first = ", ".join(f"at-{n:02}" for n in range(10))
    for words in (
        "Generation 2 is being rolled out:\n",
        f"  Being updated:        {first} and 2 more\n",
        "  Told, no report yet:  silent\n",
        "  Not told yet:         3; 20 at a time",
    ):
        assert words in shown, shown
    assert re.search(r"Updated +<none> +1\n", shown)  # none of those that were Updated with the former generation
    assert re.search(r"Updating +<none> +16\n", shown)
    assert "under way" not in page_of(machine_class=snapshot, users={"done": done})


def test_the_next_try_of_a_class_is_never_in_the_past() -> None:
    """A machine says it when an error is new, and not with each try."""
    failed = User(generation=1, applied=0, state=UpdateState.FAILED, reason="QuotaExceeded", told=1)
    snapshot = ClassSnapshot.of(MachineClass.model_validate(class_yaml()))
    times = {"m1": NOW - timedelta(minutes=3), "m2": NOW + timedelta(minutes=3)}
    troubles = {name: UserTrouble(message="too much", next_try=time) for name, time in times.items()}
    shown = page_of(machine_class=snapshot, users=dict.fromkeys(times, failed), troubles=troubles)
    assert re.search(r"m1 +QuotaExceeded +tried again since 2026-03-01 02:57:00 UTC \(3m ago\) +too much\n", shown)
    assert re.search(r"m2 +QuotaExceeded +2026-03-01 03:03:00 UTC \(in 3m\) +too much\n", shown)
    assert shown.count(f"What can be done about QuotaExceeded: {next_step('QuotaExceeded', 'prod', 'm1')}") == 1


async def test_diff_says_what_each_field_does(working: Place) -> None:
    new = await diff(working, secret_yaml("canary"), class_yaml(), machine_yaml("m1"))
    assert new == (
        1,
        ["secret/s1 created", f"cluster/{working.cluster} created", "machineclass/c1 created", "machine/m1 created"],
    )
    await apply(working, secret_yaml("canary"), class_yaml(), machine_yaml("m1"), machine_yaml("m2"))
    await known(working, "m1", "m2")
    assert await diff(working, secret_yaml("canary"), class_yaml(), machine_yaml("m1")) == (0, [])

    wanted = class_yaml(ami="ami-2", team="b")
    wanted["providerSpec"]["kind"] = "AWSProviderSpec"
    machine = machine_yaml("m1", colour="red")
    machine["spec"]["drainTimeout"] = "1h"
    lines = [
        "secret/s1 configured: its values, which are not shown",
        "machineclass/c1 configured: generation 1 -> 2",
        "  providerSpec.ami: ami-1 -> ami-2: needs replacement (Outdated)",
        "  providerSpec.kind: (none) -> AWSProviderSpec: affects no running VM",
        "  providerSpec.vmTags.team: a -> b: hot update",
        "  touches 2 machines (m1, m2)",
        "machine/m1 configured",
        "  metadata.labels.colour: (none) -> red: applied in place",
        "  spec.drainTimeout: 2h -> 1h: applied in place",
        "machine/m2 configured: its class tells it",
    ]
    files = (secret_yaml("other"), wanted, machine, machine_yaml("m2"))
    assert await diff(working, *files) == (1, lines)
    dry = await working.run("apply", "-f", "-", "--dry-run", stdin=text(*files))
    assert [line.removesuffix(" (dry run)") for line in dry.ok().splitlines()] == lines
    assert await diff(working, class_yaml()) == (0, [])  # nothing was changed by asking

    other = {**machine_yaml("m2"), "spec": {"class": {"name": "c2"}, "creationTimeout": "1h30m"}}
    _, shown = await diff(working, class_yaml("c2", ami="ami-9"), other)
    assert shown == [
        "machineclass/c2 created",
        "machine/m2 configured",
        "  spec.class.name: c1 -> c2: applied in place",
        "  providerSpec.ami: ami-1 -> ami-9: needs replacement (Outdated)",
    ]

    wrong = await working.run("diff", "-f", "nowhere.yaml")
    assert (wrong.code, wrong.out, "cannot be read" in wrong.err) == (2, "", True)
    unreachable = await working.run("diff", "-f", "-", stdin=text(class_yaml()), TEMPORAL_ADDRESS="127.0.0.1:1")
    assert unreachable.code == 3


async def test_what_will_be_refused_is_refused_before_anything_is_sent(working: Place) -> None:
    key = "kubernetes.io/cluster/demo"
    await apply(working, class_yaml(**{key: "2"}))
    mended = ["machineclass/c1 configured: generation 1 -> 2", f'  providerSpec.vmTags["{key}"]: 2 -> 1: hot update']
    assert (await diff(working, class_yaml(**{key: "1"})))[1][:2] == mended  # as long as no machine carries it
    await apply(working, class_yaml(**{key: "1"}), machine_yaml("m0"))
    await known(working, "m0")
    wanted = (class_yaml(), machine_yaml("m1"))
    code, lines = await diff(working, *wanted)
    assert code == 1
    assert lines[1] == f'  providerSpec.vmTags["{key}"]: 1 -> (none): refused'
    assert lines[3].startswith(f"  refused: the tag {key} may not be removed")
    bad = class_yaml(**{key: "1"})
    bad["metadata"]["annotations"] = {"hostler.io/update-concurrency": "many"}
    refused = await working.run("apply", "-f", "-", stdin=text(bad))
    assert (refused.code, "'many' is not a number of machines; write 1 or more" in refused.err) == (1, True)
    for more in ([], ["--dry-run"]):
        refused = await working.run("apply", "-f", "-", *more, stdin=text(*wanted))
        assert (refused.code, f"machineclass c1: the tag {key} may not be removed" in refused.err) == (1, True)
    assert (await working.run("get", "machine", "m1")).code == 1
    assert (await apply(working, class_yaml(**{key: "1"}), machine_yaml("m1")))[-1] == "machine/m1 created"


async def test_a_machine_takes_another_class(working: Place) -> None:
    await apply(working, class_yaml(), class_yaml("c2", ami="ami-2"), machine_yaml("m1"))
    await known(working, "m1")
    for machine, name, words in (("m1", "c3", "`hostler get classes"), ("ghost", "c1", "'ghost'")):
        wrong = await working.run("update-class", machine, name)
        assert (wrong.code, wrong.out, words in wrong.err) == (1, "", True)
    taken = await working.run("update-class", "m1", "c2")
    assert taken.ok() == "machine/m1 configured; takes generation 1\n"
    await known(working)
    printed = yaml.safe_load((await working.run("get", "machine", "m1", "-o", "yaml")).ok())
    assert printed["spec"]["class"]["name"] == "c2"
    refused = await working.run("delete", "class", "c1", "c2")
    assert refused.out == "machineclass/c1 deletion: machineclass c1 is gone\n"
    assert "machineclass c2 is used by 1 machine (m1)" in refused.err


@pytest.mark.usefixtures("impatient")
async def test_without_a_worker(place: Place) -> None:
    lines = await apply(place, class_yaml(), machine_yaml("m1"))
    assert lines[1:] == ["machineclass/c1 created", "machine/m1 created"]
    (said,) = await apply(place, class_yaml(team="b"))
    assert said.startswith("machineclass/c1 configured: recorded; ")
    assert await apply(place, class_yaml(team="b")) == ["machineclass/c1 unchanged"]
    code, shown = await diff(place, class_yaml(team="c"))
    assert (code, shown[0]) == (1, "machineclass/c1 configured: generation 2 -> 3")
    assert shown[1].startswith("  providerSpec.vmTags.team: b -> c: hot update or replacement? ")
    described = (await place.run("describe", "class", "c1")).ok()
    assert f"No answer: nobody polls {place.queue}" in described
    assert (await place.run("renew", "class", "c1")).ok().startswith("machineclass/c1 renewal: recorded; ")
    async with place.worker():
        await known(place, "m1")
        printed = yaml.safe_load((await place.run("get", "class", "c1", "-o", "yaml")).ok())
        shown = (await place.run("describe", "class", "c1")).ok()
    secrets = shown.partition("\nSecrets:\n")[2].splitlines()
    assert re.fullmatch(r"  Secret \S+ does not exist in \S.*: hostler apply -f SECRET-FILE", secrets[0]), shown
    assert (printed["metadata"]["generation"], printed["providerSpec"]["vmTags"]) == (2, {"team": "b"})


@pytest.mark.usefixtures("impatient")
async def test_without_a_worker_what_was_recorded_counts_as_far_as_it_will_be_taken(place: Place) -> None:
    handle = place.client.get_workflow_handle(class_id(place.cluster, "c1"))

    async def tell(message: str, *args: Any) -> None:
        await handle.signal(message, args=args)

    async def look() -> ClassState:
        hostler = HostlerClient(place.client, load_settings(place.settings_file), cluster=place.cluster)
        found = await hostler.classes.current("c1")
        assert found is not None
        return found

    await apply(place, class_yaml())
    other = ClassSnapshot.of(MachineClass.model_validate(class_yaml(team="z"))).model_copy(update={"provider": "GCP"})
    await tell("apply", ClassIntent(id="moves", machine_class=other))  # the workflow will refuse it
    await tell("apply", "typed by hand, and wrong")
    now = datetime.now(UTC)
    await tell("report", ClassReport(user="m1", generation=1, applied=1, state=UpdateState.UPDATED, time=now))
    await tell("delete", Intent(id="used"))  # and this: it is used
    state = await look()
    assert (state.generation, state.machine_class.provider, state.deleted) == (1, "AWS", False)
    assert {n: (u.generation, u.applied, u.state) for n, u in state.users.items()} == {
        "m1": (1, 1, UpdateState.UPDATED)
    }
    assert (await apply(place, class_yaml(team="b")))[0].startswith("machineclass/c1 configured")
    await tell("forget_user", "m1")
    deletion = (await place.run("delete", "class", "c1")).ok()
    assert deletion.startswith("machineclass/c1 deletion: recorded; ")
    state = await look()
    assert (state.generation, state.users, state.deleted) == (2, {}, True)
    refused = await place.run("apply", "-f", "-", stdin=text(class_yaml(team="c")))
    assert (refused.code, "c1: it is being deleted; apply it again when it is gone" in refused.err) == (1, True)
    async with place.worker():
        await asyncio.wait_for(handle.result(), 60)  # as was foretold
    assert (await apply(place, class_yaml(team="c")))[-1] == "machineclass/c1 created"


async def test_usage(place: Place) -> None:
    for args in (
        ("get", "classes", "-l", "a=b"),
        ("delete", "class"),
        ("delete", "class", "c1", "--force"),
        ("renew", "classes", "--all"),
        ("update-class", "m1"),
        ("diff",),
    ):
        ran = await place.run(*args)
        assert (ran.code, ran.out) == (2, ""), args
