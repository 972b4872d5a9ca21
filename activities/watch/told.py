"""What a watch of nodes has told so far, in memory and in its heartbeats."""

from __future__ import annotations

from typing import Any

from resources.calls.watch import Cursor
from resources.packed import pack, unpack

FOLD = 500
"""Changes after which the newest are packed: a heartbeat follows every event, and packing takes time."""
PACKS = 40
"""Packs after which they become one: a node that changes often is in many of them."""


class Position:
    """The cursor of a running watch.

    Temporal takes 2 MiB for the details of a heartbeat, as for any payload: they carry only what has changed since the
    start, and that packed, for in a first list everything changes.
    """

    def __init__(self, cursor: Cursor, former: dict[str, Any]) -> None:
        """`former`: the details of the previous attempt's last heartbeat."""
        self.resource_version = cursor.resource_version
        self.told = cursor.marks
        """Node name to `<digest> <machine>`."""
        self._packs: list[str] = list(former.get("packed", ()))
        self._recent: dict[str, str | None] = dict(former.get("changed", {}))
        former_changes: list[dict[str, str | None]] = [*map(unpack, self._packs), self._recent]
        for changes in former_changes:
            for node, mark in changes.items():
                self._apply(node, mark)

    def tell(self, node: str, mark: str | None) -> None:
        """Remembers what was told; None: the node is gone."""
        self._apply(node, mark)
        self._recent[node] = mark
        if len(self._recent) >= FOLD:
            self._packs.append(pack(self._recent))
            self._recent = {}
        if len(self._packs) > PACKS:
            whole: dict[str, str | None] = {}
            for packed in self._packs:
                whole |= unpack(packed)
            self._packs = [pack(whole)]

    def _apply(self, node: str, mark: str | None) -> None:
        if mark is None:
            self.told.pop(node, None)
        else:
            self.told[node] = mark

    def details(self) -> dict[str, Any]:
        """What the next attempt begins with, beside the argument."""
        return {"changed": self._recent, "packed": self._packs}

    def cursor(self) -> Cursor:
        return Cursor.at(self.resource_version, self.told)
