"""Whatever a manifest holds, the loader takes it or says in words what is wrong and where; and what it takes can be
written to Temporal and read again.

A seeded sample always runs; HOSTLER_FUZZ=10000 runs that many, HOSTLER_FUZZ_SEED=7 others.
"""

from __future__ import annotations

import contextlib
import copy
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from paths import ROOT

from resources.control_plane.expansion import expand
from resources.control_plane.state import ControlPlaneState
from resources.converter import data_converter
from resources.documents import DEPTH_MOST, EXPANDED_MOST, SIZE_MOST
from resources.machine.state import ClassSnapshot, MachineState
from resources.machine_class.state import concurrency_of
from resources.manifests import ManifestError, cluster_of, load_manifests
from resources.pool.state import PoolState
from resources.validation import Validate

CASES = int(os.environ.get("HOSTLER_FUZZ", "150"))
SEED = int(os.environ.get("HOSTLER_FUZZ_SEED", "1"))
HANGS = 20.0
"""Seconds of processor time that mean an endless loop; they measure nothing."""
EXAMPLES = ROOT / "examples"
FOLDERS = ("aws", "controlplane", "pool", "workloads")
FILES = sorted(file for folder in FOLDERS for file in (EXAMPLES / folder).glob("*.yaml"))
KINDS = ("ControlPlaneMachineSet", "Machine", "MachineClass", "MachineDeployment", "Secret")
DOCUMENTS = [d for f in FILES for d in yaml.safe_load_all(f.read_text()) if d and d["kind"] in KINDS]
CLASS = (EXAMPLES / "aws/class.yaml").read_text()
HEAD = "apiVersion: machine.sapcloud.io/v1alpha1\nkind: "
DELETE = object()
# fmt: off
VALUES: list[Any] = [
    None, True, 0, -1, 1.5, float("nan"), float("inf"), 10**30, 10**300, "", "x" * 70, "x" * 10**5, "\u202e", "\x1b[2J",
    "a\nb", "é", "\ud800", [], {}, [[[]]], {"a": 1}, {1: 2}, "-5m", "99999999999999h",
    "9" * 400 + "h", "9" * 4000, "1e400",
    "NaN", "P1Y", "P999999999D", "0s", "1ns", "101%", "-1%", "100000%", "9" * 5000 + "%", "1.5", "0x10", "null", "yes",
    "2026-01-01", "0", "٣", "5١%", "demo-m5-large\n", "..", "a" * 253, "a" * 254, "a" * 63, "a" * 64, ["x"] * 1000,
    {str(i): "v" for i in range(300)}, "0001-01-01T00:00:00Z", "80000000h",
]
FIELDS = [
    "creationTimeout", "healthTimeout", "drainTimeout", "machinePreserveTimeout", "nodeConditions", "lifecycleHooks",
    "replicas", "maxSurge", "maxUnavailable", "pauseAfter", "minReadySeconds", "progressDeadlineSeconds", "selector",
    "revisionHistoryLimit", "autoPreserveFailedMax", "repair", "strategy", "hibernated", "paused", "providerID",
    "labels", "annotations", "namespace", "name", "class", "kind", "apiVersion", "data", "stringData", "providerSpec",
    "vmTags", "tags", "blockDevices", "networkInterfaces", "nobodyKnows", "state", "failureDomains", "machineType",
    "machineNamePrefix", "platform", "subnet", "zone", "placement", "value", "ami", "image", "osDisk", "disks",
]
ANNOTATIONS = ["hostler.io/cluster", "hostler.io/update-concurrency", "machinepriority.machine.sapcloud.io"]
NOISE = [
    "\x00", "\t", "\x07", "{", "]", "&a ", "*a", "!!python/object:os.system ", "!foo ", "|", ">", "---\n", "...\n",
    "%YAML 9.9\n", "\\ud800", "? ", "<<: *x\n", "@", "`", "!!set ", "!!binary ", "!!timestamp ",
]
# fmt: on


