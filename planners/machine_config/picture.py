"""What rendering sees of a cluster, and what it wants done: the two ends of `reconcile.plan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from planners.machine_config.objects import Obj, copied, meta, name_of, uid_of
from resources.machine_config.keys import ConfigKind
from resources.merge_patch import merge_patch

Verb: TypeAlias = Literal["create", "update", "delete"]


@dataclass(frozen=True)
class RenderOptions:
    """What a cluster's settings say about rendering, and who renders."""

    worker_first: bool = False
    """MachineConfigs with the role worker are merged before all others."""
    feature_gates: Literal["accept", "refuse"] = "accept"
    keep_rendered: int = 5
    """How many rendered configs of a pool are kept that nobody names."""
    version: str = "0.1.0"
    """Hostler's: what is rendered is marked with it, and an older Hostler does not touch a newer one's."""


@dataclass(frozen=True)
class Picture:
    """A cluster's objects, as the API server gave them."""

    configs: Sequence[Obj] = ()
    """MachineConfigs, contents included."""
    pools: Sequence[Obj] = ()
    kubelet_configs: Sequence[Obj] = ()
    controller_configs: Sequence[Obj] = ()
    templates: Mapping[str, str] = field(default_factory=dict)
    """Text by path below the folder of templates, such as `master/00-master/_base/files/x.yaml`."""
    named: frozenset[str] | None = frozenset()
    """Names of MachineConfigs in annotations of Nodes. None: the Nodes could not be read, so nothing is collected."""


@dataclass(frozen=True)
class ConfigChange:
    """One call of the API server."""

    verb: Verb
    kind: ConfigKind
    name: str
    words: str
    """Why, in words; never of the contents."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The whole object; {} for a deletion."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """The object that is changed or deleted; {} for a new one."""
    subresource: Literal["", "status"] = ""

    @property
    def uid(self) -> str:
        return uid_of(self.before)

    @property
    def resource_version(self) -> str:
        """The precondition: somebody else's write since then makes the call a conflict, and all is read again."""
        return str(meta(self.before).get("resourceVersion") or "")

    @property
    def patch(self) -> dict[str, Any]:
        """The change as a merge patch, with the precondition."""
        found = merge_patch(self.before, self.body)
        found["metadata"] = {**found.get("metadata", {}), "resourceVersion": self.resource_version}
        return found


@dataclass(frozen=True)
class ConfigEvent:
    """What people are told at an object, as a Kubernetes Event."""

    kind: ConfigKind
    name: str
    warning: bool
    reason: str
    message: str


@dataclass(frozen=True)
class RenderTrouble:
    """What keeps something from being rendered."""

    kind: ConfigKind
    name: str
    reason: str
    message: str


@dataclass(frozen=True)
class ConfigChanges:
    """What is wanted now. After it is done the plan is asked again, until it wants nothing."""

    changes: tuple[ConfigChange, ...] = ()
    events: tuple[ConfigEvent, ...] = ()
    """Told together with the changes: each stands beside a change that keeps it from being told twice."""
    troubles: tuple[RenderTrouble, ...] = ()

    def __add__(self, other: ConfigChanges) -> ConfigChanges:
        return ConfigChanges(
            (*self.changes, *other.changes), (*self.events, *other.events), (*self.troubles, *other.troubles)
        )


def created(kind: ConfigKind, obj: Obj, words: str) -> ConfigChange:
    return ConfigChange("create", kind, name_of(obj), words, copied(obj))


def updated(kind: ConfigKind, before: Obj, after: Obj, words: str, status: bool = False) -> ConfigChange:
    return ConfigChange("update", kind, name_of(before), words, after, before, "status" if status else "")


def deleted(kind: ConfigKind, obj: Obj, words: str) -> ConfigChange:
    return ConfigChange("delete", kind, name_of(obj), words, before=obj)
