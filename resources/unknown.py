"""Fields of a manifest that its model does not have: misspelled, misplaced, or another program's.

They are looked for in what was written, so that a manifest which is wrong elsewhere is judged too, and all that is
wrong is said at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from resources.base import cut
from resources.effects import inner_model
from resources.gardener import IGNORED
from resources.spelling import did_you_mean

PLACES = 2
"""The most places that are named: a word that many have says nothing."""
SHOWN = 79
"""The most characters of an unknown name in a message."""


def unknown_fields(model: type[BaseModel], given: Any, prefix: str = "") -> Iterator[str]:
    """`PATH: unknown field`, with what was probably meant, for every field that the model does not have."""
    for path, key, here in _strangers(model, given, prefix):
        if key not in _ignored(here):
            yield f"{path}: unknown field{_elsewhere(key, model, prefix) or _meant(key, here)}"


def ignored_fields(model: type[BaseModel], given: Any, prefix: str = "") -> Iterator[str]:
    """`PATH: words` for every field of another program that is known and does nothing here, if that is worth saying."""
    for path, key, here in _strangers(model, given, prefix):
        if words := _ignored(here).get(key):
            yield f"{path}: without effect: {words}"


def _strangers(model: type[BaseModel], given: Any, prefix: str) -> Iterator[tuple[str, str, type[BaseModel]]]:
    """Path and name of each field that is not the model's own, and the model that it was given to."""
    if not isinstance(given, Mapping):
        return
    fields = {spelled: info for name, info in model.model_fields.items() for spelled in (name, info.alias or name)}
    also = getattr(model, "ALSO", ())
    for key, value in given.items():
        shown = cut(key if key.isprintable() else repr(key)[1:-1], SHOWN) if isinstance(key, str) else repr(key)[:SHOWN]
        if key not in fields:
            if key not in also and not getattr(model, "OPEN", False):
                yield f"{prefix}{shown}", str(key), model
            continue
        below, _ = inner_model(fields[key].annotation)
        if below is None:
            continue
        for n, item in enumerate(value if isinstance(value, list) else [value]):
            at = f"[{n}]" if isinstance(value, list) else ""
            yield from _strangers(below, item, f"{prefix}{shown}{at}.")


def _ignored(model: type[BaseModel]) -> dict[str, str]:
    """What the model's own class ignores, and those that it is derived from."""
    return {k: words for kind in reversed(inspect.getmro(model)) for k, words in IGNORED.get(kind.__name__, {}).items()}


def _meant(key: str, here: type[BaseModel]) -> str:
    return did_you_mean(key[:SHOWN], [info.alias or name for name, info in here.model_fields.items()])


def _elsewhere(key: str, root: type[BaseModel], prefix: str) -> str:
    """The places that have a field of this name: an indentation is a slip too."""
    above = [path.rpartition(".")[0] for path in _paths(root, prefix) if path.rpartition(".")[2] == key]
    return f"; it belongs under {' or '.join(above[:PLACES])}" if above and len(above) <= PLACES and all(above) else ""


def _paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, info in model.model_fields.items():
        path = f"{prefix}{info.alias or name}"
        yield path
        below, suffix = inner_model(info.annotation)
        if below is not None:
            yield from _paths(below, f"{path}{suffix}.")
