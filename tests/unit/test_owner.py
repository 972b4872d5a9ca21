"""The owner of a machine, on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from resources.machine.state import MachineState
from resources.owner import Owner

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


def test_what_is_asked_of_an_owner() -> None:
    owner = Owner(name="p1")
    assert (str(owner), owner.user, owner.workflow_id("demo")) == ("pool p1", "pool/p1", "machinedeployment/demo/p1")
