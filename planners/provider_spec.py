"""What differs between the provider spec a VM was made from and the one its class has now."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from resources.effects import Effect, effects
from resources.manifests import PROVIDER_SPECS


def spec_hash(spec: dict[str, Any]) -> str:
    """Of the whole spec, independent of key order."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def differing_fields(provider: str, applied: dict[str, Any], desired: dict[str, Any]) -> list[str]:
    """Paths of top-level fields that differ and have an effect, sorted; what is ignored is no difference."""
    model = PROVIDER_SPECS.get(provider)
    ignored = {p for p, e in effects(model) if e == Effect.NONE} if model else set()
    keys = set(applied) | set(desired)
    return sorted(k for k in keys if applied.get(k) != desired.get(k) and k not in ignored)
