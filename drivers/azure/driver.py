"""The driver: each method of the contract in terms of Azure Resource Manager."""

from __future__ import annotations

from typing import Any

from drivers.azure import deletion, hot_update, instances, places, poststart, requests
from drivers.azure.calls import Clients
from drivers.azure.launch import Known, Launch
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

DISK_CSI = "disk.csi.azure.com"


class AzureDriver:
    """See drivers.base.Driver. Thread-safe."""

    def __init__(self, settings: DriverSettings) -> None:
        self._clients = Clients(settings)
        self._known = Known()

    def create_machine(self, request: CreateMachineRequest) -> MachineStatus | Making:
        """Makes one pass, see drivers.azure.launch: network interface, disks from images, VM, each by a name that
        follows from uid and token. The VM is answered once Azure has made it.

        Azure knows no tokens: a VM of the token's name is the token's, whatever else the request says; and a token
        whose VM has ended makes another one.
        """
        spec = requests.parse_spec(request.provider_spec)
        requests.check(spec, request)
        arm = self._clients.get(places.with_group(places.place_of(request.provider_spec)), request.secret)
        return Launch(arm, request, spec.in_subscription(arm.subscription), self._known).run()

    def update_machine(self, request: UpdateMachineRequest) -> UpdateMachineResponse:
        """Makes the post-start update, once, where there is no last applied spec; else a hot update of tags and IP
        forwarding.

        A hot update with nothing to change makes no call. Raises PartialUpdate, see drivers.azure.hot_update.
        """
        last = request.last_applied_provider_spec
        where = places.with_group(places.place_of(last or request.provider_spec))  # the class may have moved on
        if last is not None:
            return hot_update.hot_update(lambda: self._clients.get(where, request.secret), request, last)
        spec = requests.parse_spec(request.provider_spec)
        arm = self._clients.get(where, request.secret)
        changed = poststart.post_start(arm, spec, request, places.vm_of(request.provider_id))
        return UpdateMachineResponse(changed=changed)

    def delete_machine(self, request: DeleteMachineRequest) -> DeleteMachineResponse:
        where = places.with_group(places.place_of(request.provider_spec, request.provider_id))
        return deletion.delete_machine(self._clients.get(where, request.secret), request)

    def get_machine_status(self, request: GetMachineStatusRequest) -> MachineStatus:
        where = places.with_group(places.place_of(request.provider_spec, request.provider_id))
        return instances.get_status(self._clients.get(where, request.secret), request, self._known.found_none)

    def list_machines(self, request: ListMachinesRequest) -> ListMachinesResponse:
        first = next(iter(request.provider_ids), None)
        where = places.with_group(places.place_of(request.provider_spec, first))
        arm = self._clients.get(where, request.secret)
        return ListMachinesResponse(machines=instances.list_machines(arm, request))

    def get_account(self, request: GetAccountRequest) -> str:
        """The subscription, which the Secret names; Azure is asked once whether the credentials open it."""
        where = places.place_of(request.provider_spec, request.provider_id)
        return self._clients.get(where, request.secret).prove()

    def get_volume_ids(self, request: GetVolumeIDsRequest) -> GetVolumeIDsResponse:
        def in_tree(spec: dict[str, Any]) -> str:
            return str((spec.get("azureDisk") or {}).get("diskURI") or "")

        return GetVolumeIDsResponse(volume_ids=volume_ids(request, DISK_CSI, in_tree))
