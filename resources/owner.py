"""The owner of a machine: it plans the machine's end, hears how it is, and makes another in its place."""

from __future__ import annotations

from enum import StrEnum

from resources.base import Name, Value
from resources.names import pool_id, pool_user


class OwnerKind(StrEnum):
    """The manifests that machines are made for."""

    POOL = "MachineDeployment"


class Owner(Value):
    """An owner. A machine without one plans nothing for itself either: a person deletes and replaces it."""

    kind: OwnerKind = OwnerKind.POOL
    name: Name

    def __str__(self) -> str:
        """Words for people: `pool demo`."""
        return f"pool {self.name}"

    @property
    def user(self) -> str:
        """Its name among the users of a class, whose other users are machines: no machine's name has a slash."""
        return pool_user(self.name)

    def workflow_id(self, cluster: str) -> str:
        return pool_id(cluster, self.name)
