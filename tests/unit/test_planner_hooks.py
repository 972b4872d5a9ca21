"""Hooks: the rules of OpenShift (machine/v1beta1, LifecycleHook and its webhook) in the manifest and for changes of it,
and how the spec's hooks and those that were added or removed make one list.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from cli.place import class_yaml, machine_yaml, text
from hypothesis import given
from hypothesis import strategies as st

from planners.machine.hooks import change, forget, refusal, remove_command
from planners.machine.hooks import names as names_of
from resources.control_plane.spec import hold_of
from resources.machine.hooks import HookIntent, HookOverrides
from resources.machine.manifest import HOOKS_MOST, Hook, HookKind, LifecycleHooks
from resources.machine.state import MachineState
from resources.manifests import ManifestError, load_manifests
from resources.owner import CONTROL_PLANE, Owner

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DRAIN, TERMINATE = HookKind.PRE_DRAIN, HookKind.PRE_TERMINATE
ETCD = Hook(name="EtcdQuorumOperator", owner="clusteroperator/etcd")
SPEC = LifecycleHooks(pre_drain=[ETCD])
NONE = LifecycleHooks()


def add(name: str = "Backup", owner: str = "alice", kind: HookKind | None = None, **more: Any) -> HookIntent:
    return HookIntent(name=name, owner=owner, kind=kind, **more)


def remove(name: str, owner: str = "", kind: HookKind | None = None) -> HookIntent:
    return HookIntent(name=name, owner=owner, kind=kind, remove=True)


def after(spec: LifecycleHooks, *intents: HookIntent) -> HookOverrides:
    hooks = HookOverrides()
    for intent in intents:
        assert refusal("m-1", spec, hooks, intent, deleting=False) == ""
        hooks = change(spec, hooks, intent, NOW)
    return hooks


def told(spec: LifecycleHooks, hooks: HookOverrides, kind: HookKind = DRAIN) -> list[tuple[str, str]]:
    return [(h.name, h.owner) for h in hooks.effective(spec, kind)]


# -- the manifest -----------------------------------------------------------------------------------------------------


def machine(hooks: Any) -> str:
    manifest = machine_yaml()
    manifest["spec"]["lifecycleHooks"] = hooks
    return text(class_yaml(), manifest)


@pytest.mark.parametrize(
    "name", ["Etc", "EtcdQuorumOperator", "example.com/Backup", "a.b-c.d/x_y.z", "x" * 256, "foo/Bar", "9to5"]
)
def test_a_name_that_is_taken(name: str) -> None:
    (loaded,) = load_manifests(machine({"preTerminate": [{"name": name, "owner": "bob"}]}), "f.yaml").machines
    assert [h.name for h in loaded.spec.lifecycle_hooks.of(TERMINATE)] == [name]
    assert loaded.spec.lifecycle_hooks.of(DRAIN) == []


NO_NAMES = [
    "",
    "ab",
    "x" * 257,
    "two words",
    "Example.com/Backup",
    "a/b/cde",
    "/Backup",
    "Backup-",
    "-Backup",
    "Back\n",
]


@pytest.mark.parametrize("name", NO_NAMES, ids=range(len(NO_NAMES)))
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(
        ManifestError, match=r"lifecycleHooks.preDrain.*is not a hook's name: 3 to 256.*write it like Etcd"
    ):
        load_manifests(machine({"preDrain": [{"name": name, "owner": "bob"}]}), "f.yaml")
    assert "is not a hook's name" in refusal("m-1", NONE, HookOverrides(), add(name), deleting=False)


NO_OWNERS = ["", "ab", "x" * 513, "two\nlines", " edged "]


@pytest.mark.parametrize("owner", NO_OWNERS, ids=range(len(NO_OWNERS)))
def test_an_owner_that_is_none(owner: str) -> None:
    with pytest.raises(ManifestError, match=r"is not a hook's owner: 3 to 512 characters in one line.*write it like"):
        load_manifests(machine({"preDrain": [{"name": "Backup", "owner": owner}]}), "f.yaml")
    assert "is not a hook's owner" in refusal("m-1", NONE, HookOverrides(), add(owner=owner), deleting=False)


@pytest.mark.parametrize("missing", ["name", "owner"])
def test_both_are_required(missing: str) -> None:
    hook = {"name": "Backup", "owner": "alice"}
    del hook[missing]
    with pytest.raises(ManifestError, match=rf"{missing}: Field required"):
        load_manifests(machine({"preDrain": [hook]}), "f.yaml")


def test_a_name_is_one_hook_of_a_kind() -> None:
    one, other = {"name": "Backup", "owner": "alice"}, {"name": "Backup", "owner": "bob"}
    with pytest.raises(
        ManifestError, match=("preDrain: Backup: given more than once; the name of a hook must be unique")
    ):
        load_manifests(machine({"preDrain": [one, other]}), "f.yaml")
    (loaded,) = load_manifests(machine({"preDrain": [one], "preTerminate": [other]}), "f.yaml").machines
    assert [loaded.spec.lifecycle_hooks.of(k)[0].owner for k in HookKind] == ["alice", "bob"]


# -- changes ----------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, HookIntent, bool, str]] = [
    (
        "added while it is deleted",
        add(),
        True,
        "machine m-1 is being deleted; its hooks can only be remov",
    ),
    (
        "changed while it is deleted",
        add(ETCD.name, "bob"),
        True,
        "being deleted; its hooks can only be rem",
    ),
    (
        "another's name",
        add(ETCD.name, "bob"),
        False,
        "has the preDrain hook EtcdQuorumOperator already.*clusteroperato",
    ),
    (
        "a hook that there is not",
        remove("Backup"),
        False,
        "m-1 has no hook 'Backup'; it has preDrain EtcdQuorumOperator",
    ),
    (
        "of the other kind",
        remove(ETCD.name, kind=TERMINATE),
        True,
        "m-1 has no preTerminate hook 'EtcdQuorumOperator'; it",
    ),
    (
        "of another owner",
        remove(ETCD.name, "bob"),
        True,
        "belongs to clusteroperator/etcd, not to bob; to remove it anyway",
    ),
]


@pytest.mark.parametrize(("intent", "deleting", "words"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refused(intent: HookIntent, deleting: bool, words: str) -> None:
    assert re.search(words, refusal("m-1", SPEC, HookOverrides(), intent, deleting))


TAKEN: list[tuple[str, HookIntent, bool]] = [
    ("added", add(), False),
    ("the spec's own, added again", add(ETCD.name, ETCD.owner), False),
    ("the same, while it is deleted", add(ETCD.name, ETCD.owner), True),
    ("another's name, of the other kind", add(ETCD.name, "bob", TERMINATE), False),
    ("removed", remove(ETCD.name), False),
    ("removed while it is deleted", remove(ETCD.name), True),
    ("removed by its owner", remove(ETCD.name, ETCD.owner, DRAIN), True),
]


@pytest.mark.parametrize(("intent", "deleting"), [r[1:] for r in TAKEN], ids=[r[0] for r in TAKEN])
def test_taken(intent: HookIntent, deleting: bool) -> None:
    assert refusal("m-1", SPEC, HookOverrides(), intent, deleting) == ""


def test_what_a_control_plane_holds_its_machine_by_is_its_own() -> None:
    """A person who removed it would take the machine from etcd before another one is there."""
    owner = Owner(kind=CONTROL_PLANE.manifest, name=CONTROL_PLANE.only)
    hold = hold_of(owner.user)
    spec, by_hand = LifecycleHooks(pre_drain=[hold, ETCD]), remove(hold.name)
    said = refusal("m-1", spec, HookOverrides(), by_hand, True, owner)
    assert "only that removes it, once another machine is ready in its place" in said
    by_itself = by_hand.model_copy(update={"requested_by": str(owner)})
    assert refusal("m-1", spec, HookOverrides(), by_itself, True, owner) == ""
    assert refusal("m-1", spec, HookOverrides(), remove(ETCD.name), True, owner) == ""
    assert refusal("m-1", spec, HookOverrides(), by_hand, True, None) == ""  # it was let go


def test_a_machine_without_hooks_says_so() -> None:
    assert refusal("m-1", NONE, HookOverrides(), remove("Backup"), False).endswith("it has none at all")


def test_a_name_of_both_kinds_must_be_told_apart() -> None:
    hooks = after(NONE, add(), add(kind=TERMINATE))
    assert refusal("m-1", NONE, hooks, remove("Backup"), False).endswith("give --kind: preDrain or preTerminate")
    hooks = change(NONE, hooks, remove("Backup", kind=TERMINATE), NOW)
    assert (told(NONE, hooks), told(NONE, hooks, TERMINATE)) == ([("Backup", "alice")], [])
    assert told(NONE, change(NONE, hooks, remove("Backup"), NOW)) == []  # now only one can be meant


def test_there_is_a_most() -> None:
    hooks = after(NONE, *(add(f"Hook{n}") for n in range(HOOKS_MOST)))
    assert f"{HOOKS_MOST} preDrain hooks are on machine m-1" in refusal("m-1", NONE, hooks, add(), False)
    assert refusal("m-1", NONE, hooks, add(kind=TERMINATE), False) == ""
    assert refusal("m-1", NONE, change(NONE, hooks, remove("Hook7"), NOW), add(), False) == ""


def test_the_most_that_there_can_be_is_small() -> None:
    """A state stays far below Temporal's limit of 2 MiB for one payload."""
    spec = LifecycleHooks.model_validate(
        {k: [{"name": f"{n:x>256}", "owner": "o" * 512} for n in range(HOOKS_MOST)] for k in HookKind}
    )
    fill = [add(f"{n:y>256}", "o" * 512, k) for n in range(HOOKS_MOST) for k in HookKind]
    gone = [remove(h.name, kind=k) for k in HookKind for h in spec.of(k)]
    manifest = {"class": {"name": "c1"}, "lifecycleHooks": spec.model_dump(by_alias=True)}
    state = MachineState.model_validate({"name": "m-1", "spec": manifest})
    state.hooks = after(spec, *fill, *gone)
    assert 100_000 < len(state.model_dump_json(by_alias=True)) < 2**19


