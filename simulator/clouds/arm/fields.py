"""What is emulated of the bodies and queries of calls. Anything else is refused by name, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.clouds.arm.errors import ArmError, unsupported

_COMMON = "location tags.*"
_ENTITY = "id name type etag kind"
"""What resources answer and take back unread, so that a body that was read may be written."""

_STORAGE = """
    imageReference.id imageReference.publisher imageReference.offer imageReference.sku imageReference.version
    imageReference.communityGalleryImageId imageReference.sharedGalleryImageId imageReference.exactVersion
    diskControllerType
    osDisk.osType osDisk.name osDisk.caching osDisk.createOption osDisk.diskSizeGB:int osDisk.deleteOption
    osDisk.managedDisk.id osDisk.managedDisk.storageAccountType osDisk.managedDisk.diskEncryptionSet.id
    osDisk.managedDisk.securityProfile.securityEncryptionType
    osDisk.managedDisk.securityProfile.diskEncryptionSet.id
    dataDisks.lun:int dataDisks.name dataDisks.caching dataDisks.createOption dataDisks.diskSizeGB:int
    dataDisks.deleteOption dataDisks.toBeDetached:bool dataDisks.managedDisk.id
    dataDisks.managedDisk.storageAccountType dataDisks.managedDisk.diskEncryptionSet.id
"""
_OS = """
    computerName adminUsername adminPassword customData allowExtensionOperations:bool secrets
    requireGuestProvisionSignal:bool
    linuxConfiguration.disablePasswordAuthentication:bool linuxConfiguration.provisionVMAgent:bool
    linuxConfiguration.enableVMAgentPlatformUpdates:bool
    linuxConfiguration.patchSettings.patchMode linuxConfiguration.patchSettings.assessmentMode
    linuxConfiguration.ssh.publicKeys.path linuxConfiguration.ssh.publicKeys.keyData
"""
_VM_PROPERTIES = """
    hardwareProfile.vmSize priority evictionPolicy billingProfile.maxPrice:float
    networkProfile.networkInterfaces.id networkProfile.networkInterfaces.properties.primary:bool
    networkProfile.networkInterfaces.properties.deleteOption
    availabilitySet.id virtualMachineScaleSet.id capacityReservation.capacityReservationGroup.id
    diagnosticsProfile.bootDiagnostics.enabled:bool diagnosticsProfile.bootDiagnostics.storageUri
    securityProfile.securityType securityProfile.encryptionAtHost:bool
    securityProfile.uefiSettings.secureBootEnabled:bool securityProfile.uefiSettings.vTpmEnabled:bool
    provisioningState vmId timeCreated instanceView.*
"""
_NIC_PROPERTIES = """
    enableIPForwarding:bool enableAcceleratedNetworking:bool networkSecurityGroup.id
    dnsSettings.dnsServers dnsSettings.appliedDnsServers
    ipConfigurations.id ipConfigurations.name ipConfigurations.type ipConfigurations.etag
    ipConfigurations.properties.subnet.id ipConfigurations.properties.primary:bool
    ipConfigurations.properties.privateIPAddress ipConfigurations.properties.privateIPAllocationMethod
    ipConfigurations.properties.privateIPAddressVersion ipConfigurations.properties.provisioningState
    ipConfigurations.properties.loadBalancerBackendAddressPools.id
    provisioningState resourceGuid macAddress nicType virtualMachine.id primary:bool hostedWorkloads tapConfigurations
"""
_DISK_PROPERTIES = """
    diskSizeGB:int creationData.createOption creationData.imageReference.id creationData.imageReference.lun:int
    creationData.imageReference.communityGalleryImageId creationData.imageReference.sharedGalleryImageId
    creationData.imageReference.publisher creationData.imageReference.offer creationData.imageReference.sku
    creationData.imageReference.version
    creationData.galleryImageReference.id creationData.galleryImageReference.lun:int
    creationData.galleryImageReference.communityGalleryImageId creationData.galleryImageReference.sharedGalleryImageId
    creationData.sourceResourceId osType encryption.type encryption.diskEncryptionSetId
    provisioningState diskSizeBytes:int diskState timeCreated uniqueId
"""
_VNET_PROPERTIES = """
    addressSpace.addressPrefixes subnets.id subnets.name subnets.type subnets.etag subnets.properties.addressPrefix
    subnets.properties.addressPrefixes subnets.properties.provisioningState subnets.properties.ipConfigurations.*
    provisioningState
