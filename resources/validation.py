"""What becomes of unknown fields."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Validate(StrEnum):
    """What becomes of unknown fields, in kubectl's words (`kubectl apply --validate`)."""

    STRICT = "strict"
    """They are refused, and nothing is sent."""
    WARN = "warn"
    """They are said, and the rest is taken."""
    IGNORE = "ignore"

    @classmethod
    def of(cls, word: str) -> Self:
        """The meaning of an option's word; kubectl also takes `true` and `false`. Raises ValueError."""
        return cls({"true": "strict", "false": "ignore"}.get(word, word))
