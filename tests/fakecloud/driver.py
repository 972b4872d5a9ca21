"""The driver of the made-up cloud: what a new driver has to be, and no more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from drivers.base import (
    CreateMachineRequest,
    DeleteMachineRequest,
    DeleteMachineResponse,
    DriverSettings,
    Evidence,
    GetAccountRequest,
    GetMachineStatusRequest,
    GetVolumeIDsRequest,
    GetVolumeIDsResponse,
    ListMachinesRequest,
    ListMachinesResponse,
    MachineStatus,
    Making,
    NameTaken,
    UpdateMachineRequest,
    UpdateMachineResponse,
    VmState,
    is_of,
    parsed,
)
from drivers.errors import DriverError, IdempotencyMismatch, OperationFailed
from drivers.failures import about, scrub, words_of
from drivers.tags import check_must_tags, class_tags, launch_tags, must_tags, plan_update
from drivers.updating import UpdateTarget, answer
from fakecloud.api import FakeApi, FakeError, NoAnswer, Thing
from fakecloud.spec import FakeProviderSpec
from fakecloud.wire import Remote
from resources.errors import BegunOperation, ErrorClass
from resources.names import OWNER, TAG_CLUSTER, TAG_INSTALLATION, TAG_MACHINE, TAG_OWNER, TAG_UID

CODES = {
    "NoRoom": ErrorClass.CAPACITY,
    "OverQuota": ErrorClass.QUOTA,
    "SlowDown": ErrorClass.THROTTLED,
    "Denied": ErrorClass.AUTH,
    "NotFound": ErrorClass.NOT_FOUND,
    "InUse": ErrorClass.CONFLICT,
    "TokenReused": ErrorClass.CONFLICT,
    "TokenOfDeadVm": ErrorClass.CONFLICT,
    "BadRequest": ErrorClass.INVALID,
    "Broken": ErrorClass.TRANSIENT,
}
AGAIN = timedelta(seconds=0.05)
RULES = FakeProviderSpec.TAGS


class FakeDriver:
    cloud: ClassVar[FakeApi]
    """The cloud itself, where the settings have no address."""
    page: ClassVar[int] = 100

    def __init__(self, settings: DriverSettings) -> None:
        self._settings = settings
        self._cloud = Remote(settings.endpoint) if settings.endpoint else self.cloud
        self._accounts: dict[str, str] = {}

    # -- creating

    def create_machine(self, request: CreateMachineRequest) -> MachineStatus | Making:
        """Makes the network interface first, by a name that follows from uid and token; then the VM with it."""
        if (made := self._asked(request)) is not None:
            return made
        spec = parsed(FakeProviderSpec, request.provider_spec)
        disks = [
            {"size": disk.size_gb, "labels": launch_tags(spec, request.machine, f"disks[{n}]")}
            for n, disk in enumerate(spec.disks)
        ]
        labels = launch_tags(spec, request.machine, "vm")
        nic: Thing = self._call(request, "CreateNic", name=f"{_nics(request)}{request.token}")
        if not nic.ready:
            return _making("CreateNic", f"network interface {nic.id}", nic)
        try:
            vm: Thing = self._call(
                request,
                "CreateVm",
                token=request.token,
                nic=nic.id,
                name=request.machine.name,
                labels=labels,
                disks=disks,
                image=spec.image,
                flavour=spec.flavour,
                console=spec.console.model_dump(),
                user_data=request.user_data.get_secret_value(),
            )
        except DriverError as e:
            if e.provider_code in ("TokenReused", "TokenOfDeadVm"):
                dead = e.provider_code == "TokenOfDeadVm"
                raise IdempotencyMismatch(e.message, provider_code=e.provider_code, terminated=dead) from None
            raise
        return _status(vm) if vm.ready else _making("CreateVm", f"VM {vm.id}", vm)

    def _asked(self, request: CreateMachineRequest) -> MachineStatus | Making | None:
        if (begun := request.begun) is None:
            return None
        try:
            status: str = self._call(request, "GetOperation", id=begun.address)
        except DriverError as e:
            if e.error_class is ErrorClass.NOT_FOUND:
                return None
            raise
        if status == "running":
            return Making(what=begun.what, again=AGAIN, begun=begun)
        if status != "done":
            raise OperationFailed(
                CODES.get(status, ErrorClass.UNKNOWN), f"{begun.call}: {status}", provider_code=status
            )
        return _status(self._call(request, "GetVm", id=begun.address)) if begun.call == "CreateVm" else None

    # -- reading

    def get_machine_status(self, request: GetMachineStatusRequest) -> MachineStatus:
        what = f"machine {request.machine.name} (uid {request.machine.uid})"
        others: list[Thing] = []
        if request.provider_id:
            found = [self._call(request, "GetVm", id=_id(request.provider_id))]
        else:
            named = self._list(request, {TAG_CLUSTER: request.machine.cluster, TAG_MACHINE: request.machine.name})
            own = {t.id: t for t in named if t.labels.get(RULES.key(TAG_UID)) == request.machine.uid}
            if request.token:
                own |= {t.id: t for t in self._list(request, {}, request.token)}
            found, others = list(own.values()), [t for t in named if t.id not in own and _lives(t)]
        living = [t for t in found if _lives(t)]
        ours = [_status(t) for t in others if is_of(_installation(t), request.machine.installation)]
        if ours and not living:
            raise NameTaken(request.machine, ours)
        if len(living) > 1:
            raise DriverError(ErrorClass.CONFLICT, f"{what} has two VMs: {' and '.join(t.id for t in living)}")
        there = living or [t for t in found if t.state == "terminating"]
        if not there:
            gone = "; ".join(f"{t.id} is terminated" for t in found) or "there is none"
            raise DriverError(ErrorClass.NOT_FOUND, f"{what} has no VM: {gone}")
        return _status(there[0])

    def list_machines(self, request: ListMachinesRequest) -> ListMachinesResponse:
        wanted = set(map(_id, request.provider_ids))
        found = self._list(request, {} if wanted else {TAG_CLUSTER: request.cluster})
        there = [t for t in found if t.state != "terminated" and (not wanted or t.id in wanted)]
        return ListMachinesResponse(machines=[_status(t) for t in there])

    def get_account(self, request: GetAccountRequest) -> str:
        credentials = _credentials(request)
        if credentials not in self._accounts:
            self._accounts[credentials] = self._call(request, "Whoami")
        return self._accounts[credentials]

    def get_volume_ids(self, request: GetVolumeIDsRequest) -> GetVolumeIDsResponse:
        handles = [(spec.get("csi") or {}) for spec in request.persistent_volume_specs]
        return GetVolumeIDsResponse(volume_ids=[h["volumeHandle"] for h in handles if h.get("driver") == "csi.fake"])

    # -- updating

    def update_machine(self, request: UpdateMachineRequest) -> UpdateMachineResponse:
        if request.last_applied_provider_spec is None:
            return self._after_start(request)
        last = parsed(FakeProviderSpec, request.last_applied_provider_spec)
        goal = parsed(FakeProviderSpec, request.provider_spec)
        check_must_tags(last, goal, request.machine)
        places = [place for place in goal.tag_sets() if class_tags(last, place) != class_tags(goal, place)]
        if not places and last.console.log == goal.console.log:
            return UpdateMachineResponse()
        vm: Thing = self._call(request, "GetVm", id=_id(request.provider_id))
        if not _lives(vm):
            raise DriverError(ErrorClass.NOT_FOUND, f"{vm.id} is {vm.state}")
        disks = self._call(request, "ListDisks", vm=vm.id) if places != ["vm"] else []
        things = {"vm": vm, **{f"disks[{n}]": disk for n, disk in enumerate(disks)}}
        targets = {place: UpdateTarget(thing.id, thing.kind, thing.labels) for place, thing in things.items()}
        for place in places:
            target = targets[place]
            try:
                plan = plan_update(last, goal, request.machine, place, target.tags)
                if plan:
                    self._call(request, "SetLabels", id=target.id, set=plan.set, remove=list(plan.remove))
                    target.changed += [f"removed {k}" for k in plan.remove] + [f"set {k}" for k in plan.set]
            except DriverError as e:
                target.errors.append(about(e, [target.id]))
        if goal.console.log is not None and last.console.log != goal.console.log:
            self._call(request, "SetConsole", id=vm.id, log=goal.console.log)
            targets["vm"].changed.append(f"console log={goal.console.log}")
        return answer(targets.values())

    def _after_start(self, request: UpdateMachineRequest) -> UpdateMachineResponse:
        key = RULES.key(TAG_INSTALLATION)
        must = must_tags(parsed(FakeProviderSpec, request.provider_spec), request.machine)
        if not request.untagged or key not in must:
            return UpdateMachineResponse()
        vm = _id(request.provider_id)
        try:
            self._call(request, "SetLabels", id=vm, set={key: must[key]}, remove=[])
        except DriverError as e:
            return UpdateMachineResponse(changed=[f"{vm}: without the tag {key}: {e.message}"])
        return UpdateMachineResponse(changed=[f"{vm}: set {key}"])

    # -- deleting

    def delete_machine(self, request: DeleteMachineRequest) -> DeleteMachineResponse:
        found = {t.id: t for t in self._list(request, {TAG_UID: request.machine.uid})}
        if request.token:
            found |= {t.id: t for t in self._list(request, {}, request.token)}
        if request.provider_id and _id(request.provider_id) not in found:
            try:
                vm: Thing = self._call(request, "GetVm", id=_id(request.provider_id))
                found[vm.id] = vm
            except DriverError as e:
                if e.error_class is not ErrorClass.NOT_FOUND:
                    raise
        there, left = [t for t in found.values() if t.state != "terminated"], []
        for vm in there:
            if _lives(vm):
                self._call(request, "DeleteVm", id=vm.id)
            left.append(f"{vm.id} terminating")
        for nic in self._call(request, "ListNics", prefix=_nics(request)):
            if not there:  # while a VM is there it may be in use
                self._call(request, "DeleteNic", id=nic.id)
            left.append(f"{nic.id} deleting")
        proven = any(t.token == request.token or _provider_id(t) == request.provider_id for t in found.values())
        return DeleteMachineResponse(
            evidence=Evidence.PRESENT if left else Evidence.TERMINATED if proven else Evidence.NOT_FOUND,
            left=left,
            account_id=next((t.account for t in found.values()), ""),
            vms={_provider_id(t): t.name for t in found.values()},
        )

    # -- calling

    def _list(self, request: Any, labels: dict[str, str], token: str = "") -> list[Thing]:
        wanted = RULES.written({TAG_OWNER: OWNER, **labels}) if labels else {}
        found: list[Thing] = []
        page, more = 0, True
        while more:
            things, more = self._call(request, "ListVms", labels=wanted, token=token, page=page, size=self.page)
            found, page = [*found, *things], page + 1
        return found

    def _call(self, request: Any, operation: str, **parameters: Any) -> Any:
        credentials = _credentials(request)
        hide = [credentials, *words_of(str(parameters.get("user_data", "")))]
        failure: DriverError
        try:
            return self._cloud.call(operation, credentials, self._settings.timeout.total_seconds(), **parameters)
        except NoAnswer as e:
            failure = DriverError(ErrorClass.TRANSIENT, f"{operation}: {e}")
        except FakeError as e:
            words = f"{operation}: {e.code}: {scrub(str(e), hide)}"
            failure = DriverError(CODES.get(e.code, ErrorClass.UNKNOWN), words, provider_code=e.code)
        raise failure


def driver(settings: DriverSettings) -> FakeDriver:
    return FakeDriver(settings)


def _making(call: str, what: str, thing: Thing) -> Making:
    return Making(what=what, again=AGAIN, begun=BegunOperation(call=call, what=what, address=thing.id))


def _credentials(request: Any) -> str:
    return str(request.secret["token"].get_secret_value()) if "token" in request.secret else ""


def _nics(request: CreateMachineRequest | DeleteMachineRequest) -> str:
    """The prefix of the names of a machine's network interfaces: they carry no labels."""
    return f"nic-{request.machine.uid}-"


def _id(provider_id: str) -> str:
    return provider_id.rsplit("/", 1)[-1]


def _provider_id(vm: Thing) -> str:
    return f"fake:///{vm.id}"


def _lives(vm: Thing) -> bool:
    return vm.state in ("pending", "running")


def _installation(vm: Thing) -> str | None:
    return vm.labels.get(RULES.key(TAG_INSTALLATION))


def _status(vm: Thing) -> MachineStatus:
    return MachineStatus(
        provider_id=_provider_id(vm),
        node_name=vm.name,
        addresses=[f"10.0.0.{vm.id.removeprefix('vm-')}"],
        state=VmState(vm.state),
        uid=vm.labels.get(RULES.key(TAG_UID)),
        name=vm.labels.get(RULES.key(TAG_MACHINE)),
        account_id=vm.account,
        installation=_installation(vm),
    )
