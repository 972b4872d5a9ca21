"""The MachineConfigs of a pool are merged in the order of their names, and some changes cannot be followed.

M-X…, M-R… and M-I… are the cases of upstream's tests; where the seed says otherwise the row says so."""

from __future__ import annotations

import base64
import gzip
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_configs.objects import OPTIONS, config, controller_config, file, ignition, key, made, pool

from planners.machine_config.merge import MergeError, in_order, merge
from planners.machine_config.picture import RenderOptions
from planners.machine_config.reconcilable import guilty, irreconcilable
from planners.machine_config.render import SIZE_MOST, Rendered, RenderRefused, render

DEFAULTS = {"osImageURL": "os:default", "baseOSExtensionsContainerImage": "extensions:default"}


def by_path(spec: dict[str, Any]) -> dict[str, Any]:
    return {f["path"]: f for f in spec["config"]["storage"]["files"]}


def test_a_config_without_ignition() -> None:  # M-X01
    assert merge([config("a", fips=True)], DEFAULTS) == {
        "config": {"ignition": {"version": "3.5.0"}},
        "extensions": [],
        "fips": True,
        "kernelArguments": [],
        "kernelType": "default",
        **DEFAULTS,
    }


OLD = base64.b64encode(gzip.compress(b"old", mtime=0)).decode()
GZIP = {"source": f"data:;base64,{OLD}", "compression": "gzip"}
X03 = [
    config("ccc", file("/etc/test2", "new"), role="infra"),
    config("bbb", file("/etc/test1", "new")),
    config("ddd", {"path": "/etc/test2", "contents": GZIP}),
    config("aaa", file("/etc/test1", "old")),
]


def test_purely_by_name_or_workers_first() -> None:
    """M-X03 is with workers first; the seed sorts purely by name, so that there the worker's ddd wins."""
    first = by_path(merge(X03, DEFAULTS, worker_first=True))
    assert first["/etc/test1"]["contents"] == {"source": "data:,new"}
    assert first["/etc/test2"]["contents"] == {"source": "data:,new"}  # and nothing of the gzip of before
    assert first["/etc/test1"]["overwrite"] is first["/etc/test2"]["overwrite"] is True
    assert by_path(merge(X03, DEFAULTS))["/etc/test2"]["contents"] == GZIP
    assert [c["metadata"]["name"] for c in in_order(X03)] == ["aaa", "bbb", "ccc", "ddd"]
    assert [c["metadata"]["name"] for c in in_order(X03, True)] == ["aaa", "bbb", "ddd", "ccc"]


def test_overwrite_is_as_it_is_said() -> None:
    spec = merge([config("a", file("/a", "x", overwrite=False), {"path": "/b", "mode": 256})], {})
    assert by_path(spec)["/a"]["overwrite"] is False
    assert "overwrite" not in by_path(spec)["/b"]  # without contents Ignition takes no overwrite


def test_what_stands_beside_ignition() -> None:
    found = merge(
        [
            config("b", kernelArguments=["x", "z"], extensions=["usbguard"], kernelType="default"),
            config("a", kernelArguments=["y", "x"], extensions=["ipsec"], kernelType="realtime"),
        ],
        {},
    )
    assert found["kernelArguments"] == ["y", "x", "x", "z"]  # in order of names, and none is left out
    assert (found["extensions"], found["kernelType"]) == (["ipsec", "usbguard"], "realtime")
    assert (found["fips"], found["osImageURL"]) == (False, "")


def test_only_a_persons_config_names_the_image() -> None:  # M-R01
    generated = made(
        "MachineConfig", "z", {"osImageURL": "no"}, annotations={key("generated-by-controller-version"): "1"}
    )
    people = [config("a", osImageURL="dummy-test-1"), config("b", osImageURL="dummy-change")]
    assert merge([*people, generated], DEFAULTS)["osImageURL"] == "dummy-change"
    assert merge([*people, config("c", osImageURL="dummy-change-2")], DEFAULTS)["osImageURL"] == "dummy-change-2"
    assert merge([generated], DEFAULTS)["osImageURL"] == "os:default"


@pytest.mark.parametrize(
    ("given_config", "words"),
    [
        (config("a", kernelType="rt"), "MachineConfig a: spec.kernelType: 'rt' is not supported"),
        (config("a", extensions=["vim"]), "MachineConfig a: spec.extensions: 'vim' is not supported; there are ipsec"),
        (config("a", kernelArguments="quiet"), "MachineConfig a: spec.kernelArguments: a list of texts is needed"),
        (config("a", config=ignition(version="4.0.0")), r"MachineConfig a: spec.config: ignition.version: '4\.0\.0'"),
        (
            config("a", extensions=["kernel-devel"], kernelType="realtime"),
            "MachineConfig a: spec.extensions: kernel-devel is not there for the kernel realtime",
        ),
    ],
)
def test_the_guilty_config_is_named(given_config: Any, words: str) -> None:
    with pytest.raises(MergeError, match=words):
        merge([config("0"), given_config, config("z")], {})