# -- one list ---------------------------------------------------------------------------------------------------------

HISTORY: list[tuple[str, list[HookIntent], list[tuple[str, str]]]] = [
    ("the spec's", [], [(ETCD.name, ETCD.owner)]),
    ("added comes behind", [add()], [(ETCD.name, ETCD.owner), ("Backup", "alice")]),
    ("removed", [remove(ETCD.name)], []),
    ("added and removed", [add(), remove("Backup")], [(ETCD.name, ETCD.owner)]),
    ("added twice", [add(), add()], [(ETCD.name, ETCD.owner), ("Backup", "alice")]),
    ("removed and added again", [remove(ETCD.name), add(ETCD.name, ETCD.owner)], [(ETCD.name, ETCD.owner)]),
    ("removed, then another's", [remove(ETCD.name), add(ETCD.name, "bob")], [(ETCD.name, "bob")]),
    ("removed, another's, removed", [remove(ETCD.name), add(ETCD.name, "bob"), remove(ETCD.name)], []),
]


@pytest.mark.parametrize(("intents", "hooks"), [r[1:] for r in HISTORY], ids=[r[0] for r in HISTORY])
def test_what_holds_after(intents: list[HookIntent], hooks: list[tuple[str, str]]) -> None:
    assert told(SPEC, after(SPEC, *intents)) == hooks
    assert told(SPEC, after(SPEC, *intents), TERMINATE) == []


