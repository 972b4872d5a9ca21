"""What a cloud is to the rest of Hostler: one interface, which each cloud's own module fills (docs/add-a-cloud.md).

Nothing here makes a call. The planners, the workflows and the command line know a cloud only by this interface; only
the cloud's driver knows its API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from resources.base import NAME_MOST, Key, Manifest, cut
from resources.clouds.domain import FailureDomain
from resources.clouds.openshift import OpenShiftSpec
from resources.clouds.workers import WorkerPlug
from resources.names import (
    CLUSTER_PREFIX,
    MUST_PREFIXES,
    TAG_CLUSTER,
    TAG_INSTALLATION,
    TAG_MACHINE,
    TAG_OWNER,
    TAG_RELEASED,
    TAG_UID,
)

Tags = dict[Key, Key]
OUR_TAGS = (TAG_OWNER, TAG_INSTALLATION, TAG_CLUSTER, TAG_MACHINE, TAG_UID)


class UnknownScope(ValueError):
    """A provider spec does not say where its machines are, so there is nothing to watch, to sweep or to share. The
    message names the field."""


def _as_it_is(text: str) -> str:
    return text


KEY_SHOWN = 79
"""The most characters of a key in a message: a word of 80 looks like encoded user data, and is hidden wherever a
message is scrubbed (resources/redact.py)."""


def shown_key(key: str) -> str:
    """A tag's key in a message: bounded, and without characters that do not belong in a line."""
    return repr(cut(key, KEY_SHOWN)) if not key.isprintable() else cut(key, KEY_SHOWN)


@dataclass(frozen=True)
class TagRules:
    """What a cloud accepts as a tag, and which tags a class may not set."""

    limit: int
    """How many a resource may carry."""
    key: Callable[[str], str] = _as_it_is
    """How the cloud writes a key: one that is not allowed becomes one that is. Applying it twice changes nothing
    more."""
    value: Callable[[str], str] = _as_it_is
    """How the cloud writes a value."""
    key_length: int = 128
    """The most characters of a key."""
    value_length: int = 256
    """The most characters of a value."""
    name: str = ""
    """The tag that the cloud's console shows as a resource's name, which is the machine's; "" if there is none."""
    uncounted: tuple[str, ...] = ()
    """Prefixes, in lower case, of the cloud's own keys, which do not count against the limit and which nobody else may
    set."""

    def written(self, tags: Mapping[str, str]) -> Tags:
        """The tags as the cloud has them."""
        return {self.key(k): self.value(v) for k, v in tags.items()}

    @property
    def must_prefixes(self) -> tuple[str, ...]:
        """Prefixes, as the cloud writes them, of the keys by which Gardener's tools find whose a resource is."""
        return tuple(map(self.key, MUST_PREFIXES))

    def is_must(self, key: str) -> bool:
        """Whether a key that the cloud has written says whose a resource is. It never changes on a living VM."""
        return key.startswith(self.must_prefixes)

    def refusals(self, before: Tags, after: Tags) -> Iterator[str]:
        """Why a class may not name these must-tags after those, in words with what to do.

        They say whose a machine is, so they never change while it lives (design drivers.md, *Tags*). A class that has
        named none may begin to: the driver knows what its machines carry.
        """
        for prefix in self.must_prefixes:
            had = {k: v for k, v in before.items() if k.startswith(prefix)}
            has = {k: v for k, v in after.items() if k.startswith(prefix)}
            if not had or had == has:
                continue
            for key in sorted({*had, *has}):
                what = "removed" if key not in has else "added" if key not in had else "changed"
                if had.get(key) != has.get(key):
                    yield (
                        f"the tag {key} may not be {what}: the cluster's tools find the machine's owner by it; keep "
                        f"{' and '.join(sorted(had))} in one of the tag fields, or create a new class"
                    )

    def mistakes(self, tags: Tags) -> Iterator[str]:
        """What the cloud would refuse of a class's tags for one resource, each in words with the key."""
        for key, value in tags.items():
            if not key.strip():
                yield f"the key {key!r} is empty"
            elif key.lower().startswith(self.uncounted):
                yield f"the key {shown_key(key)} is the cloud's own: nobody else may set {' or '.join(self.uncounted)}…"
            elif len(key) > self.key_length:
                yield f"the key {shown_key(key)} has {len(key)} characters, the cloud takes {self.key_length}"
            if len(value) > self.value_length:
                yield (
                    f"the value of {shown_key(key)} has {len(value)} characters, the cloud takes {self.value_length}"
                )

    def crowding(self, tags: Tags) -> Iterator[str]:
        """Words for by how many a class's tags for one resource are too many. The limit counts what is on everything
        beside them: must-tags, ours, and the resource's name."""
        own = {key for key in self.counted(tags) if not self.is_protected(key)}
        must = len(OUR_TAGS) + len(MUST_PREFIXES) + bool(self.name)
        if (over := len(own) + must - self.limit) > 0:
            yield (
                f"{len(own)} tags, and {must} that are on everything, are more than the {self.limit} that the cloud "
                f"takes for a resource: remove {over}"
            )

    def is_protected(self, key: str) -> bool:
        """Whether the class may never set or remove it: must-tags, ours, and the mark of a released resource."""
        ours = {self.key(k) for k in (*OUR_TAGS, TAG_RELEASED)}
        return key in ours or (self.name != "" and key == self.name) or self.is_must(key)

    def counted(self, tags: Mapping[str, str]) -> Tags:
        """The tags that count against the limit."""
        return {k: v for k, v in tags.items() if not k.lower().startswith(self.uncounted)}


