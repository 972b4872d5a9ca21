"""What an instance is made from: the provider spec in the words of the API reference (*instances.insert*)."""

from __future__ import annotations

import base64
import gzip
from typing import Any

from drivers.base import CreateMachineRequest, parsed
from drivers.errors import DriverError
from drivers.gcp.calls import Resource
from drivers.gcp.instances import vm_name
from drivers.gcp.tags import KEY_ATTEMPT, launch_network_tags
from drivers.gcp.tokens import mark
from drivers.tags import launch_tags
from resources.clouds.gcp.names import LABEL_RULES, LABELS_MOST, shortened
from resources.clouds.gcp.spec import (
    LOCAL_SSD,
    METADATA_VALUE_MOST,
    GcpDisk,
    GcpNetworkInterface,
    GcpProviderSpec,
    GcpScheduling,
)
from resources.errors import ErrorClass


def parse_spec(provider_spec: dict[str, Any]) -> GcpProviderSpec:
    """Parses the spec. Raises DriverError of class invalid."""
    return parsed(GcpProviderSpec, provider_spec)


def check(spec: GcpProviderSpec) -> None:
    """Raises DriverError of class invalid for what Google would refuse: a class may have come by another door."""
    if mistakes := spec.mistakes():
        raise DriverError(ErrorClass.INVALID, "; ".join(f"providerSpec.{path}: {words}" for path, words in mistakes))


def instance(request: CreateMachineRequest, spec: GcpProviderSpec) -> Resource:
    """The instance to ask for, without names of disks (`with_disks`); marked with the attempt.

    Raises DriverError of class invalid for user data, labels or network tags beyond Google's limits.
    """
    machine, zone = request.machine, spec.zone
    labels = launch_tags(spec, machine, "vm", "instance")
    if len(labels) >= LABELS_MOST:
        words = f"{len(labels) + 1} labels for the instance, but the cloud accepts {LABELS_MOST}: remove some"
        raise DriverError(ErrorClass.INVALID, f"{words} from {spec.tag_fields('vm')}")
    shielded, features = spec.shielded_instance_configuration, spec.advanced_machine_features
    body = _some(
        name=vm_name(machine),
        machineType=_url(spec.machine_type, f"zones/{zone}/machineTypes"),
        canIpForward=spec.can_ip_forward or None,
        deletionProtection=spec.deletion_protection or None,
        description=spec.description,
        disks=[_disk(request, spec, n, disk) for n, disk in enumerate(spec.disks)],
        guestAccelerators=[
            _some(
                acceleratorType=_url(spec.gpu.accelerator_type, f"zones/{zone}/acceleratorTypes"),
                acceleratorCount=spec.gpu.count,
            )
        ]
        if spec.gpu
        else None,
        labels=labels,
        metadata={"items": [{"key": k, "value": v} for k, v in {**spec.metadata, **user_data(request)}.items()]},
        minCpuPlatform=spec.min_cpu_platform,
        networkInterfaces=[_network_interface(nic, spec.region) for nic in spec.network_interfaces],
        scheduling=_scheduling(spec.scheduling, spec.gpu is not None),
        serviceAccounts=[{"email": a.email, "scopes": a.scopes} for a in spec.service_accounts] or None,
        shieldedInstanceConfig=shielded.model_dump(mode="json", by_alias=True, exclude_none=True) if shielded else None,
        advancedMachineFeatures=features.model_dump(mode="json", by_alias=True, exclude_none=True)
        if features
        else None,
        tags={"items": launch_network_tags(spec, machine)},
    )
    body["labels"] = {**labels, KEY_ATTEMPT: LABEL_RULES.value(mark(request.token, body))}
    return body


def with_disks(body: Resource, request_id: str) -> Resource:
    """The same instance, with names of its disks that only this request id has.

    Google takes a disk that is there for a new one's, if it has its name: a disk that a former life has left, with
    its data, would become the new VM's.
    """
    ending = request_id.partition("-")[0]
    disks = [
        disk | {"initializeParams": disk["initializeParams"] | {"diskName": shortened(body["name"], f"{n}-{ending}")}}
        if disk["type"] != LOCAL_SSD
        else disk
        for n, disk in enumerate(body["disks"])
    ]
    return {**body, "disks": disks}


