"""Objects of a cluster's own API in hostler get: Nodes and custom resources."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starter.sdk.results import Json


@dataclass(frozen=True)
class ListedObject:
    cluster: str
    whole: Json

    @property
    def name(self) -> str:
        return str(self.whole["metadata"]["name"])

    @property
    def created(self) -> datetime:
        return datetime.fromisoformat(self.whole["metadata"]["creationTimestamp"])

    def part(self, name: str) -> Json:
        """One part of the object, as `spec` or `status`; empty where it has none."""
        return self.whole.get(name) or {}


async def wholes(found: Sequence[ListedObject]) -> list[Json | None]:
    """The objects as the API has them."""
    return [one.whole for one in found]
