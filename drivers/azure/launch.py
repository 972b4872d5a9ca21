"""One pass of a creation: network interface, disks that come from images, VM.

What there is says how far it is, by its provisioningState, under names that follow from uid and token: many VMs that
are being made are looked at in one listing. Why something is not there, or has failed, its operation says (`begun`),
also to a worker that begins again; each begins with that question. One that Azure does not know any longer says
nothing, and what is there is found by its name. A VM is made with `If-None-Match: *`, so that of two calls at once one
makes it and the other finds it.

Whatever fails leaves nothing behind: a creation that cannot go on has its VM, interface and disks deleted at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from azure.core import MatchConditions

from drivers.azure import instances, operations, places, requests
from drivers.azure.belongings import DELETING, Belonging, BelongingKind, delete
from drivers.azure.calls import Arm, Resource
from drivers.azure.failures import UNSAID, of_vm
from drivers.azure.requests import Body, network_interface, virtual_machine
from drivers.azure.tags import UID_KEY, tags_of
from drivers.base import CreateMachineRequest, Identity, MachineStatus, Making
from drivers.errors import DriverError, OperationFailed
from drivers.failures import words_of
from drivers.operations import Course
from drivers.sessions import Remembered
from drivers.together import Together
from resources.base import cut
from resources.clouds.azure.spec import AzureProviderSpec
from resources.errors import PASSING, ErrorClass

SOON = timedelta(seconds=2)
"""When to look again at an interface or a disk."""
LATER = timedelta(seconds=5)
"""When to look again at a VM, which takes a minute."""
NIC, DISK, VM = "NetworkInterfaces_CreateOrUpdate", "Disks_CreateOrUpdate", "VirtualMachines_CreateOrUpdate"
EXISTS = frozenset({"412", "PreconditionFailed", "ConditionNotMet"})
MAX_KNOWN = 1000
NEW = 60.0
"""Seconds for which it is believed that nothing was made for a machine."""


class Known:
    """What a worker keeps of creations, so that it need not ask for it again. Thread-safe."""

    def __init__(self) -> None:
        self.fixed = Remembered[tuple[str, ...], Any](MAX_KNOWN)
        """What never changes, or hardly ever: subnets, plans of images."""
        self.new = Remembered[tuple[str, ...], float](MAX_KNOWN)
        """When nothing was called like a machine, by place and names' beginning."""
        self.nics = Remembered[tuple[str, ...], Resource](MAX_KNOWN)
        """Interfaces by place and VM, for as long as the VM is being made."""
        self.begun = Remembered[tuple[str, ...], str](MAX_KNOWN)
        """The address of the operation that this worker has begun or asked for itself, by place and VM."""
        self._together = Remembered[tuple[str, str], Together[Resource]](MAX_KNOWN)

    def together(self, arm: Arm) -> Together[Resource]:
        """The VMs that are being made in the resource group."""
        return self._together.get_or_make(
            (arm.subscription, arm.group), lambda: Together(fresh=LATER.total_seconds() / 2)
        )

    def found_none(self, arm: Arm, machine: Identity) -> None:
        self.new.put((arm.subscription, arm.group, places.stem(machine), machine.uid), time.monotonic())

    def is_new(self, arm: Arm, machine: Identity) -> bool:
        """Whether nothing was there for the machine a moment ago: true once, for the call that makes something."""
        key = (arm.subscription, arm.group, places.stem(machine), machine.uid)
        found = self.new.get(key)
        self.new.put(key, None)
        return found is not None and time.monotonic() - found < NEW


