"""Keys of what people want must all be known, and values have their types: a slip would say something other than was
meant, such as an undo to the revision before for `{"toRevision": 1}`. Messages between programs may say more, for one
may be of a newer release."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from resources.intents import Intent
from resources.owner import KINDS
from resources.sound import NAMED, short
from resources.spelling import did_you_mean
from resources.typed import mistyped


def strange(kind: Any, data: bytes, by_signal: bool) -> str:
    """Which keys of an intent, as JSON, are not this kind's, in words; "" if all are known, or it is not an intent.
    `by_signal`: it may be an owner's word to its machine."""
    given = _given(data, by_signal) if isinstance(kind, type) and issubclass(kind, Intent) else None
    if given is None:
        return ""
    known = [field.alias or name for name, field in kind.model_fields.items()]
    odd = [key for key in given if key not in known and key not in kind.model_fields]
    said = [f"{short(key, 60)!r}{_meant(key[:60], known)}" for key in odd[:NAMED]]
    return f"{kind.__name__} has no {', no '.join(said)}; it has {', '.join(known)}" if said else ""


def untyped(kind: Any, data: bytes, by_signal: bool = False) -> str:
    """Which values of an intent, or of the argument of a start, have another type than their field, in words."""
    given = _given(data, by_signal) if isinstance(kind, type) and issubclass(kind, BaseModel) else None
    wrong = [f"{path}: {words}" for path, words in mistyped(kind, given)] if given is not None else []
    return f"{kind.__name__}: {'; '.join(wrong[:NAMED])}" if wrong else ""


def _given(data: bytes, by_signal: bool) -> dict[str, Any] | None:
    """What is to be judged; None for what is refused anyway, and for an owner's word."""
    try:
        given = json.loads(data)
    except ValueError:
        return None
    ours = isinstance(given, dict) and by_signal and str(given.get("requestedBy", "")).startswith(_owners())
    return given if isinstance(given, dict) and not ours else None


def _owners() -> tuple[str, ...]:
    """How an owner's signature on what it wants of its machines begins (workflows/fleet/members.py)."""
    return tuple(f"{kind.word} " for kind in KINDS.values())


def _meant(key: str, known: Sequence[str]) -> str:
    """The key that is meant. By its letters `toRevision` is closer to `reason`, and means `to`."""
    begun = [k for k in known if key.lower().startswith(k.lower())]
    return did_you_mean(begun[0], begun) if begun else did_you_mean(key, known)