def user_data(request: CreateMachineRequest) -> dict[str, str]:
    """The metadata that carries the user data: a script for Google's own agent, everything else for cloud-init or
    Ignition, which read `user-data`. Raises DriverError of class invalid for more than Google takes."""
    text = request.user_data.get_secret_value()
    if request.compressed:
        # Metadata is text, so cloud-init is told that it is base64. Without the time: a repeated call must be the same.
        packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
        found = {"user-data": packed, "user-data-encoding": "base64"}
    else:
        found = {"startup-script" if text.startswith("#!") else "user-data": text}
    size = max(len(value.encode()) for value in found.values())
    if size > METADATA_VALUE_MOST:
        way = "" if request.compressed else ", or compress it with gzip"
        raise DriverError(
            ErrorClass.INVALID,
            f"user data has {size} bytes, but Google accepts at most {METADATA_VALUE_MOST}: fetch the rest at "
            f"boot{way}",
        )
    return found


def _some(**values: Any) -> Resource:
    """What is given, alone: what is left out is as Google has it."""
    return {k: v for k, v in values.items() if v is not None and v != ""}


def _url(given: str, collection: str) -> str:
    """A part of a URL, where only the last word is given."""
    return given if "/" in given else f"{collection}/{given}"


def _disk(request: CreateMachineRequest, spec: GcpProviderSpec, n: int, disk: GcpDisk) -> Resource:
    zone, key = spec.zone, disk.encryption
    if disk.type == LOCAL_SSD:
        return _some(
            type=LOCAL_SSD,
            autoDelete=True,
            interface=disk.interface,
            initializeParams={"diskType": f"zones/{zone}/diskTypes/local-ssd"},
        )
    return _some(
        type="PERSISTENT",
        boot=disk.boot,
        autoDelete=disk.auto_delete is not False,
        diskEncryptionKey=_some(kmsKeyName=key.kms_key_name, kmsKeyServiceAccount=key.kms_key_service_account)
        if key
        else None,
        initializeParams=_some(
            diskSizeGb=disk.size_gb,
            diskType=_url(disk.type, f"zones/{zone}/diskTypes"),
            labels=launch_tags(spec, request.machine, f"disks[{n}]", "disk"),
            provisionedIops=disk.provisioned_iops or None,  # MCM: 0 is "not given"
            provisionedThroughput=disk.provisioned_throughput or None,
            sourceImage=disk.image,
            storagePool=disk.storage_pool,
        ),
    )


def _network_interface(nic: GcpNetworkInterface, region: str) -> Resource:
    alias, external, both = alias_range(nic), not nic.disable_external_ip, nic.ipv6_access_type == "EXTERNAL"
    return _some(
        network=_url(nic.network, "global/networks") if nic.network else None,
        subnetwork=_url(nic.subnetwork, f"regions/{region}/subnetworks") if nic.subnetwork else None,
        stackType=nic.stack_type,
        ipv6AccessConfigs=[{"name": "External IPv6", "type": "DIRECT_IPV6", "networkTier": "PREMIUM"}]
        if both
        else None,
        accessConfigs=[{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}] if external else None,
        aliasIpRanges=[alias] if alias else None,
    )


def alias_range(nic: GcpNetworkInterface) -> Resource | None:
    """The alias IP range that an interface is to have."""
    given = _some(ipCidrRange=nic.ip_cidr_range, subnetworkRangeName=nic.subnetwork_range_name)
    return given if nic.use_alias_ips else None


def _scheduling(given: GcpScheduling, gpu: bool) -> Resource:
    return _some(
        automaticRestart=False if given.is_spot else given.automatic_restart,
        onHostMaintenance=given.on_host_maintenance or ("TERMINATE" if given.is_spot or gpu else None),
        preemptible=given.is_spot or None,
        provisioningModel=given.provisioning_model,
        instanceTerminationAction=given.instance_termination_action,
    )
