"""What the watch of nodes takes and returns."""

from __future__ import annotations

from pydantic import Field

from resources.base import Count, Key, Model, Name, Packing, Span, Value
from resources.packed import pack, unpack


class Cursor(Model):
    """The position of a watch of nodes: what it needs to continue without telling anybody the same again.

    The cluster's workflow carries it from one watch to the next and never opens it.
    """

    resource_version: Key = ""
    table: Packing = ""
    """Node name to `<digest> <machine>`: what its machine was told last, as 8 bytes in base64, and which machine;
    packed: 20,000 nodes with long names are 0.5 MiB instead of 2.3."""
    nodes: Count = 0
    """How many are in the table."""
    told: dict[Key, Key] = Field(default_factory=dict)
    """The table as an older worker has left it."""

    @property
    def marks(self) -> dict[str, str]:
        return {**self.told, **unpack(self.table)}

    @classmethod
    def at(cls, resource_version: str, marks: dict[str, str]) -> Cursor:
        return cls(resource_version=resource_version, table=pack(marks), nodes=len(marks))


class WatchInput(Value):
    cluster: Name
    workflow_id: Key
    queue_prefix: Name
    cursor: Cursor
    duration: Span
    """How long the watch goes on before it returns on its own, so that new code reaches it."""