# -- what is made of a manifest ----------------------------------------------------------------------------------------


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from paths(inner, (*path, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    if new is DELETE:
        value.pop(path[-1])
    elif isinstance(value, dict | list):
        value[path[-1]] = new


def changed(document: Any, chance: random.Random) -> Any:
    document = copy.deepcopy(document)
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        there = [p for p in paths(document) if p]
        path, kind = chance.choice(there), chance.random()
        try:
            if kind < 0.55:
                put(document, path, copy.deepcopy(chance.choice(VALUES)))
            elif kind < 0.65:
                put(document, path, DELETE)
            elif kind < 0.85:
                put(document, (*path[:-1], chance.choice(FIELDS)), copy.deepcopy(chance.choice(VALUES)))
            else:
                of = document["metadata"].setdefault("annotations", {})
                of[chance.choice(ANNOTATIONS)] = chance.choice(["", "0", "٣", "9" * 5000, "x", "²", "1"])
        except (KeyError, TypeError, IndexError, AttributeError):
            pass  # an earlier change removed the place
    return document


def garbled(text: str, chance: random.Random) -> str:
    lines, at = text.splitlines(keepends=True), chance.randrange(len(text))
    line = chance.randrange(len(lines))
    flipped = bytearray(text.encode())
    flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
    return chance.choice(
        [
            "\ufeff" + text,
            text.replace("\n", "\r\n"),
            text[:at] + chance.choice(NOISE) + text[at:],
            "".join([*lines[:line], *[lines[line]] * chance.choice([2, 50]), *lines[line + 1 :]]),
            "".join([*lines[:line], *lines[line + 1 :]]),
            text + "\n---\n" * chance.choice([1, 500]) + text,
            text[:at],
            flipped.decode("utf-8", "replace"),
        ]
    )


def made(seed: int) -> str:
    chance = random.Random(seed)
    if chance.random() < 0.7:
        some = chance.sample(DOCUMENTS, chance.choice([1, 1, 2]))
        return "---\n".join(yaml.safe_dump(changed(d, chance), allow_unicode=True) for d in some)
    return garbled(chance.choice(FILES).read_text(), chance)


# -- what becomes of it ------------------------------------------------------------------------------------------------


async def travels(value: Any) -> None:
    """Sends it as an argument of a workflow, and as its next run reads it."""
    payloads = await data_converter.encode([value])
    (again,) = await data_converter.decode(payloads, [type(value)])
    assert await data_converter.encode([again]) == payloads


async def applied(text: str, validate: Validate = Validate.STRICT) -> None:
    """What `hostler apply` does with it up to the wire. Raises ManifestError."""
    loaded = load_manifests(text, "f.yaml", validate)
    expanded = [expand(m) for m in loaded.control_planes]
    for e in expanded:
        await travels(ControlPlaneState(name="cluster", spec=e.spec))
    for c in (*loaded.classes, *(e.machine_class for e in expanded if e.machine_class)):
        await travels(ClassSnapshot.of(c))
        with contextlib.suppress(ValueError):  # apply reports it
            concurrency_of(c.metadata.annotations)
    for kind, manifests in ((MachineState, loaded.machines), (PoolState, loaded.pools)):
        for m in manifests:
            of = {"labels": m.metadata.labels, "annotations": m.metadata.annotations}
            await travels(kind(name=m.metadata.name, cluster=cluster_of(m, None, "d"), spec=m.spec, **of))  # type: ignore[arg-type, call-arg]
    for s in loaded.secrets:
        assert all(isinstance(k.encode(), bytes) and isinstance(v, bytes) for k, v in s.plain().items())


async def refused(text: str) -> str:
    """Why it is refused, "" where it is accepted; only ever words."""
    began = time.process_time()
    try:
        await applied(text)
        said = ""
    except ManifestError as e:
        said = str(e)
        assert said.startswith("f.yaml"), said
        assert said.replace("\n", "").isprintable(), repr(said)
        assert len(said) < 20_000
    assert time.process_time() - began < HANGS
    return said


@pytest.mark.parametrize("seed", range(SEED * 1_000_000, SEED * 1_000_000 + CASES, 50))
async def test_any_manifest_is_taken_or_refused_in_words(seed: int) -> None:
    found = []
    for one in range(seed, min(seed + 50, SEED * 1_000_000 + CASES)):
        try:
            found.append(await refused(made(one)))
        except Exception as e:
            raise AssertionError(f"the manifest of seed {one}: {type(e).__name__}: {e}") from e
    assert "" in found
    assert any(found)


@pytest.mark.parametrize("timeout", [{}, "5%", "80000000h"])
async def test_an_unknown_field_with_a_timeouts_name(timeout: Any) -> None:
    """It is reported, and no later reader of the state takes it for a timeout."""
    (pool,) = (copy.deepcopy(d) for d in DOCUMENTS if d["kind"] == "MachineDeployment")
    pool["spec"]["template"]["drainTimeout"] = timeout
    text = yaml.safe_dump(pool)
    assert "template.drainTimeout: unknown field; it belongs under spec.template.spec" in await refused(text)
    await applied(text, Validate.WARN)


def of_class(line: str) -> str:
    return CLASS.replace("providerSpec:\n", f"providerSpec:\n  {line}\n")


def bomb(levels: int = 8) -> str:
    lines = ["x0: &x0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]" for i in range(1, levels + 1)]
    return "\n  ".join(lines)


def merges() -> str:
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{i}: &a{i}\n  <<: [*a{i - 1}, *a{i - 1}, *a{i - 1}]\n  k{i}: v" for i in range(1, 25)]
    return "\n".join(lines)


def machine(field: str) -> str:
    return f"{HEAD}Machine\nmetadata: {{name: m}}\nspec: {{class: {{name: c}}, {field}}}\n"


def pool(field: str) -> str:
    template = "template: {spec: {class: {name: c}}}"
    return f"{HEAD}MachineDeployment\nmetadata: {{name: p}}\nspec: {{{template}, {field}}}\n"


SPECIAL: dict[str, tuple[Callable[[], str], str]] = {
    "an alias bomb": (lambda: of_class(bomb()), f"f.yaml:1\\d: not YAML: with its aliases .* than {EXPANDED_MOST}"),
    "a key that is given twice": (
        lambda: "kind: MachineDeployment\nspec:\n  replicas: 2\n  replicas: 0\n",
        "f.yaml:4: not YAML: the key 'replicas' is given twice",
    ),
    "a bomb of merges": (merges, "f.yaml:.*with its aliases expanded"),
    "a small bomb": (lambda: of_class(bomb(3)), "providerSpec: more than 65536 bytes"),
    "a deep list": (lambda: "metadata: " + "[" * 20_000, f"f.yaml:1: not YAML: nested deeper than {DEPTH_MOST}"),
    "a deep List": (lambda: "kind: List\nitems: [" * 400, "f.yaml:"),
    "a deep spec": (lambda: of_class("x: " + "{a: " * 40 + "1" + "}" * 40), "providerSpec: nested deeper than 32"),
    "a list in itself": (lambda: of_class("x: &a [*a]"), r"not YAML: \*a contains itself"),
    "a mapping in itself": (lambda: of_class("x: &a {b: *a}"), r"not YAML: \*a contains itself"),
    "a List in itself": (lambda: "&l\nkind: List\nitems: [*l]\n", r"not YAML: \*l contains itself"),
    "items that are a number": (lambda: "kind: List\nitems: 5", "items: a List has a list of manifests, not int"),
    "items that are a text": (lambda: "kind: List\nitems: abc", "items: a List has a list of manifests, not str"),
    "items that are a mapping": (lambda: "kind: List\nitems: {a: b}", "has a list of manifests, not dict"),
    "a long file": (lambda: "# x\n" * (SIZE_MOST // 4 + 1), f"more than {SIZE_MOST} characters; split it"),
    "a long annotation": (
        lambda: machine("a: b").replace("name: m", f"name: m, annotations: {{a: {'x' * 70_000}}}"),
        "annotations: more than 65536 bytes",
    ),
    "a number of 5,000 digits": (lambda: pool(f"replicas: {'9' * 5000}"), "f.yaml:4: .* cannot be read as int"),
    "half a character": (lambda: 'kind: "\\ud800"', "kind '.ud800' is not known"),
    "half a character of a name": (lambda: machine("x: y").replace("name: m", 'name: "\\ud800"'), "metadata.name: "),
    "half a character of a Secret": (
        lambda: 'apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: "\\ud800"}',
        "stringData: ",
    ),
    "half a character of a spec": (lambda: of_class('x: "\\ud800"'), "providerSpec: half a character"),
    "a set": (lambda: of_class("x: !!set {a, b}"), "a set, which JSON does not support"),
    "bytes": (lambda: of_class("x: !!binary aGVsbG8="), "a bytes, which JSON does not support"),
    "no number": (lambda: of_class("x: .nan"), "nan is not a number in JSON"),
    "true as a key": (lambda: of_class("on: 2"), "a key reads as true or false; put it in quotes"),
    "a NUL": (lambda: "kind: Machine\x00", "f.yaml:1: not YAML: the character #x0000 is not allowed"),
    "what nobody knows, in depth": (lambda: machine("nobodyKnows: " + "[" * 40 + "]" * 40), "deeper than 32"),
    "a duration of 4,000 digits": (
        lambda: machine(f"healthTimeout: '{'9' * 4000}'"),
        "4000 characters are not a duration",
    ),
    "9,000 years": (lambda: machine("creationTimeout: 80000000h"), "creationTimeout: longer than 87600h"),
    "9,000 years of a template": (
        lambda: pool("x: y").replace("name: c}", "name: c}, drainTimeout: 80000000h"),
        "template.spec.drainTimeout: longer than 87600h",
    ),
    "a pool that is never ready": (lambda: pool("minReadySeconds: 99999999999999999"), "minReadySeconds: "),
}


@pytest.mark.parametrize(("text", "words"), SPECIAL.values(), ids=SPECIAL)
async def test_what_is_refused(text: Callable[[], str], words: str) -> None:
    said = await refused(text())
    assert re.search(words, said), said