def test_a_spec_that_is_applied_again_undoes_nothing() -> None:
    hooks = after(SPEC, remove(ETCD.name), add())
    assert told(SPEC, forget(SPEC, hooks)) == [("Backup", "alice")]


def test_a_hook_that_comes_again_in_the_spec_holds() -> None:
    hooks = after(SPEC, remove(ETCD.name), add())
    hooks = forget(NONE, hooks)
    assert told(NONE, hooks) == [("Backup", "alice")]
    assert told(SPEC, forget(SPEC, hooks)) == [(ETCD.name, ETCD.owner), ("Backup", "alice")]


def test_the_spec_does_not_take_a_name_over() -> None:
    """It was added by bob; a spec that names another owner later leaves it to bob, and gets its own when bob is
    done."""
    hooks = after(NONE, add(ETCD.name, "bob"))
    assert told(SPEC, forget(SPEC, hooks)) == [(ETCD.name, "bob")]
    assert told(SPEC, change(SPEC, hooks, remove(ETCD.name), NOW)) == [(ETCD.name, ETCD.owner)]


def test_who_and_why_is_kept() -> None:
    (kept,) = after(NONE, add(requested_by="ops@desk", reason="backup runs")).added
    assert (kept.kind, kept.time, kept.requested_by, kept.reason) == (DRAIN, NOW, "ops@desk", "backup runs")


def test_a_message_names_some() -> None:
    hooks = [Hook(name=f"Hook{n}", owner="bob") for n in range(5)]
    assert names_of(hooks) == "Hook0 of bob, Hook1 of bob, Hook2 of bob, 2 more"
    assert names_of(hooks[:3]) == "Hook0 of bob, Hook1 of bob, Hook2 of bob"


def test_the_command_survives_a_shell() -> None:
    command = remove_command("m-1", "prod", TERMINATE, Hook(name="Backup", owner="alice; rm -rf /"))
    assert command == "hostler hook remove m-1 Backup --kind preTerminate --owner 'alice; rm -rf /' --cluster prod"


names = st.sampled_from(["Aaa", "Bbb", "Ccc"])
owners = st.sampled_from(["alice", "bob"])
specs = st.dictionaries(names, owners).map(
    lambda d: LifecycleHooks(pre_drain=[Hook(name=n, owner=o) for n, o in d.items()])
)
intents = st.builds(HookIntent, name=names, owner=owners, remove=st.booleans(), kind=st.sampled_from([DRAIN, None]))


@given(st.lists(st.one_of(specs, intents), max_size=12))
def test_whatever_comes_a_name_is_one_hook_and_an_answer_is_kept(news: list[LifecycleHooks | HookIntent]) -> None:
    spec, hooks = NONE, HookOverrides()
    for one in news:
        if isinstance(one, LifecycleHooks):
            spec, hooks = one, forget(one, hooks)
        elif not refusal("m-1", spec, hooks, one, deleting=False):
            hooks = change(spec, hooks, one, NOW)
            assert ((one.name, one.owner) in told(spec, hooks)) is not one.remove
            assert one.remove or one.name in dict(told(spec, hooks))
        held = [name for name, _ in told(spec, hooks)]
        assert len(held) == len(set(held))
        assert {c.name for c in hooks.removed} <= {h.name for h in spec.pre_drain}
