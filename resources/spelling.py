"""Misspelled names."""

from __future__ import annotations

from collections.abc import Iterable

CLOSE = 0.6
"""How alike two words must be, from 0 to 1 (difflib's own default)."""


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """`; did you mean demo-1 or demo-2?`, for the end of a message; empty when nothing is alike. `prefix`: what all of
    them begin with; it does not count."""
    from difflib import get_close_matches

    spelled = {k.lower(): k for k in known}
    close = get_close_matches(word.lower(), spelled, n=3, cutoff=CLOSE)
    return f"; did you mean {' or '.join(prefix + spelled[c] for c in close)}?" if close else ""