PARTS = st.fixed_dictionaries(
    {},
    optional={
        "files": st.lists(st.sampled_from(["/a", "/b", "/c"]), unique=True),
        "kernelArguments": st.lists(st.sampled_from("xyz")),
        "kernelType": st.sampled_from(["", "default", "realtime"]),
        "fips": st.booleans(),
        "osImageURL": st.sampled_from(["", "one", "two"]),
    },
)


@given(
    st.dictionaries(st.sampled_from(["00", "10-a", "10-b", "99"]), st.tuples(PARTS, st.sampled_from(["worker", "x"]))),
    st.booleans(),
    st.randoms(),
)
def test_no_order_changes_what_is_merged(given_configs: Any, worker_first: bool, chance: random.Random) -> None:
    configs = []
    for name, (part, role) in given_configs.items():
        spec = {k: v for k, v in part.items() if k != "files"}
        configs.append(config(name, *(file(p, name) for p in part.get("files", ())), role=role, **spec))
    found = merge(configs, DEFAULTS, worker_first)
    shuffled = chance.sample(configs, len(configs))
    assert merge(shuffled, DEFAULTS, worker_first) == found
    again = made("MachineConfig", "rendered", found)
    assert merge([again], DEFAULTS, worker_first) == found  # what is merged is merged


# -- rendering one pool -----------------------------------------------------------------------------------------------


def rendered(the_pool: Any, *configs: Any, options: RenderOptions = OPTIONS) -> Rendered:
    found = render(the_pool, configs, {}, options)
    assert isinstance(found, Rendered), found
    return found


def refused(the_pool: Any, *configs: Any, options: RenderOptions = OPTIONS) -> RenderRefused:
    found = render(the_pool, configs, {}, options)
    assert isinstance(found, RenderRefused)
    return found


def test_the_same_content_has_the_same_name() -> None:
    one = rendered(pool(), config("a", file("/a", "x")), config("b", file("/b", "x")))
    assert one.name == "rendered-worker-113d2dca901289d9527e3a9d874bdd1f"  # a new name is a reboot of every node
    assert one.source == ("a", "b")
    other = rendered(pool(paused=False), config("c", file("/b", "x"), role="worker"), config("d", file("/a", "x")))
    swapped = rendered(pool(), config("a", file("/b", "x")), config("b", file("/a", "x")))
    assert other.name == swapped.name  # metadata is not in it
    assert rendered(pool(), config("a", file("/a", "y"))).name != one.name
    assert rendered(pool("infra", "worker"), config("a", file("/a", "x")), config("b", file("/b", "x"))).name == (
        one.name.replace("worker", "infra")
    )


def test_a_rendered_config_is_the_pools_and_is_not_merged_again() -> None:
    everything = {"matchExpressions": [{"key": "absent", "operator": "DoesNotExist"}]}
    the_pool = pool(machineConfigSelector=everything)
    first = rendered(the_pool, config("a", file("/a", "x"), osImageURL="mine"))
    assert first.config["metadata"]["ownerReferences"][0]["uid"] == "uid-of-MachineConfigPool/worker"
    assert first.config["metadata"]["annotations"][key("os-image-url-overridden")] == "true"
    again = rendered(the_pool, config("a", file("/a", "x"), osImageURL="mine"), first.config)
    assert (again.name, again.source) == (first.name, ("a",))


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"machineConfigSelector": {}}, "SelectingAll", "is {}, which would select every MachineConfig"),
        (
            {"machineConfigSelector": None},
            "NoMachineConfigs",
            "spec.machineConfigSelector is missing; write `matchLabels",
        ),
        (
            {"machineConfigSelector": {"matchLabels": {"a": "b"}}},
            "NoMachineConfigs",
            "no MachineConfig matches its selector",
        ),
        (
            {"machineConfigSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            "InvalidSelector",
            "spec.machineConfigSelector: matchExpressions.0.operator",
        ),
        (
            {"machineConfigSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}},
            "InvalidSelector",
            r"matchExpressions[0].values: In needs at least one",
        ),
    ],
)
def test_why_a_pool_selects_nothing(spec: Any, reason: str, words: str) -> None:
    found = refused(pool(**spec), config("a"))
    assert found.reason == reason
    assert words in found.message
    assert "Pool worker" in found.message


def test_a_config_of_another_version_is_not_merged() -> None:  # M-R03, B25
    theirs = config("a")
    theirs["metadata"]["annotations"] = {key("generated-by-controller-version"): "4.18"}
    found = refused(pool(), theirs)
    assert (found.reason, "made by version 4.18 of a controller, and this is 0.1.0" in found.message) == (
        "OtherVersion",
        True,
    )
    assert rendered(pool(), theirs, options=RenderOptions(version="4.18")).source == ("a",)


