"""What exists in the simulated subscriptions before anybody calls: networks, images, sizes, quotas, credentials.

The defaults are the world of the demo. A world is never changed by calls; what calls make lives in the other modules.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

LOCATION = "westeurope"
TENANT = "a1b2c3d4-0000-4000-8000-00000000000f"
SUBSCRIPTION = "a1b2c3d4-0000-4000-8000-000000000001"
OTHER_SUBSCRIPTION = "a1b2c3d4-0000-4000-8000-000000000002"
GROUP = "shoot--demo"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Subnet(_Frozen):
    name: str
    prefixes: tuple[str, ...]
    """IPv4, and IPv6 where the subnet has both."""


class Network(_Frozen):
    """A virtual network; each subscription of the world has it."""

    name: str
    group: str = GROUP
    prefixes: tuple[str, ...]
    subnets: tuple[Subnet, ...]


class VmSize(_Frozen):
    """A VM size ("Sizes for virtual machines in Azure")."""

    family: str
    """Its name in quotas."""
    vcpus: int
    memory_gib: float
    nics: int = 2
    data_disks: int = 8
    zones: tuple[str, ...] = ("1", "2", "3")
    """Where it can be had; without a zone it can be had in any case."""
    accelerated_networking: bool = True
    premium_disks: bool = True
    architecture: str = "x64"
    """In Azure's words: x64, Arm64."""


class Plan(_Frozen):
    """What a marketplace image is sold by."""

    name: str
    product: str
    publisher: str


class Image(_Frozen):
    """A platform image, found by its urn; `latest` is the last version."""

    publisher: str
    offer: str
    sku: str
    versions: tuple[str, ...]
    disk_gb: int = 30
    """GB: the size of the OS disk when a VM says none, and the least it may say."""
    architecture: str = "x64"
    plan: Plan | None = None


class Principal(_Frozen):
    """An application that may log in, and what it may open."""

    tenant: str = TENANT
    client_id: str
    secret: str
    subscriptions: tuple[str, ...]
    federated_tokens: tuple[str, ...] = ()
    """Tokens of another issuer, such as a Kubernetes service account's, that Entra takes in exchange for its own."""
    certificates: tuple[str, ...] = ()
    """PEM, the public part: an assertion signed with one of them is taken."""
    managed: bool = False
    """It is the managed identity of the machine that the caller runs on."""


def _sizes() -> dict[str, VmSize]:
    def ds(vcpus: int, nics: int, data_disks: int) -> VmSize:
        return VmSize(family="standardDSv5Family", vcpus=vcpus, memory_gib=4 * vcpus, nics=nics, data_disks=data_disks)

    return {
        "Standard_B2s": VmSize(
            family="standardBSFamily", vcpus=2, memory_gib=4, nics=3, data_disks=4, accelerated_networking=False
        ),
        "Standard_D2s_v5": ds(2, 2, 4),
        "Standard_D4s_v5": ds(4, 2, 8),
        "Standard_D8s_v5": ds(8, 4, 16),
        "Standard_D2as_v5": VmSize(family="standardDASv5Family", vcpus=2, memory_gib=8, data_disks=4),
        "Standard_D2ps_v5": VmSize(
            family="standardDPSv5Family", vcpus=2, memory_gib=8, data_disks=4, architecture="Arm64"
        ),
        "Standard_NC24ads_A100_v4": VmSize(
            family="StandardNCADSA100v4Family", vcpus=24, memory_gib=220, zones=("1",), data_disks=8
        ),
    }


def _images() -> tuple[Image, ...]:
    flatcar = Plan(name="stable-gen2", product="flatcar-container-linux-free", publisher="kinvolk")
    return (
        Image(
            publisher="kinvolk",
            offer="flatcar-container-linux-free",
            sku="stable-gen2",
            versions=("4459.2.1", "4459.2.2"),
            plan=flatcar,
        ),
        Image(
            publisher="Canonical",
            offer="0001-com-ubuntu-server-jammy",
            sku="22_04-lts-gen2",
            versions=("22.04.202601010", "22.04.202602010"),
        ),
        Image(
            publisher="Canonical",
            offer="ubuntu-24_04-lts",
            sku="server-arm64",
            versions=("24.04.202602010",),
            architecture="Arm64",
        ),
    )


