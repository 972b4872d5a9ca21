"""A hot update: tags of the VM, its disks and its interface, and the interface's IP forwarding (seed 002).

drivers.tags says what is to change; here is what Azure needs for it: one call to merge and one to remove for each
resource, which leave others' tags alone whatever they do meanwhile. After an error it goes on with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from drivers.azure import belongings, places, requests, tags
from drivers.azure.belongings import CALLED, Belonging, BelongingKind
from drivers.azure.calls import Arm
from drivers.azure.requests import parse_spec
from drivers.base import UpdateMachineRequest, UpdateMachineResponse
from drivers.errors import DriverError
from drivers.failures import about
from drivers.tags import TagPlan, check_must_tags, class_tags, must_tags, plan_update
from drivers.updating import UpdateTarget, answer, halves
from resources.clouds import Tags
from resources.clouds.azure.spec import AzureProviderSpec
from resources.clouds.base import shown_key
from resources.errors import ErrorClass

KINDS: tuple[BelongingKind, ...] = ("vm", "disk", "nic")
TOO_MUCH = ("TooManyTags", "TagCountExceeded")
"""These are no single tag's fault."""


def hot_update(
    connect: Callable[[], Arm], request: UpdateMachineRequest, last_applied: Mapping[str, Any]
) -> UpdateMachineResponse:
    """Updates the machine. Idempotent. Without a change for it, it makes no call, not even a read.

    Raises DriverError of class invalid, before any call, when a must-tag would change; PartialUpdate when some resource
    failed: of the class with the longest wait, with what became of each resource.
    """
    last, goal = parse_spec(dict(last_applied)), parse_spec(request.provider_spec)
    check_must_tags(last, goal, request.machine)
    kinds = [kind for kind in KINDS if class_tags(last, kind) != class_tags(goal, kind)]
    if not kinds and requests.forwards(last) == requests.forwards(goal):
        return UpdateMachineResponse()
    return _Update(connect(), request, last, goal, kinds).run()


class _Update:
    def __init__(
        self,
        arm: Arm,
        request: UpdateMachineRequest,
        last: AzureProviderSpec,
        goal: AzureProviderSpec,
        kinds: list[BelongingKind],
    ) -> None:
        self.arm = arm
        self.machine = request.machine
        self.vm = places.vm_of(request.provider_id)
        self.last = last
        self.goal = goal
        self.kinds = kinds
        """Kinds whose tags differ between the two specs."""

    def run(self) -> UpdateMachineResponse:
        found = belongings_of(self.arm, self.machine.uid, self.vm)
        targets = {
            b.id: UpdateTarget(b.name, CALLED[b.kind], tags.spelled(b.tags, self._keys(b.kind)))
            for b in found
            if b.kind in self.kinds or b.kind == "nic"
        }
        for belonging in found:
            if belonging.kind in self.kinds:
                self._retag(belonging, targets[belonging.id])
        if requests.forwards(self.last) != requests.forwards(self.goal):
            for nic in (b for b in found if b.kind == "nic"):
                self._forward(nic, targets[nic.id])
        return answer(targets.values())

    def _keys(self, kind: BelongingKind) -> list[str]:
        specs = (self.last, self.goal)
        return [k for spec in specs for k in (*class_tags(spec, kind), *must_tags(spec, self.machine))]

    def _retag(self, belonging: Belonging, target: UpdateTarget) -> None:
        try:
            target.plan = plan_update(self.last, self.goal, self.machine, belonging.kind, target.tags)
            # Removals first: a resource that carries as many tags as it may has no room for a new one until then.
            if gone := {k: target.tags[k] for k in target.plan.remove if k in target.tags}:
                tags.remove(self.arm, belonging.id, gone)
                target.changed += [f"removed {k}" for k in gone]
        except DriverError as e:
            self._failed(target, e)
        else:
            self._set(belonging, target, target.plan.set)

    def _set(self, belonging: Belonging, target: UpdateTarget, wanted: Tags) -> None:
        """Sets these tags in one call, which Azure takes as a whole or not at all; each half on its own (`halves`)
        where one tag may be the reason for a refusal."""
        if not wanted:
            return
        try:
            tags.merge(self.arm, belonging.id, wanted)
        except DriverError as e:
            if len(wanted) > 1 and e.error_class is ErrorClass.INVALID and e.provider_code not in TOO_MUCH:
                for half in halves(list(wanted.items())):
                    self._set(belonging, target, dict(half))
            else:
                self._failed(target, e, [f"tag {shown_key(key)}" for key in wanted] if len(wanted) == 1 else [])
        else:
            target.changed += [f"set {k}" for k in wanted]

    def _forward(self, nic: Belonging, target: UpdateTarget) -> None:
        """Sets the interface's property in what it is now: an interface has no change of a part but of its tags.

        These go with it, so the class's are set here too: the read may show them as they were before `_retag`.
        """
        wanted = requests.forwards(self.goal)
        try:
            now = self.arm.call("NetworkInterfaces_Get", self.arm.group, nic.name)
            if now["properties"].get("enableIPForwarding", False) == wanted:
                return
            carried = tags.spelled(tags.tags_of(now), self._keys("nic"))
            plan = plan_update(self.last, self.goal, self.machine, "nic", carried)
            kept = {k: v for k, v in carried.items() if k not in plan.remove}
            properties = {**now["properties"], "enableIPForwarding": wanted}
            body = {**now, "properties": properties, "tags": {**kept, **plan.set}}
            condition = {"If-Match": now["etag"]} if now.get("etag") else {}
            self.arm.call("NetworkInterfaces_CreateOrUpdate", self.arm.group, nic.name, body, headers=condition)
            target.changed.append(f"IP forwarding {'on' if wanted else 'off'}")
        except DriverError as e:
            self._failed(target, e)

    def _failed(self, target: UpdateTarget, error: DriverError, what: Sequence[str] = ()) -> None:
        if error.error_class is ErrorClass.NOT_FOUND:  # it has vanished since it was read: nothing is left to update
            target.plan = TagPlan()
            target.changed.append("gone meanwhile")
        else:
            target.errors.append(about(error, [target.id, *what]))


def belongings_of(arm: Arm, uid: str, vm: str) -> list[Belonging]:
    """The VM, its interface and its disks, the VM first: what carries the uid, and what was made for the VM and shows
    no tag at all yet. Others attach theirs (a CSI driver): those do not carry our uid and are left alone.

    Raises DriverError of class not_found where there is no such VM, conflict where it is another machine's.
    """
    named = belongings.by_name(arm, vm)
    mine = {k: b for k, b in named.items() if b.kind == "vm" or not b.tags or b.uid == uid}
    machine = next(belongings.of_kind(mine, "vm"), None)
    if machine is None or machine.is_going:
        what = "is being deleted" if machine is not None else "is not there"
        raise DriverError(ErrorClass.NOT_FOUND, f"the VM {vm} {what}")
    if machine.uid not in (None, uid):
        raise DriverError(
            ErrorClass.CONFLICT,
            f"{vm} is not updated: its tag {tags.UID_KEY}={machine.uid} says that it belongs to another machine, "
            f"not to that with uid {uid}; correct the tag or the providerID",
        )
    return [b for kind in KINDS for b in belongings.of_kind(mine, kind) if not b.is_going]