class ProviderSpec(Manifest):
    """`providerSpec` of a MachineClass, as one cloud has it.

    Every field carries its Effect, also within lists and objects; what is not marked is `hash`. The hot update
    (planners/machine/hot_update.py) goes by these marks alone. tests/unit/test_clouds.py holds each model to what that
    needs: an object or a list's item that has hot fields beside others is always there, or has a field that must
    be given and is not hot.
    """

    SCOPE: ClassVar[tuple[str, ...]] = ()
    """Fields of the first level, as manifests write them, that say where machines are made: together with the Secret
    they define what is listed in one go, and what shares the cloud's limits."""
    TAGS: ClassVar[TagRules]

    def in_domain(self, fields: Mapping[str, Any]) -> Self:
        """The spec of a machine in the failure domain with these fields."""
        raise NotImplementedError

    def domain(self) -> FailureDomain:
        """The failure domain that the spec is in: `in_domain` of it changes nothing."""
        raise NotImplementedError

    def imaged_as(self, other: Self) -> Self:
        """The spec with the boot images of the other one: they matter at a machine's first start only, after which a
        control plane's operating system is updated in place (OpenShift compares specs without them)."""
        raise NotImplementedError

    def tag_sets(self) -> dict[str, Tags]:
        """What the class asks for on each resource that carries tags, as the cloud writes it; it may include must-tags.
        Keyed by what the spec calls the resource: a kind (`vm`, `nic`, `disk`), or a place (`disks[0]`)."""
        raise NotImplementedError

    def tags_for(self, resource: str) -> Tags:
        """The tags for one resource."""
        return self.tag_sets()[resource]

    def in_one_spelling(self) -> Self:
        """The spec in the spelling shared by all that mean the same to the cloud. A cloud whose spellings
        resources/canonical.py all knows returns it unchanged."""
        return self

    def settled(self) -> Self:
        """The same wish with nothing left to a fallback: every hot field itself says what is wanted there."""
        return self

    def tag_fields(self, resource: str) -> str:
        """Where a class writes them, for messages."""
        return f"{resource}Tags"

    def must_tags(self) -> Tags:
        """The class's tags of cluster and role: Gardener's manifests carry them."""
        return {k: v for tags in self.tag_sets().values() for k, v in tags.items() if self.TAGS.is_must(k)}

    def mistakes(self) -> list[tuple[str, str]]:
        """Path and words for what the cloud would refuse at the creation, as far as the spec alone shows it.

        The model takes it all the same: a spec that is stored must be readable, whatever is wrong with it.
        """
        return [*self._of_tags(self.TAGS.mistakes), *self._of_owners()]

    def _of_owners(self) -> Iterator[tuple[str, str]]:
        """A machine is of one cluster: with two, nobody could tell whose it is."""
        prefix = self.TAGS.key(CLUSTER_PREFIX)
        if len(keys := sorted(k for k in self.must_tags() if k.startswith(prefix))) > 1:
            names = " and ".join(shown_key(k) for k in keys)
            where = self.tag_fields(next(iter(self.tag_sets())))
            yield where, f"{names}: a machine is of one cluster; keep the tag of its own"

    def crowding(self) -> list[tuple[str, str]]:
        """Path and words for too many tags, as if a machine carried all of those that are on everything. The driver
        counts what its machine carries."""
        return self._of_tags(self.TAGS.crowding)

    def _of_tags(self, wrong: Callable[[Tags], Iterator[str]]) -> list[tuple[str, str]]:
        found = ((self.tag_fields(r), words) for r, tags in self.tag_sets().items() for words in wrong(tags))
        return list(dict.fromkeys(found))

    def deprecations(self) -> list[tuple[str, str]]:
        """Path and advice for fields that still work but should no longer be written."""
        return []

    @classmethod
    def scope(cls, spec: Mapping[str, Any]) -> str:
        """Where the machines of a spec are, as one text: the fields of SCOPE, separated by slashes.

        The spec may otherwise be stale or wrong. Raises UnknownScope.
        """
        scope = "/".join(cls._part(spec, name) for name in cls.SCOPE)
        if len(scope) > NAME_MOST:
            raise UnknownScope(
                f"providerSpec.{' and '.join(cls.SCOPE)}: {len(scope)} characters are too long to name a place"
            )
        return scope

    @classmethod
    def _part(cls, spec: Mapping[str, Any], name: str) -> str:
        names = (name, *(own for own, info in cls.model_fields.items() if info.alias == name))
        value = next((spec[n] for n in names if n in spec), None)
        if not isinstance(value, str) or not value or "/" in value:
            wrong = "is missing" if value is None else "is not a name, or contains a slash"
            raise UnknownScope(
                f"providerSpec.{name} {wrong}: it says where the machines are, and without it they can be neither "
                "watched nor swept"
            )
        return value

    @classmethod
    def place(cls, scope: str) -> dict[str, Any]:
        """The part of a spec that `scope` is made of: enough for calls that concern no single machine."""
        return dict(zip(cls.SCOPE, scope.split("/"), strict=True)) if cls.SCOPE else {}


