"""The entries of a journal."""

from __future__ import annotations

from resources.base import Instant, Text, Value, Word


class Happening(Value):
    """One entry of the journal."""

    time: Instant
    reason: Word
    message: Text


class Note(Value):
    """Something odd that the watch saw, for the cluster's journal."""

    reason: Word
    message: Text
