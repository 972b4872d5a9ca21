"""What one line declares: `intent()` in workflows/entity.py. What becomes of each intent is in its entity's tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow

import worker
from resources.intents import Answer, Intent
from workflows.entity import Entity, Refusal, intent


def refuse(entity: Any, intent: Intent) -> str | None:
    return entity.why


@pytest.mark.parametrize("kind", [w for w in worker.WORKFLOWS if issubclass(w, Entity)])
def test_every_update_is_a_signal_too(kind: type) -> None:
    definition = workflow._Definition.must_from_class(kind)
    updates = {name: (u.arg_types, u.ret_type) for name, u in definition.updates.items()}
    assert updates
    assert updates == {name: (definition.signals[name].arg_types, Answer) for name in updates}


@pytest.mark.parametrize(
    ("why", "id", "refused"),
    [
        pytest.param("no", "new", ("no", "Refused"), id="the first arrival"),
        pytest.param("no", "", ("no", "Refused"), id="without an id every arrival is the first"),
        pytest.param("no", "known", None, id="the second arrival gets the first answer"),
        pytest.param("", "new", None, id="no words"),
        pytest.param(None, "new", None, id="nothing"),
    ],
)
def test_what_is_refused(why: str | None, id: str, refused: tuple[str, str] | None) -> None:
    entity = SimpleNamespace(intents={"known": "the first answer"}, why=why)
    found = intent(Intent, lambda entity, intent: "", refuse).refusal(entity, Intent(id=id))
    assert (found and (found, found.type)) == refused


def test_a_refusal_may_have_a_type_of_its_own() -> None:
    class Special(Refusal):
        type = "Special"

    entity = SimpleNamespace(intents={}, why=Special("no"))
    found = intent(Intent, lambda entity, intent: "", refuse).refusal(entity, Intent(id="a"))
    assert found.type == "Special"
    assert intent(Intent, lambda entity, intent: "").refusal(entity, Intent(id="a")) is None
