"""A hot update: labels of the instance and its disks, the instance's network tags, metadata and alias IP ranges (seed
002).

drivers.tags says what is to change. Google is told all labels, tags or metadata of a resource at once, with the
fingerprint of what was read: where somebody else has changed them meanwhile it refuses, and they are read and planned
again. After an error it goes on with the other resources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from drivers.base import Identity, UpdateMachineRequest, UpdateMachineResponse
from drivers.errors import DriverError
from drivers.failures import about
from drivers.gcp import belongings, instances
from drivers.gcp.calls import STALE, Gce, Resource
from drivers.gcp.instances import STOPPING, VmId
from drivers.gcp.launch import alias_range, parse_spec
from drivers.gcp.tags import KEY_UID, changed, labels_of, network_tags_of, plan_network_tags
from drivers.tags import TagPlan, believed, check_must_tags, class_tags, plan_tags, plan_update
from drivers.updating import UpdateTarget, answer, halves
from resources.clouds.gcp.spec import USER_DATA_KEYS, GcpProviderSpec
from resources.errors import ErrorClass

T = TypeVar("T")

READS = 4
"""How often something is read and written that somebody else keeps changing; after that the update fails, and waits."""
_ENTRIES_MOST = 1_000_000
"""Metadata is limited by its size, which Google checks."""


def hot_update(
    connect: Callable[[], Gce], request: UpdateMachineRequest, last: Mapping[str, Any]
) -> UpdateMachineResponse:
    """Updates the VM. Idempotent. Without a change for this VM it makes no call, not even a read.

    Raises DriverError of class invalid, before any call, when a must-tag would change; PartialUpdate when some resource
    failed: of the class with the longest wait, with what became of each resource.
    """
    before, goal = parse_spec(dict(last)), parse_spec(request.provider_spec)
    check_must_tags(before, goal, request.machine)
    labelled = [r for r in goal.tag_sets() if r in before.tag_sets() and class_tags(before, r) != class_tags(goal, r)]
    parts = [part for part in _PARTS if part.differs(before, goal)]
    nics = zip(before.network_interfaces, goal.network_interfaces, strict=False)
    parts += [_alias_part(n) for n, (had, has) in enumerate(nics) if alias_range(had) != alias_range(has)]
    if not labelled and not parts:
        return UpdateMachineResponse()
    return _Update(connect(), request, before, goal).run(labelled, parts)


class _Update:
    def __init__(self, gce: Gce, request: UpdateMachineRequest, last: GcpProviderSpec, goal: GcpProviderSpec) -> None:
        self.gce = gce
        self.machine = request.machine
        self.vm = VmId.of(request.provider_id)
        self.provider_id = request.provider_id
        self.last = last
        self.goal = goal

    def run(self, labelled: list[str], parts: list[_Part]) -> UpdateMachineResponse:
        """`labelled`: resources whose labels differ between the two specs; `parts`: what else of the instance does."""
        instance = self._instance()
        target = UpdateTarget(self.vm.name, "instance", labels_of(instance))
        targets = [target]
        if "vm" in labelled:
            parts = [_LABELS, *parts]
        for part in parts:
            self._write(target, instance, part)
        disks = belongings.held(instance)
        for n in [n for n in self.goal.persistent if f"disks[{n}]" in labelled]:
            if n in disks:
                targets.append(self._label_disk(disks[n], f"disks[{n}]"))
            else:
                words = f"{self.vm.name}: disks[{n}] is not attached, so its labels are not changed"
                target.errors.append(DriverError(ErrorClass.CONFLICT, words))
        return answer(targets)

    def _instance(self) -> Resource:
        instance = instances.by_id(self.gce, self.provider_id)
        if instance is None or instances.status_of(instance) == STOPPING:
            words = "Google knows none" if instance is None else f"{self.vm.name} is {STOPPING}"
            raise DriverError(ErrorClass.NOT_FOUND, f"machine {self.machine.name} has no VM to update: {words}")
        owner = instances.uid_of(instance) or self.machine.uid
        if owner != self.machine.uid:
            raise DriverError(
                ErrorClass.CONFLICT,
                f"{self.vm.name} is not updated: its label {KEY_UID}={owner} says that it belongs to another machine, "
                f"not to {self.machine.name} (uid {self.machine.uid}); correct the label or the providerID",
            )
        return instance

    def _write(self, target: UpdateTarget, instance: Resource, part: _Part) -> None:
        """Makes one part of the instance what it shall be."""

        def write(plan: TagPlan, current: Resource) -> None:
            body, number = part.body(plan, current), str(instance["id"])
            begun = self.gce.call(part.operation, body, zone=self.vm.zone, instance=number, **part.of)
            self.gce.finish(part.operation, begun, self.vm.zone)

        self._bring(
            target,
            _Way(
                read=lambda: instances.by_id(self.gce, self.provider_id),
                plan=lambda current: part.plan(self.last, self.goal, self.machine, current),
                write=write,
                called=part.called,
            ),
            instance,
        )

    def _label_disk(self, name: str, place: str) -> UpdateTarget:
        target = UpdateTarget(name, "disk", {})
        way = _Way(
            read=lambda: belongings.by_name(self.gce, self.vm.zone, name),
            plan=lambda disk: plan_update(self.last, self.goal, self.machine, place, disk.labels),
            write=lambda plan, disk: belongings.set_labels(self.gce, self.vm.zone, disk, changed(plan, disk.labels)),
        )
        self._bring(target, way)
        return target

    def _bring(self, target: UpdateTarget, way: _Way[T], found: T | None = None, keys: Sequence[str] = ()) -> None:
        """Reads, plans and writes, again where somebody else has changed it meanwhile. `keys`: only these are set.

        Google takes all of it or nothing; each half is brought on its own (`halves`) where one key may be the reason
        for a refusal."""
        plan = TagPlan()
        try:
            for reads in range(1, READS + 1):
                current = found if reads == 1 and found is not None else way.read()
                if current is None:
                    target.changed.append("gone meanwhile")
                    return
                plan = way.plan(current)
                plan = TagPlan({k: v for k, v in plan.set.items() if k in keys}, plan.remove) if keys else plan
                if not plan:
                    return
                try:
                    way.write(plan, current)
                    break
                except DriverError as e:
                    stale = e.provider_code in STALE and e.error_class is not ErrorClass.INVALID  # a policy says it too
                    if not stale or reads == READS:
                        raise
            target.changed += _words(plan, way.called)
        except DriverError as e:
            if len(plan.set) > 1 and e.error_class is ErrorClass.INVALID:
                for half in halves(list(plan.set)):
                    self._bring(target, way, keys=half)
            else:
                self._failed(target, e, [f"{way.called or 'label '}{key}" for key in plan.set if len(plan.set) == 1])

    def _failed(self, target: UpdateTarget, error: DriverError, what: Sequence[str] = ()) -> None:
        if error.provider_code in belongings.GONE:  # it has vanished since it was read: nothing is left to update
            target.changed.append("gone meanwhile")
        else:
            target.errors.append(about(error, [target.id, *what]))


def _words(plan: TagPlan, called: str) -> list[str]:
    return [f"removed {called}{key}" for key in plan.remove] + [f"set {called}{key}" for key in plan.set]


@dataclass(frozen=True)
class _Way(Generic[T]):
    """How something is brought to what it shall be, that Google changes as a whole, by its fingerprint."""

    read: Callable[[], T | None]
    plan: Callable[[T], TagPlan]
    write: Callable[[TagPlan, T], None]
    called: str = ""


# -- parts of an instance ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """Something of an instance that Google changes as a whole, by its fingerprint."""

    operation: str
    called: str
    differs: Callable[[GcpProviderSpec, GcpProviderSpec], bool]
    plan: Callable[[GcpProviderSpec, GcpProviderSpec, Identity, Resource], TagPlan]
    body: Callable[[TagPlan, Resource], Resource]
    of: Mapping[str, str] = field(default_factory=dict)
    """What the call names beside the instance."""


def _plan_labels(last: GcpProviderSpec, goal: GcpProviderSpec, machine: Identity, instance: Resource) -> TagPlan:
    return plan_update(last, goal, machine, "vm", labels_of(instance))


def _labels_body(plan: TagPlan, instance: Resource) -> Resource:
    labels = changed(plan, labels_of(instance))
    return {"labels": labels, "labelFingerprint": instance.get("labelFingerprint", "")}


def _plan_network_tags(last: GcpProviderSpec, goal: GcpProviderSpec, machine: Identity, instance: Resource) -> TagPlan:
    return plan_network_tags(last, goal, machine, network_tags_of(instance))


def _network_tags_body(plan: TagPlan, instance: Resource) -> Resource:
    tags = changed(plan, dict.fromkeys(network_tags_of(instance), ""))
    return {"items": list(tags), "fingerprint": (instance.get("tags") or {}).get("fingerprint", "")}


def _metadata_of(instance: Resource) -> dict[str, str]:
    items = (instance.get("metadata") or {}).get("items") or ()
    return {item["key"]: item.get("value", "") for item in items}


def _plan_metadata(last: GcpProviderSpec, goal: GcpProviderSpec, machine: Identity, instance: Resource) -> TagPlan:
    actual = believed(last.metadata, goal.metadata, _metadata_of(instance))
    return plan_tags(last.metadata, goal.metadata, actual, USER_DATA_KEYS, _ENTRIES_MOST)


def _metadata_body(plan: TagPlan, instance: Resource) -> Resource:
    entries = changed(plan, _metadata_of(instance))
    fingerprint = (instance.get("metadata") or {}).get("fingerprint", "")
    return {"items": [{"key": k, "value": v} for k, v in entries.items()], "fingerprint": fingerprint}


def _alias_part(n: int) -> _Part:
    """The alias IP range of an interface, by its place. It is added to those that are there: the range that the class
    had before is where the addresses of the pods on the Node are from, until the VM goes."""

    def nic_of(instance: Resource) -> Resource:
        return dict(instance["networkInterfaces"][n])

    def plan(last: GcpProviderSpec, goal: GcpProviderSpec, machine: Identity, instance: Resource) -> TagPlan:
        wanted = alias_range(goal.network_interfaces[n])
        if wanted is None or any(_is_of(wanted, alias) for alias in nic_of(instance).get("aliasIpRanges") or ()):
            return TagPlan()
        return TagPlan(set={wanted["ipCidrRange"]: wanted.get("subnetworkRangeName", "")})

    def body(plan: TagPlan, instance: Resource) -> Resource:
        nic, ((cidr, name),) = nic_of(instance), plan.set.items()
        more = {"ipCidrRange": cidr, **({"subnetworkRangeName": name} if name else {})}
        return {"aliasIpRanges": [*(nic.get("aliasIpRanges") or ()), more], "fingerprint": nic.get("fingerprint", "")}

    differs: Callable[[GcpProviderSpec, GcpProviderSpec], bool] = lambda last, goal: True  # noqa: E731
    called = f"alias IP range of nic{n}: "
    return _Part("instances.updateNetworkInterface", called, differs, plan, body, {"network_interface": f"nic{n}"})


def _is_of(wanted: Resource, found: Resource) -> bool:
    """Whether an interface's range is what a class asks for: `/24` is any range of that size."""
    fits = str(found.get("ipCidrRange", "")).endswith(wanted["ipCidrRange"])
    return fits and bool(found.get("subnetworkRangeName", "") == wanted.get("subnetworkRangeName", ""))


_LABELS = _Part("instances.setLabels", "", lambda last, goal: True, _plan_labels, _labels_body)
_PARTS = (
    _Part(
        "instances.setTags",
        "network tag ",
        lambda last, goal: set(last.network_tags) != set(goal.network_tags),
        _plan_network_tags,
        _network_tags_body,
    ),
    _Part(
        "instances.setMetadata",
        "metadata ",
        lambda last, goal: last.metadata != goal.metadata,
        _plan_metadata,
        _metadata_body,
    ),
)
