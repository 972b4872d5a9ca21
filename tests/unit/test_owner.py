"""The owner of a machine, on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from resources.machine.manifest import MachineSpec
from resources.machine.state import MachineState
from resources.machine_class.state import user_words, users_words
from resources.names import pool_id
from resources.owner import KINDS, Owner, OwnerKind, is_owner, user_id

SPEC = {"class": {"name": "c1"}}
POOL = {"kind": "MachineDeployment", "name": "p1"}


@pytest.mark.parametrize(
    "said", [{"pool": "p1"}, {"owner": {"name": "p1"}}, {"owner": POOL}, {"owner": POOL, "pool": ""}]
)
def test_a_machine_of_a_pool(said: dict[str, Any]) -> None:
    """A person may name only the pool; so does an older worker, which also reads it so."""
    state = MachineState.model_validate({"name": "m1", "spec": SPEC, **said})
    assert state.owner == Owner(name="p1")
    sent = state.model_dump(mode="json", by_alias=True)
    assert (sent["owner"], sent["pool"]) == (POOL, "p1")
    assert MachineState.model_validate(sent) == state


@pytest.mark.parametrize("said", [{}, {"pool": ""}, {"owner": None, "pool": ""}])
def test_a_machine_of_nobody(said: dict[str, Any]) -> None:
    state = MachineState.model_validate({"name": "m1", "spec": SPEC, **said})
    assert (state.owner, state.pool) == (None, "")


SET = OwnerKind("MachineSet", "set", "SetWorkflow", "machineset", only="main")
"""A kind of which each cluster has one."""


@pytest.fixture
def another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, SET.manifest, SET)


@pytest.mark.usefixtures("another_kind")
@pytest.mark.parametrize(
    ("owner", "words", "user", "listed", "id"),
    [
        (Owner(name="p1"), "pool p1", "pool/p1", "p1", pool_id("demo", "p1")),
        (Owner.model_construct(kind="MachineSet", name="main"), "set main", "set/main", "set/main", "machineset/demo"),
    ],
    ids=["a pool", "another"],
)
def test_how_an_owner_is_known(owner: Owner, words: str, user: str, listed: str, id: str) -> None:
    assert (str(owner), owner.user, owner.listed, owner.workflow_id("demo")) == (words, user, listed, id)
    assert Owner.read(user) == Owner.read(listed) == Owner.of_id("demo", id) == owner
    assert Owner.of_id("other", id) is None
    assert user_id("demo", user) == id
    assert not is_owner("p1")
    sent = MachineState(name="m1", spec=MachineSpec.model_validate(SPEC), owner=owner).model_dump(mode="json")
    assert MachineState.model_validate(sent).owner == owner


def test_an_owner_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="'MachineSet' is no kind that owns machines; there are ControlPlane"):
        Owner(kind="MachineSet", name="main")


def test_what_stands_for_no_owner_hurts_nobody() -> None:
    """Anybody can signal such a user to a class, or such an owner to a cluster: no such workflow runs."""
    assert user_id("demo", "odd/one") == pool_id("demo", "odd/one")
    assert (user_words("odd/one"), users_words(["odd/one", "m1"])) == ("odd one", "1 machine and 1 odd")
    assert Owner.of_id("demo", "machine/demo/m1") is None
