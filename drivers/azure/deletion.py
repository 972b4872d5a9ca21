"""One pass of a deletion: delete the VM, clear what stayed behind, say what is left.

Level-triggered: each pass reads what may matter and does what is due, so that it may stop anywhere and be repeated. A
VM takes its interface and its disks along, as it was made so. What it leaves all the same is found by the machine's
names, which follow from the machine's, and its uid: never from the class, which may be another one by now.
"""

from __future__ import annotations

from functools import partial

from drivers.azure import belongings, operations, places
from drivers.azure.belongings import Belonging
from drivers.azure.calls import Arm
from drivers.azure.tags import UID_KEY
from drivers.base import DeleteMachineRequest, DeleteMachineResponse, Evidence
from drivers.errors import DriverError, OperationFailed
from drivers.failures import about, combine
from drivers.operations import Deletions
from resources.clouds.azure.spec import plain_location
from resources.errors import ErrorClass


def delete_machine(arm: Arm, request: DeleteMachineRequest) -> DeleteMachineResponse:
    """Makes one pass. After an error it goes on with the other resources, and raises one combined error at the end."""
    return _Pass(arm, request).run()


class _Pass:
    def __init__(self, arm: Arm, request: DeleteMachineRequest) -> None:
        self.arm = arm
        self.request = request
        self.machine = request.machine
        self.left: list[str] = []
        self.going: list[str] = []
        self.deletions = Deletions(request.begun, partial(operations.course, arm))
        self.errors: list[DriverError] = []

    def run(self) -> DeleteMachineResponse:
        found = self._found()
        vms = list(belongings.of_kind(found, "vm"))
        for vm in vms:
            if self._delete(vm):
                self.going.append(self._id(vm))
        for kind in ("nic", "disk"):
            for belonging in belongings.of_kind(found, kind):
                if not any(belonging.vm == vm.vm for vm in vms):  # else it goes with its VM
                    self._delete(belonging)
        if self.errors:
            raise combine(self.errors)
        return DeleteMachineResponse(
            evidence=Evidence.PRESENT if self.left else Evidence.NOT_FOUND,  # Azure shows no VM after its end
            left=self.left,
            account_id=self.arm.subscription if found else "",
            vms={self._id(vm): vm.name.lower() for vm in vms},
            going=self.going if len(self.going) == len(vms) else [],
            begun=self.deletions.begun,
        )

    def _id(self, vm: Belonging) -> str:
        return places.provider_id(plain_location(vm.location), vm.name)

    def _found(self) -> dict[str, Belonging]:
        """What carries the machine's uid; and by the VM's name what shows none: tags may be visible later than what
        carries them, and somebody may have removed them.

        Raises DriverError of class conflict for another machine's VM.
        """
        uid = self.machine.uid
        names = {places.vm_of(self.request.provider_id).lower()} if self.request.provider_id else set()
        names |= {places.vm_name(self.machine, self.request.token)} if self.request.token else set()
        listed = belongings.called_like(self.arm, self.machine)
        for name in sorted(n for n in names if not n.startswith(places.stem(self.machine))):
            listed |= belongings.by_name(self.arm, name)
        found = {k: b for k, b in listed.items() if b.uid == uid or b.vm in names}
        for belonging in found.values():
            if belonging.tags.get(UID_KEY, uid) != uid:
                raise DriverError(
                    ErrorClass.CONFLICT,
                    f"{belonging.name} is not deleted: its tag {UID_KEY}={belonging.uid} says that it belongs to "
                    f"another machine, not to {self.machine.name} (uid {uid}); correct the tag or the providerID",
                )
        return found

    def _delete(self, belonging: Belonging) -> bool:
        """Whether it is on its way out."""
        state = "deleting"
        try:
            if belonging.is_going:
                self.deletions.keep(belonging.name)
            elif not self.deletions.goes_on(belonging.name):
                state, begun = belongings.delete(self.arm, belonging)
                self.deletions.add(begun)
        except DriverError as e:
            self.errors.append(about(e, [belonging.name]) if isinstance(e, OperationFailed) else e)
            return False
        if state:
            self.left.append(f"{belonging.name} {state}")
        return state == "deleting"
