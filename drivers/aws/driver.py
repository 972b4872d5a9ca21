"""The driver: each method of the contract in terms of EC2."""

from __future__ import annotations

from typing import Any

from drivers.aws import deletion, hot_update, instances, launch, poststart
from drivers.aws.calls import Clients, Ec2
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
    UpdateMachineRequest,
    UpdateMachineResponse,
    volume_ids,
)
from drivers.errors import DriverError, IdempotencyMismatch
from drivers.sessions import Remembered
from resources.errors import ErrorClass

EBS_CSI = "ebs.csi.aws.com"
MAX_IMAGES = 1000


class AwsDriver:
    """See drivers.base.Driver. Thread-safe."""

    def __init__(self, settings: DriverSettings) -> None:
        self._clients = Clients(settings)
        self._roots = Remembered[tuple[str, str], str](MAX_IMAGES)

    def create_machine(self, request: CreateMachineRequest) -> MachineStatus:
        """Makes one RunInstances with the token as ClientToken, and answers from its reply, as reads may lag behind it.

        Before it comes DescribeImages, once per image, if the spec refers to the image's root device.
        """
        spec = launch.parse_spec(request.provider_spec)
        launch.check(spec)
        ec2 = self._clients.get(spec.region, request.secret)
        root = self._root_device(ec2, spec.ami) if launch.needs_root_device(spec) else None
        parameters = launch.run_instances(request, spec, root)
        try:
            reply = ec2.call("RunInstances", renew=False, **parameters)
        except DriverError as e:
            mismatch = _mismatch(e)
            if mismatch is None:
                raise
        else:
            instance = next(instances.of_reservation(reply))
            if instances.is_living(instance):
                return instances.describe(instance, ec2.region)
            mismatch = IdempotencyMismatch(
                f"RunInstances: the token's VM {instance['InstanceId']} is {instances.state_of(instance)}",
                provider_code="IdempotentInstanceTerminated",
                terminated=True,
            )
        raise mismatch

    def update_machine(self, request: UpdateMachineRequest) -> UpdateMachineResponse:
        """Makes the post-start update, once, where there is no last applied spec; else a hot update of tags and
        metadata options.

        A hot update with nothing to change makes no call. Raises PartialUpdate, see drivers.aws.hot_update.
        """
        if request.last_applied_provider_spec is not None:
            last = request.last_applied_provider_spec
            region = instances.region_of(last, request.provider_id)  # the VM's own: the class may have moved on
            return hot_update.hot_update(lambda: self._clients.get(region, request.secret), request, last)
        spec = launch.parse_spec(request.provider_spec)
        ec2 = self._clients.get(spec.region, request.secret)
        vm = instances.instance_id(request.provider_id)
        changed = poststart.post_start(ec2, spec, vm)
        if request.untagged:
            changed += poststart.tag_installation(ec2, request.machine, vm)
        return UpdateMachineResponse(changed=changed)

    def delete_machine(self, request: DeleteMachineRequest) -> DeleteMachineResponse:
        region = instances.region_of(request.provider_spec, request.provider_id)
        return deletion.delete_machine(self._clients.get(region, request.secret), request)

    def get_machine_status(self, request: GetMachineStatusRequest) -> MachineStatus:
        region = instances.region_of(request.provider_spec, request.provider_id)
        return instances.get_status(self._clients.get(region, request.secret), request)

    def list_machines(self, request: ListMachinesRequest) -> ListMachinesResponse:
        region = instances.region_of(request.provider_spec, next(iter(request.provider_ids), None))
        ec2 = self._clients.get(region, request.secret)
        return ListMachinesResponse(machines=instances.list_machines(ec2, request))

    def get_account(self, request: GetAccountRequest) -> str:
        """Calls STS GetCallerIdentity, which needs no permission."""
        region = instances.region_of(request.provider_spec, request.provider_id)
        return self._clients.get(region, request.secret).account()

    def get_volume_ids(self, request: GetVolumeIDsRequest) -> GetVolumeIDsResponse:
        def in_tree(spec: dict[str, Any]) -> str:
            volume = (spec.get("awsElasticBlockStore") or {}).get("volumeID") or ""
            return str(volume).rsplit("/", 1)[-1]  # aws://<zone>/<id>, or the id alone

        return GetVolumeIDsResponse(volume_ids=volume_ids(request, EBS_CSI, in_tree))

    def _root_device(self, ec2: Ec2, image: str) -> str:
        """The image's root device, e.g. /dev/xvda. It never changes for an image, so each is asked for once."""
        key = (ec2.region, image)
        if known := self._roots.get(key):
            return known
        images = ec2.call("DescribeImages", ImageIds=[image]).get("Images", ())
        root = next((i.get("RootDeviceName") for i in images), None)
        if not root:
            raise DriverError(
                ErrorClass.NOT_FOUND, f"image {image} is not in {ec2.region}, or not shared with this account"
            )
        self._roots.put(key, str(root))
        return str(root)


def _mismatch(error: DriverError) -> IdempotencyMismatch | None:
    """The token is bound to other parameters, or to a VM that is dead (EC2 since 2025: boto/boto3#4406)."""
    if error.provider_code not in ("IdempotentParameterMismatch", "IdempotentInstanceTerminated"):
        return None
    terminated = error.provider_code == "IdempotentInstanceTerminated"
    return IdempotencyMismatch(error.message, provider_code=error.provider_code, terminated=terminated)