class World(BaseModel):
    """The subscriptions, as a value: give another one to `Arm` for other networks, sizes or credentials."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    location: str = LOCATION
    tenant: str = TENANT
    subscriptions: dict[str, str] = {SUBSCRIPTION: "demo", OTHER_SUBSCRIPTION: "another"}
    """Display name by id. They see nothing of each other's resources; each has the groups and networks below."""
    groups: tuple[str, ...] = (GROUP, "shoot--demo--networks")
    networks: tuple[Network, ...] = (
        Network(
            name="shoot--demo",
            prefixes=("10.250.0.0/16", "fd00:da7a::/48"),
            subnets=(
                Subnet(name="nodes", prefixes=("10.250.0.0/19",)),
                Subnet(name="dual", prefixes=("10.250.32.0/19", "fd00:da7a:0:1::/64")),
                Subnet(name="tiny", prefixes=("10.250.64.0/29",)),
            ),
        ),
    )
    sizes: dict[str, VmSize] = _sizes()
    images: tuple[Image, ...] = _images()
    image_ids: dict[str, int] = {
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Compute/images/nodes": 30,
        f""
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Compute/galleries/hostler/images/nodes"
        "/versions/1.0.0": 30,
        "/CommunityGalleries/gardenlinux-1/Images/gardenlinux/Versions/1877.0.0": 30,
        "/SharedGalleries/hostler-1/Images/nodes/Versions/1.0.0": 30,
    }
    """Size in GB by the id of an own image, or of a version in an own, a community or a shared gallery."""
    accepted_plans: tuple[str, ...] = ()
    """Plans, as publisher/product/name, whose terms the subscriptions have accepted from the start."""
    availability_sets: tuple[str, ...] = ("nodes",)
    """In the first of `groups`, like the next three."""
    scale_sets: tuple[str, ...] = ("nodes",)
    """Flexible ones: a VM names the one it belongs to."""
    capacity_reservation_groups: tuple[str, ...] = ("nodes",)
    security_groups: tuple[str, ...] = ("nodes",)
    cores: int = 4000
    """The quota of vCPUs of a subscription in its location."""
    family_cores: dict[str, int] = {"StandardNCADSA100v4Family": 48}
    """Quotas of single families; the others have that of the subscription."""
    low_priority_cores: int = 3000
    """The quota of vCPUs of Spot VMs, which count in no other one."""
    principals: tuple[Principal, ...] = (
        Principal(
            client_id="a1b2c3d4-0000-4000-8000-0000000000c1",
            secret="hostler-simulator-secret",
            subscriptions=(SUBSCRIPTION,),
            federated_tokens=("hostler-federated-token",),
            managed=True,
        ),
        Principal(
            client_id="a1b2c3d4-0000-4000-8000-0000000000c2",
            secret="hostler-other-account-secret",
            subscriptions=(OTHER_SUBSCRIPTION,),
        ),
    )

    @property
    def zones(self) -> tuple[str, ...]:
        return tuple(sorted({z for s in self.sizes.values() for z in s.zones}))

    def size(self, name: str) -> tuple[str, VmSize] | None:
        """A size and its name, which Azure takes in any case."""
        return next(((n, s) for n, s in self.sizes.items() if n.lower() == name.lower()), None)

    def image(self, publisher: str, offer: str, sku: str, version: str) -> Image | None:
        wanted = (publisher.lower(), offer.lower(), sku.lower())
        for image in self.images:
            if (image.publisher.lower(), image.offer.lower(), image.sku.lower()) == wanted:
                return image if version in ("latest", *image.versions) else None
        return None