class Launch:
    def __init__(self, arm: Arm, request: CreateMachineRequest, spec: AzureProviderSpec, known: Known) -> None:
        self.arm = arm
        self.request = request
        self.spec = spec
        self.known = known
        self.vm = places.vm_name(request.machine, request.token)
        self.place = (arm.subscription, arm.group, self.vm)
        self.is_new = known.is_new(arm, request.machine)
        """Nothing is read before it is made. Should there be something all the same, a listing that was late, then the
        interface is only written once more, and no second VM can be made."""
        self.begun = request.begun

    def run(self) -> MachineStatus | Making:
        if self._is_anothers() and (making := self._asked()) is not None:
            return making
        vm = None if self.is_new else self._now()
        if vm is not None:
            return self._goes_on(vm)
        if self._has_begun(VM) and (making := self._asked()) is not None:
            return making  # a read that is late; or else the VM has gone again
        try:
            plan = self._plan()
            nic = self._nic()
        except OperationFailed:
            raise
        except DriverError as e:
            if e.error_class in PASSING or self._get_nic() is None:
                raise
            raise self._cleaned(e, ["nic", "disk"]) from None  # of a pass before
        if isinstance(nic, Making):
            return nic
        disks: dict[int, str] = {}
        for lun, disk in self._disks():
            if isinstance(disk, Making):
                return disk
            disks[lun] = disk["id"]
        return self._make(nic, disks, plan)

    # -- the operation

    def _is_anothers(self) -> bool:
        """Whether another worker has begun it, and this one has not asked for it yet."""
        return self.begun is not None and self.known.begun.get(self.place) != self.begun.address

    def _has_begun(self, call: str) -> bool:
        return self.begun is not None and self.begun.call == call

    def _asked(self) -> Making | None:
        """Asks for the operation: what is being made, while it goes on; None where it is over, or nobody knows it.
        Raises OperationFailed, with its code, where it has ended badly."""
        begun = self.begun
        if begun is None:
            return None
        try:
            goes_on = operations.course(self.arm, begun, self._hidden()) is Course.GOES_ON
        except OperationFailed as e:
            raise self._cleaned(e, ["vm"] if begun.call == VM else ["nic", "disk"]) from None
        if not goes_on:
            self.begun = None
            return None
        return self._making(begun.what, LATER if begun.call == VM else SOON)

    def _begin(self, call: str, name: str, body: Body, what: str, hide: str = "", **parameters: Any) -> Resource:
        hidden = [*self._hidden(), hide] if hide else self._hidden()
        asked = (self.arm, call, self.arm.group, name, body)
        made, self.begun = operations.begin(*asked, what=what, hide=hidden, **parameters)
        return made

    def _making(self, what: str, again: timedelta) -> Making:
        begun = self.begun if self.begun is not None and self.begun.what == what else None
        if begun is not None:
            self.known.begun.put(self.place, begun.address)
            if begun.call == VM:
                self.known.together(self.arm).expect(self.vm)
        return Making(what=what, again=again, begun=begun)

    def _why(self, call: str) -> None:
        """Raises OperationFailed where this call has begun what failed, and its operation says why."""
        if self._has_begun(call):
            self._asked()

    def _hidden(self) -> list[str]:
        return words_of(self.request.user_data.get_secret_value())

    # -- the VM

    def _now(self) -> Resource | None:
        """The VM as it is; one that this worker waits for, perhaps as a listing of all of them has it."""
        if not self._has_begun(VM) and self.known.nics.get(self.place) is None:
            return instances.get(self.arm, self.vm)
        together = self.known.together(self.arm)
        found = together.look(
            self.vm,
            lambda: instances.get(self.arm, self.vm),
            lambda _: {str(vm["name"]).lower(): vm for vm in instances.in_group(self.arm)},
        )
        return instances.get(self.arm, self.vm) if found is None else found

    def _make(self, nic: Resource, disks: dict[int, str], plan: Body) -> MachineStatus | Making:
        body = virtual_machine(self.spec, self.request, self.vm, nic["id"], disks, plan)
        secret = body["properties"]["osProfile"]["customData"]
        only_one = MatchConditions.IfMissing
        try:
            made = self._begin(VM, self.vm, body, f"VM {self.vm}", hide=secret, match_condition=only_one)
        except DriverError as e:
            failure = e
        else:
            self.known.nics.put(self.place, nic)
            self.known.together(self.arm).expect(self.vm)
            return self._goes_on(made, nic)
        if failure.provider_code in EXISTS and (vm := instances.get(self.arm, self.vm)) is not None:
            return self._goes_on(vm, nic)  # another call was faster
        if failure.error_class in PASSING or failure.provider_code in EXISTS:
            raise failure  # it may have been made all the same; the next pass sees that
        raise self._cleaned(failure, ["nic", "disk"])

    def _goes_on(self, vm: Resource, nic: Resource | None = None) -> MachineStatus | Making:
        """What becomes of a VM that is there."""
        if (owner := tags_of(vm).get(UID_KEY, self.request.machine.uid)) != self.request.machine.uid:
            raise DriverError(ErrorClass.CONFLICT, f"the VM {self.vm} carries the uid {owner} of another machine")
        state = instances.provisioning_of(vm)
        if state == DELETING:
            return Making(what=f"room for VM {self.vm}: the one that failed is being deleted", again=LATER)
        if state == "Creating":
            return self._making(f"VM {self.vm}", LATER)
        nic = nic or self.known.nics.get(self.place)
        self.known.nics.put(self.place, None)
        self.known.begun.put(self.place, None)
        self.known.together(self.arm).done(self.vm)
        if "instanceView" not in (vm.get("properties") or {}):  # the answer of the call that made it
            vm = instances.get(self.arm, self.vm) or vm
        if instances.has_failed(vm):
            failure = of_vm(vm, self._hidden())
            if failure.provider_code == UNSAID:
                self._why(VM)
            raise self._cleaned(failure, ["vm"])
        if not instances.addresses(nic):
            nic = instances.nic_of(self.arm, vm)
        return instances.describe(self.arm, vm, nic)

    def _cleaned(self, failure: DriverError, kinds: list[BelongingKind]) -> OperationFailed:
        """The failure, after what was made so far was deleted; a VM takes its interface and disks along. What cannot be
        deleted yet goes with the machine, or the next try uses it."""
        trouble = []
        for belonging in self._made(kinds):
            try:
                words, _ = delete(self.arm, belonging)
            except DriverError as e:
                words = e.message
            if words not in ("", "deleting"):
                trouble.append(f"{belonging.name} stays for now: {words}")
        self.known.begun.put(self.place, None)
        if not trouble:
            return OperationFailed.of(failure)
        return OperationFailed(
            failure.error_class,
            cut("; ".join([failure.message, *trouble])),
            provider_code=failure.provider_code,
            retry_after=failure.retry_after,
        )

    def _made(self, kinds: list[BelongingKind]) -> Iterator[Belonging]:
        names: dict[BelongingKind, list[str]] = {
            "vm": [self.vm],
            "nic": [places.nic_name(self.vm)],
            "disk": [places.data_disk_name(self.vm, d.lun, d.name) for d in self._from_images()],
        }
        for kind in kinds:
            for name in names[kind]:
                yield Belonging(kind, name, name, self.arm.location, {}, "")

    # -- what comes before it

    def _nic(self) -> Resource | Making:
        name, nic = places.nic_name(self.vm), None if self.is_new else self._get_nic()
        if nic is None or instances.provisioning_of(nic) == instances.FAILED:
            self._why(NIC)
            body = network_interface(self.spec, self.request, name, self._subnet())
            nic = self._begin(NIC, name, body, f"network interface {name}")
        return self._ready(nic, f"network interface {name}")

    def _get_nic(self) -> Resource | None:
        return self.arm.found("NetworkInterfaces_Get", self.arm.group, places.nic_name(self.vm))

    def _disks(self) -> Iterator[tuple[int, Resource | Making]]:
        for wanted in self._from_images():
            name = places.data_disk_name(self.vm, wanted.lun, wanted.name)
            disk = self.arm.found("Disks_Get", self.arm.group, name)
            if disk is None:
                body = requests.data_disk(self.spec, self.request, wanted)
                try:
                    disk = self._begin(DISK, name, body, f"disk {name}")
                except DriverError as e:
                    if e.error_class in PASSING:
                        raise
                    raise self._cleaned(e, ["nic", "disk"]) from None
            if instances.provisioning_of(disk) == instances.FAILED:
                self._why(DISK)
                broken = DriverError(ErrorClass.TRANSIENT, f"Disks_CreateOrUpdate: Azure could not make {name}")
                raise self._cleaned(broken, ["nic", "disk"])
            yield wanted.lun, self._ready(disk, f"disk {name}")

    def _from_images(self) -> list[Any]:
        return [d for d in self.spec.properties.storage_profile.data_disks if d.image_ref is not None]

    def _ready(self, made: Resource, what: str) -> Resource | Making:
        state = instances.provisioning_of(made)
        if state == DELETING:
            return Making(what=f"room for {what}: that of a try before is being deleted", again=SOON)
        return self._making(what, SOON) if state in ("Creating", "Updating") else made

    def _subnet(self) -> str:
        """The subnet's id. It is looked at once, so that a wrong one is refused by its name before anything is made."""
        info = self.spec.subnet_info
        path = (info.vnet_resource_group or self.arm.group, info.vnet_name, info.subnet_name)
        key = ("subnet", self.arm.subscription, *path)
        found = self.known.fixed.get(key)
        if found is None:
            found = str(self.arm.call("Subnets_Get", *path)["id"])
            self.known.fixed.put(key, found)
        return str(found)

    def _plan(self) -> Body:
        """The plan of an image of the marketplace, which its VM must name. Nobody's terms are accepted here."""
        image = self.spec.properties.storage_profile.image_reference
        if not image.urn or image.skip_marketplace_agreement or image.urn.endswith(":latest"):
            return {}
        key = ("plan", self.arm.location, image.urn)
        found = self.known.fixed.get(key)
        if found is None:
            path = (self.arm.location, *image.urn.split(":"))
            plan = (self.arm.call("VirtualMachineImages_Get", *path).get("properties") or {}).get("plan")
            found = plan or {}
            self.known.fixed.put(key, found)
        return dict(found)