class TaggedApart(ProviderSpec):
    """A provider spec with `vmTags`, `nicTags` and `diskTags` (seed 002), and MCM's deprecated `tags` for all three: a
    specific field, even empty, replaces it for its resource. Each cloud declares the four among its own fields."""

    if TYPE_CHECKING:
        tags: Tags
        vm_tags: Tags | None
        nic_tags: Tags | None
        disk_tags: Tags | None

    def given_tags(self) -> dict[str, Tags]:
        """A resource's specific field where it is given, else the deprecated `tags`; as the class writes them."""
        specific = {"vm": self.vm_tags, "nic": self.nic_tags, "disk": self.disk_tags}
        return {resource: dict(self.tags if tags is None else tags) for resource, tags in specific.items()}

    def tag_sets(self) -> dict[str, Tags]:
        return {resource: self.TAGS.written(tags) for resource, tags in self.given_tags().items()}

    def tag_fields(self, resource: str) -> str:
        return f"{resource}Tags or tags"

    def settled(self) -> Self:
        """The spec with all three specific fields. `tags` keeps the must-tags, which the class may have only there."""
        specific = {f"{resource}_tags": tags for resource, tags in self.given_tags().items()}
        must = {k: v for k, v in self.tags.items() if self.TAGS.is_must(self.TAGS.key(k))}
        return self.model_copy(update={**specific, "tags": must})

    def must_tags(self) -> Tags:
        """The must-tags wherever the class has them, even in a field that another one replaces."""
        every = {**self.tags, **(self.vm_tags or {}), **(self.nic_tags or {}), **(self.disk_tags or {})}
        return {k: v for k, v in self.TAGS.written(every).items() if self.TAGS.is_must(k)}


@dataclass(frozen=True)
class ProviderIDs:
    """How a cloud's providerIDs are read, `scheme://…`."""

    scheme: str
    key: Callable[[str], str] = _as_it_is
    """What identifies the VM, whoever wrote the providerID."""
    indexed: Callable[[str], str] = _as_it_is
    """The one spelling by which visibility can be asked for it, whoever wrote the providerID."""
    at: Callable[[str, Mapping[str, Any]], str] | None = None
    """The driver's spelling of an indexed one, of a VM at the place of a provider spec. None where it is the indexed
    one."""


@dataclass(frozen=True)
class Simulation:
    """The simulated twin of a cloud."""

    module: str
    """It has `simulated(frame, timings, world)` and is imported by the simulator alone."""
    service: str
    """The name of its API there: in fault rules, in the journal of calls, in the option `--<service>-port`."""
    port: int
    """The port that `hostler up` serves it on, unless told otherwise."""
    create: str
    """The operation that makes a VM."""


@dataclass(frozen=True)
class Provider:
    """A cloud, as a MachineClass names it in `provider`."""

    name: str
    spec: type[ProviderSpec]
    ids: ProviderIDs
    domain: type[FailureDomain] = field(repr=False)
    """A failure domain, as manifests of control planes write it."""
    openshift: type[OpenShiftSpec] = field(repr=False)
    """OpenShift's spec of a machine on this cloud."""
    driver: str = field(repr=False)
    """The module of its driver, which has `driver(settings)`. It is only imported where a worker needs it."""
    simulation: Simulation | None = field(default=None, repr=False)
    """None: this cloud is not simulated."""
    annotations: Mapping[str, Callable[[str], object]] = field(default_factory=dict, repr=False)
    """Annotations of node templates that its driver reads at a launch, each with what reads its value and raises
    ValueError."""
    workers: WorkerPlug | None = field(default=None, repr=False)
    """What the cloud makes of a worker pool; None: it has none."""
