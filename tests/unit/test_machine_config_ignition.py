"""Ignition configs are read, whatever their version, refused with the field that is wrong, and merged.

M-X… are the cases of upstream's tests (MergeMachineConfigs and the conversions)."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_configs.objects import file, ignition

from planners.machine_config.ignition import EMPTY, IgnitionError, content_of, file_of, read
from planners.machine_config.ignition_merge import merged


def files(config: Any) -> dict[str, Any]:
    return {f["path"]: f for f in config["storage"]["files"]}


@pytest.mark.parametrize("version", ["2.2.0", *(f"3.{minor}.0" for minor in range(6))])
def test_every_version_becomes_3_5(version: str) -> None:  # M-X09
    old = ignition({**file("/etc/a", "x"), **({"filesystem": "root"} if version < "3" else {})}, version=version)
    found = read(old)
    assert found["ignition"]["version"] == "3.5.0"
    assert content_of(files(found)["/etc/a"]["contents"]) == b"x"


def test_an_unknown_version_is_refused() -> None:  # M-X09
    with pytest.raises(IgnitionError, match=r"'21\.0\.0' is not supported; write one of 2\.0\.0, .* 3\.5\.0"):
        read(ignition(version="21.0.0"))


def test_nothing_is_the_empty_config() -> None:
    assert read(None) == read({}) == EMPTY
    assert read({"ignition": {"version": "3.0.0"}, "storage": {"files": []}, "passwd": None}) == EMPTY


HELLO = json.dumps(ignition(file("/etc/hello-worker", "hello"))).encode()


@pytest.mark.parametrize(
    "raw",
    [HELLO, HELLO.decode(), gzip.compress(HELLO), base64.b64encode(gzip.compress(HELLO)).decode()],
    ids=["JSON", "text", "gzip", "base64 of gzip"],
)
def test_a_config_that_stands_there_as_text(raw: Any) -> None:  # M-X11
    assert files(read(raw))["/etc/hello-worker"]["mode"] == 420


def test_a_config_that_grows_without_bounds_is_refused() -> None:
    bomb = gzip.compress(b"{" + b" " * (5 << 20))
    with pytest.raises(IgnitionError, match="decompressed it has more than 4194304 bytes"):
        read(bomb)


def test_version_2_takes_the_last_and_merges_drop_ins() -> None:  # M-X05
    units = [
        {"name": "a.service", "contents": "1", "dropins": [{"name": "one.conf", "contents": "old"}]},
        {"name": "a.service", "contents": "2", "dropins": [{"name": "one.conf", "contents": "new"}]},
        {"name": "a.service", "contents": "3", "dropins": [{"name": "two.conf", "contents": "new"}], "enable": True},
    ]
    old = ignition(file("/a", "1"), file("/a", "2"), version="2.2.0", systemd={"units": units})
    found = read(old)
    assert [f["contents"]["source"] for f in found["storage"]["files"]] == ["data:,2"]
    [unit] = found["systemd"]["units"]
    assert (unit["contents"], unit["enabled"]) == ("3", True)
    assert unit["dropins"] == [{"name": "two.conf", "contents": "new"}, {"name": "one.conf", "contents": "new"}]


def test_version_2_has_one_user_with_all_keys() -> None:
    users = [{"name": "core", "sshAuthorizedKeys": ["a", "b"]}, {"name": "core", "sshAuthorizedKeys": ["b", "c"]}]
    found = read(ignition(version="2.2.0", passwd={"users": users}))
    assert found["passwd"]["users"] == [{"name": "core", "sshAuthorizedKeys": ["a", "b", "c"]}]


def test_an_empty_source_in_version_2_is_an_empty_file() -> None:
    found = read(ignition({"path": "/a", "filesystem": "root", "contents": {"source": ""}}, version="2.2.0"))
    assert files(found)["/a"] == {"path": "/a", "overwrite": True, "contents": {"source": "data:,"}}
    appended = read(ignition({"path": "/a", "append": True, "contents": {"source": "data:,x"}}, version="2.2.0"))
    assert files(appended)["/a"]["append"] == [{"source": "data:,x"}]


@pytest.mark.parametrize(
    ("old", "words"),
    [
        ({"networkd": {"units": [{"name": "a"}]}}, "networkd.units: version 3 has none"),
        ({"passwd": {"users": [{"name": "bob"}]}}, r"passwd.users\[0\].name: 'bob' is not supported; only core is"),
        ({"storage": {"disks": [{"device": "/dev/a"}]}}, "storage.disks: it names disks otherwise"),
        ({"storage": {"files": [{"path": "/a", "filesystem": "var"}]}}, r"storage.files\[0\].filesystem: 'var' is not"),
        ({"storages": {}}, "storages: no such field in Ignition 2"),
    ],
)
def test_what_version_2_says_and_version_3_cannot(old: dict[str, Any], words: str) -> None:
    with pytest.raises(IgnitionError, match=words):
        read({"ignition": {"version": "2.2.0"}, **old})


@pytest.mark.parametrize("version", ["2.2.0", "3.2.0"])
def test_special_bits_of_a_mode_are_refused(version: str) -> None:  # M-X07, B35
    with pytest.raises(IgnitionError, match=r"files\[0\].mode: 1023 \(octal 1777\) of /a is not between 0 and 511"):
        read(ignition(file("/a", "x", mode=0o1777), version=version))


FILE = {"path": "/a"}
UNIT = {"name": "a.service"}


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        (
            {"storage": {"files": [{**FILE, "contens": {}}]}},
            r"files\[0\].contens: no such field .* did you mean contents\?",
        ),
        (
            {"storage": {"files": [{**FILE, "mode": "0644"}]}},
            r"files\[0\].mode: a whole number is needed, and this is text",
        ),
        ({"storage": {"files": [{"mode": 420}]}}, r"storage.files\[0\].path is missing"),
        ({"storage": {"files": [None]}}, r"storage.files\[0\]: a table is needed"),
        ({"storage": {"files": {"path": "/a"}}}, "storage.files: a list is needed, and this is a table"),
        ({"storage": {"files": [{"path": "a/b"}]}}, r"files\[0\].path: 'a/b' is not an absolute path"),
        ({"storage": {"files": [{"path": "/a/../b"}]}}, r"files\[0\].path: '/a/../b' is not an absolute path"),
        ({"storage": {"files": [{**FILE, "overwrite": True}]}}, "to be overwritten, and has no contents.source"),
        ({"storage": {"files": [{**FILE, "contents": {"compression": "xz"}}]}}, "compression: 'xz' is not supported"),
        ({"storage": {"files": [{**FILE, "contents": {"source": "hello"}}]}}, "contents.source: it is no URL"),
        ({"storage": {"files": [{**FILE, "contents": {"source": "data:;base64,%"}}]}}, "its data are not base64"),
        ({"storage": {"files": [FILE, FILE]}}, r"files\[1\].path: /a is already given at storage.files\[0\]"),
        (
            {"storage": {"files": [FILE], "links": [FILE]}},
            r"links\[0\].path: /a is already given at storage.files\[0\]",
        ),
        (
            {"passwd": {"users": [{"name": "a"}, {"name": "a"}]}},
            r"passwd.users\[1\]: a is already given at passwd.users",
        ),
        ({"systemd": {"units": [{"name": "kubelet"}]}}, r"units\[0\].name: 'kubelet' is no unit's name"),
        (
            {"systemd": {"units": [{**UNIT, "dropins": [{"name": "a"}]}]}},
            r"dropins\[0\].name: 'a' is no drop-in's name",
        ),
        ({"systemd": {"units": [{**UNIT, "enabled": 1}]}}, r"units\[0\].enabled: true or false is needed"),
    ],
)
def test_what_is_wrong_is_named(sections: dict[str, Any], words: str) -> None:
    with pytest.raises(IgnitionError, match=words):
        read({"ignition": {"version": "3.2.0"}, **sections})


def test_no_contents_stand_in_a_refusal() -> None:
    secret = "topsecretpassword"
    wrong = {"path": "x", "contents": {"source": secret}, "mode": secret}
    for config in (ignition(wrong), ignition({**wrong, "mode": 420}), f"{{{secret}"):
        with pytest.raises(IgnitionError) as caught:
            read(config)
        assert secret not in str(caught.value)


def test_many_faults_are_counted() -> None:
    with pytest.raises(IgnitionError, match=r"; and 3 more$"):
        read(ignition(*({"path": f"a{n}"} for n in range(8))))


# -- merging ----------------------------------------------------------------------------------------------------------


def test_files_are_merged_by_path_and_units_by_name() -> None:
    base = read(
        ignition(
            file("/a", "old"),
            file("/b", "b"),
            systemd={"units": [{**UNIT, "contents": "old", "dropins": [{"name": "1.conf", "contents": "x"}]}]},
        )
    )
    later = read(
        ignition(
            file("/a", "new", mode=384),
            systemd={"units": [{**UNIT, "enabled": True, "dropins": [{"name": "2.conf", "contents": "y"}]}]},
        )
    )
    found = merged(base, later)
    assert [(f["path"], f["mode"], f["contents"]["source"]) for f in found["storage"]["files"]] == [
        ("/a", 384, "data:,new"),
        ("/b", 420, "data:,b"),
    ]
    [unit] = found["systemd"]["units"]
    assert (unit["contents"], unit["enabled"], [d["name"] for d in unit["dropins"]]) == (
        "old",
        True,
        ["1.conf", "2.conf"],
    )


def test_new_contents_have_nothing_of_the_old_ones() -> None:  # M-X03, OCPBUGS-55327
    old = {"source": "data:;base64,H4sI", "compression": "gzip", "verification": {"hash": "sha512-0"}}
    base = {"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/a", "contents": old}]}}
    found = merged(base, read(ignition(file("/a", "plain"))))
    assert files(found)["/a"]["contents"] == {"source": "data:,plain"}
    mode_only = merged(base, read(ignition({"path": "/a", "mode": 256})))
    assert files(mode_only)["/a"] == {"path": "/a", "contents": old, "mode": 256}


def test_keys_of_a_user_are_united_and_its_password_is_the_last() -> None:
    base = read(ignition(passwd={"users": [{"name": "core", "passwordHash": "1", "sshAuthorizedKeys": ["5678"]}]}))
    later = read(
        ignition(passwd={"users": [{"name": "core", "passwordHash": "2", "sshAuthorizedKeys": ["1234", "5678"]}]})
    )
    assert merged(base, later)["passwd"]["users"] == [
        {"name": "core", "passwordHash": "2", "sshAuthorizedKeys": ["5678", "1234"]}
    ]


def test_a_file_takes_the_place_of_a_link() -> None:
    base = read(ignition(storage={"links": [{"path": "/a", "target": "/b"}, {"path": "/c", "target": "/b"}]}))
    found = merged(base, read(ignition(file("/a", "x"))))
    assert [link["path"] for link in found["storage"]["links"]] == ["/c"]
    assert list(files(found)) == ["/a"]
    wanted = read(ignition(kernelArguments={"shouldExist": ["a", "b"]}))
    unwanted = read(ignition(kernelArguments={"shouldNotExist": ["a"]}))
    assert merged(wanted, unwanted)["kernelArguments"] == {"shouldExist": ["b"], "shouldNotExist": ["a"]}


PATHS = st.sampled_from(["/a", "/b", "/c"])
FILES = st.lists(st.builds(lambda p, t: file(p, t), PATHS, st.text("xyz", max_size=3)), unique_by=lambda f: f["path"])
UNITS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["a.service", "b.timer"])},
        optional={
            "contents": st.text("xyz"),
            "enabled": st.booleans(),
            "dropins": st.lists(
                st.fixed_dictionaries({"name": st.sampled_from(["1.conf", "2.conf"]), "contents": st.text("xyz")}),
                unique_by=lambda d: d["name"],
            ),
        },
    ),
    unique_by=lambda u: u["name"],
)
USERS = st.lists(st.sampled_from(["k1", "k2", "k3"]), unique=True).map(
    lambda keys: [{"name": "core", "sshAuthorizedKeys": keys}]
)
CONFIGS = st.builds(lambda f, u, p: read(ignition(*f, systemd={"units": u}, passwd={"users": p})), FILES, UNITS, USERS)


@settings(max_examples=50)
@given(CONFIGS, CONFIGS, CONFIGS)
def test_merging_is_associative_idempotent_and_has_all_paths(a: Any, b: Any, c: Any) -> None:
    assert merged(merged(a, b), c) == merged(a, merged(b, c))
    assert merged(a, a) == a
    assert merged(merged(a, b), b) == merged(a, b)
    assert merged(a, EMPTY) == merged(EMPTY, a) == a
    assert read(merged(a, b)) == merged(a, b)  # what is merged is still a config
    for path in ("/a", "/b", "/c"):
        of = [x for x in (a, b) if file_of(x, path)]
        assert (file_of(merged(a, b), path) is not None) == bool(of)
        if of:
            assert file_of(merged(a, b), path)["contents"] == file_of(of[-1], path)["contents"]
