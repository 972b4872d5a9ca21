"""The driver: each method of the contract in terms of Compute Engine."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from drivers.base import (
    CreateMachineRequest,
    DeleteMachineRequest,
    DeleteMachineResponse,
    DriverSettings,
    GetAccountRequest,
    GetMachineStatusRequest,
    GetVolumeIDsRequest,
    GetVolumeIDsResponse,
    ListMachinesRequest,
    ListMachinesResponse,
    MachineStatus,
    Making,
    UpdateMachineRequest,
    UpdateMachineResponse,
    volume_ids,
)
from drivers.errors import DriverError, IdempotencyMismatch, OperationFailed
from drivers.failures import words_of
from drivers.gcp import deletion, hot_update, instances, launch, operations, poststart
from drivers.gcp.calls import ALREADY_EXISTS, Clients, Gce, Resource
from drivers.gcp.failures import of_operation
from drivers.gcp.instances import STOPPING, VmId
from drivers.gcp.tags import KEY_ATTEMPT, KEY_UID, labels_of
from drivers.gcp.tokens import attempt, is_old_failure, operation_ids
from drivers.sessions import MAX_SESSIONS, Remembered
from drivers.together import Together
from resources.errors import ErrorClass

PD_CSI = "pd.csi.storage.gke.io"
INSERT = "instances.insert"
AGAIN = timedelta(seconds=2)
"""Between two looks at an operation: an insert takes some ten seconds."""
MAX_REMEMBERED = 10_000


class GcpDriver:
    """See drivers.base.Driver. Thread-safe."""

    def __init__(self, settings: DriverSettings) -> None:
        self._clients = Clients(settings)
        self._begun = Remembered[tuple[str, str], str](MAX_REMEMBERED)
        """Names of operations by project and token: another pass need not ask for one by another insert."""
        self._failed = Remembered[tuple[str, str], bool](MAX_REMEMBERED)
        """Request ids, with their project, whose operation has failed and was told of: the next one's turn is next."""
        self._together = Remembered[tuple[str, str], Together[Resource]](MAX_SESSIONS)
        """The operations that are waited for, by project and zone."""

    def create_machine(self, request: CreateMachineRequest) -> MachineStatus | Making:
        """Each call is one pass: it begins the insert, with a request id that follows from the token, or looks at the
        operation that was begun, by this worker or another, whose end decides. Where nobody knows of one, it inserts
        once more, which answers with the same operation.
        """
        spec = launch.parse_spec(request.provider_spec)
        launch.check(spec)
        body = launch.instance(request, spec)
        gce = self._clients.get(request.secret)
        try:
            operation = self._operation(gce, request, spec.zone, body)
        except DriverError as e:
            if e.provider_code not in ALREADY_EXISTS:
                raise
            return self._adopted(gce, request, spec.zone, body)
        if operation.get("status") != "DONE":
            what = f"VM {body['name']}"
            return Making(what=what, again=AGAIN, begun=operations.begun_by(INSERT, what, operation))
        if failure := of_operation(INSERT, operation, words_of(request.user_data.get_secret_value())):
            if failure.provider_code in ALREADY_EXISTS:
                return self._adopted(gce, request, spec.zone, body)
            raise OperationFailed.of(failure)
        vm = instances.by_name(gce, spec.zone, body["name"])
        if vm is not None and str(vm.get("id")) == str(operation.get("targetId", vm.get("id"))):
            return self._checked(gce, request, spec.zone, body, vm)
        if operations.deletion_of(gce, spec.zone, body["name"], request.token):
            raise IdempotencyMismatch(
                f"instances.insert: the token's VM {body['name']} is deleted",
                provider_code="deleted",
                terminated=True,
            )
        if vm is not None:
            return self._adopted(gce, request, spec.zone, body)
        # Reads do not show it yet, but its operation says that it is there.
        return instances.describe(gce, spec.zone, {**body, "status": "PROVISIONING"})

    def update_machine(self, request: UpdateMachineRequest) -> UpdateMachineResponse:
        """Makes a hot update of labels, network tags, metadata and alias IP ranges where there is a last applied spec.

        A hot update with nothing to change makes no call. Raises PartialUpdate, see drivers.gcp.hot_update.
        """
        if request.last_applied_provider_spec is not None:
            last = request.last_applied_provider_spec
            return hot_update.hot_update(lambda: self._clients.get(request.secret), request, last)
        launch.parse_spec(request.provider_spec)
        if not request.untagged:
            return UpdateMachineResponse()
        return UpdateMachineResponse(changed=poststart.post_start(self._clients.get(request.secret), request))

    def delete_machine(self, request: DeleteMachineRequest) -> DeleteMachineResponse:
        return deletion.delete_machine(self._clients.get(request.secret), request)

    def get_machine_status(self, request: GetMachineStatusRequest) -> MachineStatus:
        return instances.get_status(self._clients.get(request.secret), request)

    def list_machines(self, request: ListMachinesRequest) -> ListMachinesResponse:
        return ListMachinesResponse(machines=instances.list_machines(self._clients.get(request.secret), request))

    def get_account(self, request: GetAccountRequest) -> str:
        """Reads the project: its id is what Google calls an account here."""
        return self._clients.get(request.secret).account()

    def get_volume_ids(self, request: GetVolumeIDsRequest) -> GetVolumeIDsResponse:
        def in_tree(spec: dict[str, Any]) -> str:
            return str((spec.get("gcePersistentDisk") or {}).get("pdName") or "")

        return GetVolumeIDsResponse(volume_ids=volume_ids(request, PD_CSI, in_tree))

    # -- creating

    def _operation(self, gce: Gce, request: CreateMachineRequest, zone: str, body: Resource) -> Resource:
        """The attempt's insert operation, as it is now."""
        attempt_of = (gce.project, request.token)
        if (name := self._begun.get(attempt_of) or _given(request)) is not None:
            try:
                return self._seen(gce, request, self._look(gce, zone, name))
            except DriverError as e:
                if e.error_class is not ErrorClass.NOT_FOUND:
                    raise
                self._begun.put(attempt_of, None)  # Google does not keep them for ever; the insert finds out
                self._waited_for(gce, zone).done(name)
                if request.begun is not None and (vm := instances.by_name(gce, zone, body["name"])) is not None:
                    return {"status": "DONE", "targetId": vm["id"]}  # what it made is there
        hide = request.user_data.get_secret_value()
        for request_id in operation_ids(request.token):
            if not self._failed.get((gce.project, request_id)):
                asked = launch.with_disks(body, request_id)
                operation = gce.call(INSERT, asked, hide, zone=zone, request_id=request_id)
                if not is_old_failure(operation):
                    if operation.get("status") != "DONE":
                        self._waited_for(gce, zone).expect(operation["name"])
                    return self._seen(gce, request, operation)
        raise DriverError(
            ErrorClass.UNKNOWN, "instances.insert: this attempt has failed too often; recreate the machine"
        )

    def _waited_for(self, gce: Gce, zone: str) -> Together[Resource]:
        return self._together.get_or_make((gce.project, zone), lambda: Together(fresh=AGAIN.total_seconds() / 2))

    def _look(self, gce: Gce, zone: str, name: str) -> Resource:
        """An operation as it is: asked for alone, or with all others of the zone that are waited for."""
        together = self._waited_for(gce, zone)

        def alone() -> Resource:
            return gce.call("zoneOperations.get", zone=zone, operation=name)

        found = together.look(name, alone, lambda names: operations.by_name(gce, zone, names)) or alone()
        if found.get("status") == "DONE":
            together.done(name)
        return found

    def _seen(self, gce: Gce, request: CreateMachineRequest, operation: Resource) -> Resource:
        done = operation.get("status") == "DONE"
        self._begun.put((gce.project, request.token), None if done else operation["name"])
        if done and of_operation(INSERT, operation) is not None:
            self._failed.put((gce.project, str(operation.get("clientOperationId", ""))), True)
        return operation

    def _adopted(self, gce: Gce, request: CreateMachineRequest, zone: str, body: Resource) -> MachineStatus:
        """The VM that has the machine's name already: the machine's own, from an earlier call, or another's.

        Raises DriverError of class conflict for another's.
        """
        machine, vm = request.machine, instances.by_name(gce, zone, body["name"])
        if vm is None:
            raise DriverError(
                ErrorClass.TRANSIENT, f"instances.insert: {body['name']} exists, but it cannot be read yet"
            )
        owner = instances.uid_of(vm)
        if owner == machine.uid and instances.status_of(vm) != STOPPING:
            return self._checked(gce, request, zone, body, vm)
        whose = f"{VmId(gce.project, zone, vm['name'])}"
        why = (
            "is on its way out: the machine's VM is made once it is gone"
            if owner == machine.uid
            else f"has the machine's name and another owner (label {KEY_UID}: {owner or 'none'}), and no name is taken "
            "twice in a zone: delete that VM, or create a machine of another name"
        )
        raise DriverError(ErrorClass.CONFLICT, f"instances.insert: {whose} {why}", provider_code="alreadyExists")

    def _checked(
        self, gce: Gce, request: CreateMachineRequest, zone: str, body: Resource, vm: Resource
    ) -> MachineStatus:
        """The status of the machine's own VM. Raises IdempotencyMismatch where the token has made it from something
        else."""
        made_by = labels_of(vm).get(KEY_ATTEMPT, "")
        if made_by.startswith(attempt(request.token)) and made_by != body["labels"][KEY_ATTEMPT]:
            raise IdempotencyMismatch(
                f"instances.insert: the token's VM {vm['name']} was made from another request",
                provider_code="requestIdMismatch",
                terminated=False,
            )
        return instances.describe(gce, zone, vm)


def _given(request: CreateMachineRequest) -> str | None:
    """The operation that another worker has begun."""
    name = request.begun.address if request.begun is not None else ""
    return name if operations.may_be_asked(name) else None
