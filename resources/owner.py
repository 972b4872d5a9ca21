"""The owner of a machine: it plans the machine's end, hears how it is, and makes another in its place.

A kind of owner is a row of KINDS. What owners of every kind do is in workflows/fleet and planners/fleet; a made-up kind
in the tests (tests/kits/pools/quorum.py) keeps that true.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from resources.base import Name, Value, cut
from resources.names import config_pool_id, config_pool_of, machine_id


@dataclass(frozen=True)
class OwnerKind:
    manifest: str
    """The manifest's kind, which is also the kind on the wire."""
    word: str
    """What people call it: one word in lower case, which also begins its name among others' users."""
    workflow: str
    """The type of its workflow."""
    path: str
    """How the ids of its workflows begin: `<path>/<cluster>/<name>`."""
    only: str = ""
    """The name of a cluster's only one, whose id is `<path>/<cluster>`; "" where there may be several."""

    def id(self, cluster: str, name: str) -> str:
        return f"{self.path}/{cluster}" if self.only else f"{self.path}/{cluster}/{name}"

    def name_in(self, cluster: str, workflow_id: str) -> str | None:
        """The name of the owner with this id; None where that is no owner of this kind in this cluster."""
        if self.only:
            return self.only if workflow_id == self.id(cluster, self.only) else None
        prefix = self.id(cluster, "")
        return workflow_id.removeprefix(prefix) if workflow_id.startswith(prefix) else None


POOL = OwnerKind("MachineDeployment", "pool", "MachineDeploymentWorkflow", "machinedeployment")
CONTROL_PLANE = OwnerKind(
    "ControlPlaneMachineSet", "controlplane", "ControlPlaneWorkflow", "controlplane", only="cluster"
)
KINDS: dict[str, OwnerKind] = {kind.manifest: kind for kind in (POOL, CONTROL_PLANE)}
"""Kinds of owners by their manifests' kinds."""


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"{cut(repr(kind), 100)} is no kind that owns machines; there are {', '.join(sorted(KINDS))}")
    return kind


class Owner(Value):
    """An owner. A machine without one plans nothing for itself either: a person deletes and replaces it."""

    kind: Annotated[Name, AfterValidator(_known)] = POOL.manifest
    """Messages and histories from when all owners were pools have none."""
    name: Name

    @classmethod
    def read(cls, text: str) -> Owner:
        """The owner that `user` or `listed` stands for. What stands for none is a pool's name: no such pool runs."""
        word, _, name = text.partition("/")
        kind = next((kind for kind in KINDS.values() if kind.word == word and name), None)
        return cls(kind=kind.manifest, name=name) if kind else cls(name=text)

    @classmethod
    def words(cls, text: str) -> str:
        """The owner that `listed` stands for, in words for people; "" for a machine that has none."""
        return str(cls.read(text)) if text else ""

    @classmethod
    def of_id(cls, cluster: str, workflow_id: str) -> Owner | None:
        """The owner with this workflow id; None where it is no owner's."""
        found = ((kind, kind.name_in(cluster, workflow_id)) for kind in KINDS.values())
        return next((cls(kind=kind.manifest, name=name) for kind, name in found if name is not None), None)

    def __str__(self) -> str:
        """Words for people: `pool demo`."""
        return f"{self.word} {self.name}"

    @property
    def word(self) -> str:
        return KINDS[self.kind].word

    @property
    def user(self) -> str:
        """Its name among the users of a class, whose other users are machines: no machine's name has a slash."""
        return f"{self.word}/{self.name}"

    @property
    def listed(self) -> str:
        """Its name among the owners of a cluster and in HostlerPool. A pool's is bare, from when there were only
        pools."""
        return self.name if self.kind == POOL.manifest else self.user

    def workflow_id(self, cluster: str) -> str:
        return KINDS[self.kind].id(cluster, self.name)


class OwnerRef(Owner):
    """An owner of a cluster, for an activity."""

    cluster: Name


def is_owner(user: str) -> bool:
    """Whether this user of a class is an owner of machines, and not a machine."""
    return "/" in user


def pool_of(machine: str) -> str:
    """The user that the pool of a machine would be, by the machine's name: `<pool>-<revision>-<random>`."""
    return Owner(name=machine.rsplit("-", 2)[0]).user


def user_id(cluster: str, user: str) -> str:
    """The workflow id of a class's user."""
    return Owner.read(user).workflow_id(cluster) if is_owner(user) else machine_id(cluster, user)


def by_word(users: Iterable[str]) -> dict[str, list[str]]:
    """The names of owners and machines, sorted, by what people call them: owners first."""
    found: dict[str, list[str]] = {word: [] for word in (*(kind.word for kind in KINDS.values()), "machine")}
    for user in sorted(users):
        word, _, name = user.rpartition("/")
        found.setdefault(word or "machine", []).append(name)
    return found


def workflows_of_owners() -> list[str]:
    """The types of the workflows of owners, of every kind."""
    return [kind.workflow for kind in KINDS.values()]


# -- who hears a cluster's news, besides owners -----------------------------------------------------------------------


def listener_id(cluster: str, listener: str) -> str:
    """The workflow id of one that hears a cluster's news: an owner, as `Owner.listed`, or a config pool, which owns no
    machine."""
    pool = config_pool_of(listener)
    return config_pool_id(cluster, pool) if pool else Owner.read(listener).workflow_id(cluster)


def listener_words(listener: str) -> str:
    pool = config_pool_of(listener)
    return f"config pool {pool}" if pool else str(Owner.read(listener))