"""


def _under(prefix: str, fields: str) -> str:
    return " ".join(f"{prefix}.{f}" for f in fields.split())


_VM = " ".join(
    [
        _COMMON,
        _ENTITY,
        "zones plan.name plan.product plan.publisher plan.promotionCode identity.type",
        "identity.userAssignedIdentities.*",
        _under("properties", _VM_PROPERTIES),
        _under("properties.storageProfile", _STORAGE),
        _under("properties.osProfile", _OS),
    ]
)
_DISK = f"{_COMMON} {_ENTITY} zones sku.name sku.tier managedBy {_under('properties', _DISK_PROPERTIES)}"

_BODIES = {
    "ResourceGroups_CreateOrUpdate": f"{_COMMON} {_ENTITY} properties.provisioningState",
    "VirtualMachines_CreateOrUpdate": _VM,
    "VirtualMachines_Update": _VM,
    "Disks_CreateOrUpdate": _DISK,
    "Disks_Update": _DISK,
    "NetworkInterfaces_CreateOrUpdate": f"{_COMMON} {_ENTITY} {_under('properties', _NIC_PROPERTIES)}",
    "NetworkInterfaces_UpdateTags": "tags.*",
    "VirtualNetworks_CreateOrUpdate": f"{_COMMON} {_ENTITY} {_under('properties', _VNET_PROPERTIES)}",
    "Tags_UpdateAtScope": "operation properties.tags.*",
    "MarketplaceAgreements_Create": (
        f"{_ENTITY} properties.publisher properties.product properties.plan properties.accepted:bool "
        "properties.licenseTextLink properties.privacyPolicyLink properties.retrieveDatetime properties.signature "
        "properties.marketplaceTermsLink"
    ),
    "ResourceGraph_Resources": (
        "subscriptions query options.resultFormat options.$top:int options.$skipToken options.$skip:int"
    ),
}
_QUERIES = {
    "VirtualMachines_Get": "$expand",
    "VirtualMachines_Delete": "forceDeletion",
    "VirtualMachines_List": "$filter $expand $skiptoken",
    "VirtualMachines_ListAll": "statusOnly $filter $skiptoken",
    "VirtualMachines_PowerOff": "skipShutdown",
    "VirtualMachines_Deallocate": "hibernate forceDeallocate",
    "VirtualMachines_RetrieveBootDiagnosticsData": "sasUriExpirationTimeInMinutes",
    "VirtualMachineImages_List": "$top $orderby $expand",
    "ResourceGroups_Delete": "forceDeletionTypes",
    "Resources_List": "$filter $expand $skiptoken",
    "Resources_ListByResourceGroup": "$filter $expand $skiptoken",
    "ResourceSkus_List": "$filter includeExtendedLocations $skiptoken",
    "Disks_List": "$skiptoken",
    "Disks_ListByResourceGroup": "$skiptoken",
    "NetworkInterfaces_List": "$skiptoken",
    "NetworkInterfaces_ListAll": "$skiptoken",
    "VirtualNetworks_List": "$skiptoken",
    "Subnets_List": "$skiptoken",
}

_TYPES: Mapping[str, tuple[type, ...]] = {"int": (int,), "bool": (bool,), "float": (int, float), "": (str,)}
Tree = dict[str, Any]


def _tree(fields: str) -> Tree:
    """The fields by their parts; a leaf is the types of its value."""
    tree: Tree = {}
    for field in fields.split():
        path, _, kind = field.partition(":")
        *parts, leaf = path.split(".")
        branch = tree
        for part in parts:
            branch = branch.setdefault(part, {})
        branch[leaf] = _TYPES[kind]
    return tree


_TREES = {operation: _tree(fields) for operation, fields in _BODIES.items()}


def check_query(operation: str, query: Mapping[str, str]) -> None:
    known = {"api-version", *_QUERIES.get(operation, "").split()}
    for name in query:
        if name not in known:
            raise unsupported(f"the query parameter {name} of {operation}")


def check_body(operation: str, body: Any) -> None:
    tree = _TREES.get(operation)
    if tree is None:
        if body:
            raise unsupported(f"a body of {operation}")
        return
    if not isinstance(body, dict):
        raise ArmError("InvalidRequestContent", "The request content was invalid and could not be deserialized.")
    _check(operation, "", body, tree)


def _check(operation: str, path: str, value: Any, known: Any) -> None:
    if value is None:
        return
    if isinstance(value, list):
        for item in value:
            _check(operation, path, item, known)
    elif isinstance(known, tuple):
        wrong = isinstance(value, dict) or not isinstance(value, known)
        if wrong or (isinstance(value, bool) and bool not in known):
            raise ArmError(
                "InvalidRequestContent",
                f"The request content was invalid and could not be deserialized: Error converting value to type "
                f"'{known[0].__name__}'. Path '{path}'.",
                target=path,
            )
    elif not isinstance(value, dict):
        raise ArmError("InvalidRequestContent", f"An object was expected. Path '{path}'.", target=path)
    else:
        for name, inner in value.items():
            if "*" in known:
                continue
            at = f"{path}.{name}".removeprefix(".")
            if name not in known:
                raise unsupported(f"the field {at} of {operation}")
            _check(operation, at, inner, known[name])