def test_what_is_too_large_for_etcd_is_refused_and_told_of_before() -> None:  # B33
    small, large = config("a", file("/a", "x")), config("b", file("/b", "y" * (SIZE_MOST - 2000)))
    found = rendered(pool(), small, large)
    assert found.warning.endswith(f"of at most {SIZE_MOST} bytes; the largest part is b")
    assert rendered(pool(), small, config("b", file("/b", "y" * (SIZE_MOST * 8 // 10 - 2000)))).warning == ""
    too_much = refused(pool(), small, large, config("c", file("/c", "z" * 2000)))
    assert too_much.reason == "TooLarge"
    assert (
        f"etcd takes {SIZE_MOST}; take contents out of its MachineConfigs, of which b is the largest"
        in too_much.message
    )


def test_a_pools_name_leaves_room_for_the_hash() -> None:
    assert len(rendered(pool("p" * 211), config("a", role="p" * 211)).name) == 253
    assert refused(pool("p" * 212), config("a", role="p" * 212)).reason == "NameTooLong"


def test_a_change_that_no_running_machine_can_follow() -> None:  # M-R05
    before = rendered(pool(), config("a"))
    the_pool = pool(configuration={"name": before.name})
    found = refused(the_pool, config("a"), config("50-fips", fips=True), before.config)
    assert found.reason == "Irreconcilable"
    assert f"Pool worker keeps {before.name}" in found.message
    assert "spec.fips (FIPS mode is chosen when a machine is installed); see MachineConfig 50-fips" in found.message
    assert rendered(the_pool, config("a"), config("50-fips", fips=True)).source == ("50-fips", "a")  # OCPBUGS-38733


def test_the_controllers_image_is_the_default() -> None:
    found = render(pool(), [config("a")], controller_config()["spec"], OPTIONS)
    assert isinstance(found, Rendered)
    assert found.config["spec"]["osImageURL"] == "registry/os@sha256:1"


# -- what can be followed ---------------------------------------------------------------------------------------------


def spec(**sections: Any) -> dict[str, Any]:
    return {"config": ignition(**sections)}


CORE = {"name": "core", "sshAuthorizedKeys": ["1"]}
LINK = {"path": "/l", "target": "/a"}


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (spec(), {"config": ignition(version="4.0.0")}, "config"),  # M-I01
        (spec(), spec(passwd={"groups": [{"name": "g"}]}), "passwd.groups"),  # M-I03
        (spec(), spec(kernelArguments={"shouldExist": ["a"]}), "kernelArguments"),  # M-I03
        ({"fips": True}, {"fips": False}, "fips"),  # M-I03
        (spec(), spec(passwd={"users": [{"name": "bob"}]}), "passwd.users"),
        (spec(), spec(passwd={"users": [{**CORE, "shell": "/bin/zsh"}]}), "passwd.users"),
        (spec(passwd={"users": [CORE]}), spec(passwd={"users": [{"name": "core"}]}), "passwd.users"),
        (spec(), spec(storage={"disks": [{"device": "/dev/a"}]}), "storage.disks"),
        (spec(storage={"directories": [{"path": "/d"}]}), spec(), "storage.directories"),
        (spec(), spec(storage={"links": [LINK]}), "storage.links"),
        (spec(), spec(storage={"files": [{"path": "/a", "append": [{"source": "data:,x"}]}]}), "storage.files"),
        (spec(), spec(storage={"files": [file("/run/machine-config-daemon-force", "")]}), "storage.files"),
    ],
)
def test_what_cannot_be_followed(old: Any, new: Any, field: str) -> None:
    assert [f for f, _ in irreconcilable(old, new)] == [field]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (spec(), spec(passwd={"users": [{**CORE, "sshAuthorizedKeys": ["5678", "abc"]}]})),  # M-I05
        (spec(passwd={"users": [CORE]}), {"config": None}),  # M-I07
        (spec(passwd={"users": [CORE]}), spec(passwd={"users": [{**CORE, "passwordHash": "x"}]})),
        (spec(storage={"links": [LINK]}), spec()),
        (spec(), spec(storage={"luks": [{"name": "root", "device": "/dev/a"}]})),
        (spec(storage={"files": [file("/a", "1")]}), spec(systemd={"units": [{"name": "a.service"}]})),
        ({"kernelArguments": ["a"], "extensions": []}, {"kernelArguments": ["b"], "extensions": ["ipsec"]}),
    ],
)
def test_what_can_be_followed(old: Any, new: Any) -> None:
    assert irreconcilable(old, new) == []


def test_the_last_config_that_says_it_is_guilty() -> None:
    disks = {"disks": [{"device": "/dev/a"}]}
    configs = [config("a", config=ignition(storage=disks)), config("b", config=ignition(storage=disks)), config("c")]
    assert guilty("storage.disks", configs) == "b"
    assert guilty("storage.raid", configs) == ""
