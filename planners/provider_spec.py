"""The identity of a provider spec."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def spec_hash(spec: dict[str, Any]) -> str:
    """A hash of the whole spec, independent of key order."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]
