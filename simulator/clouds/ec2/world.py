"""What exists in the simulated account before anybody calls: network, images, instance types, credentials.

The defaults are the world of the demo. A world is never changed by calls; what calls make lives in the other modules.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

REGION = "eu-west-1"
ACCOUNT = "123456789012"
OTHER_ACCOUNT = "210987654321"
VPC = "vpc-0a1b2c3d4e5f60001"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Subnet(_Frozen):
    id: str
    zone: str
    cidr: str
    ipv6_cidr: str | None = None
    """A /64, like every IPv6 subnet of a VPC; None: the subnet is IPv4 only."""
    vpc_id: str = VPC


class SecurityGroup(_Frozen):
    id: str
    name: str
    """The group named `default` is for interfaces that name none."""
    vpc_id: str = VPC


class Image(_Frozen):
    id: str
    name: str
    owner_id: str = "075585003325"
    architecture: str = "x86_64"
    root_device_name: str = "/dev/xvda"
    root_volume_size: int = 8
    """GiB: the size of the root volume when a launch says none, and the least it may say."""


class InstanceType(_Frozen):
    vcpus: int
    memory_mib: int
    threads_per_core: int = 2
    interfaces: int = 3
    """How many network interfaces it takes, over all network cards."""
    network_cards: int = 1
    efas: int = 0
    """How many of the interfaces may be Elastic Fabric Adapters."""
    ipv6_per_interface: int = 10
    """IPv6 addresses and IPv6 prefixes together."""
    amd_sev_snp: bool = False
    architecture: str = "x86_64"


class PlacementGroup(_Frozen):
    id: str
    name: str


def _subnets() -> tuple[Subnet, ...]:
    return tuple(
        Subnet(
            id=f"subnet-0a1b2c3d4e5f6000{n}",
            zone=f"{REGION}{'abc'[n - 1]}",
            cidr=f"10.250.{16 * (n - 1)}.0/20",
            ipv6_cidr=f"2001:db8:1234:1a0{n}::/64",
        )
        for n in (1, 2, 3)
    )


def _instance_types() -> dict[str, InstanceType]:
    return {
        "t3.medium": InstanceType(vcpus=2, memory_mib=4096, ipv6_per_interface=6),
        "t3.large": InstanceType(vcpus=2, memory_mib=8192, ipv6_per_interface=12),
        "m5.large": InstanceType(vcpus=2, memory_mib=8192),
        "m5.xlarge": InstanceType(vcpus=4, memory_mib=16384, interfaces=4, ipv6_per_interface=15),
        "m5.2xlarge": InstanceType(vcpus=8, memory_mib=32768, interfaces=4, ipv6_per_interface=15),
        "m6a.large": InstanceType(vcpus=2, memory_mib=8192, amd_sev_snp=True),
        "m7g.large": InstanceType(vcpus=2, memory_mib=8192, threads_per_core=1, architecture="arm64"),
        "c5.large": InstanceType(vcpus=2, memory_mib=4096),
        "c5n.18xlarge": InstanceType(vcpus=72, memory_mib=196608, interfaces=15, efas=1, ipv6_per_interface=50),
        "p4d.24xlarge": InstanceType(
            vcpus=96, memory_mib=1179648, interfaces=60, network_cards=4, efas=4, ipv6_per_interface=50
        ),
    }


class World(BaseModel):
    """The accounts, as a value: give another one to `Ec2` for other subnets, types or credentials."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    region: str = REGION
    account_id: str = ACCOUNT
    subnets: tuple[Subnet, ...] = _subnets()
    security_groups: tuple[SecurityGroup, ...] = (
        SecurityGroup(id="sg-0a1b2c3d4e5f60001", name="nodes"),
        SecurityGroup(id="sg-0a1b2c3d4e5f60002", name="nodes-extra"),
        SecurityGroup(id="sg-0a1b2c3d4e5f60009", name="default"),
    )
    images: tuple[Image, ...] = (
        Image(id="ami-0a1b2c3d4e5f60001", name="flatcar-stable-4459.2.1-hvm"),
        Image(id="ami-0a1b2c3d4e5f60002", name="flatcar-stable-4459.2.2-hvm"),
        Image(id="ami-0a1b2c3d4e5f60003", name="flatcar-stable-4459.2.2-arm64-hvm", architecture="arm64"),
        Image(
            id="ami-0a1b2c3d4e5f60004",
            name="ubuntu/images/hvm-ssd/ubuntu-jammy-22.04-amd64-server",
            owner_id="099720109477",
            root_device_name="/dev/sda1",
        ),
    )
    instance_types: dict[str, InstanceType] = _instance_types()
    instance_profiles: dict[str, str] = {"nodes": f"arn:aws:iam::{ACCOUNT}:instance-profile/nodes"}
    """ARN by name."""
    key_pairs: tuple[str, ...] = ("nodes",)
    snapshots: dict[str, int] = {"snap-0a1b2c3d4e5f60001": 8}
    """Size in GiB by id."""
    kms_keys: tuple[str, ...] = (f"arn:aws:kms:{REGION}:{ACCOUNT}:key/0a1b2c3d-4e5f-6000-8000-000000000001",)
    """Keys that can be used. With any other, an instance is accepted and dies on launch, as in EC2."""
    placement_groups: tuple[PlacementGroup, ...] = (PlacementGroup(id="pg-0a1b2c3d4e5f60001", name="nodes"),)
    hosts: tuple[str, ...] = ("h-0a1b2c3d4e5f60001",)
    capacity_reservations: tuple[str, ...] = ("cr-0a1b2c3d4e5f60001",)
    access_keys: dict[str, str] = {"AKIAHOSTLERSIMULATOR": "hostler-simulator-secret"}
    """Secret by access key id, of `account_id`."""
    other_accounts: dict[str, dict[str, str]] = {
        OTHER_ACCOUNT: {"AKIAHOSTLEROTHERACCT": "hostler-other-account-secret"}
    }
    """Secrets by access key id, of the other accounts. All see the same network and images, like accounts that share a
    VPC, and nothing of each other's instances, volumes and interfaces."""
    web_identities: dict[str, str] = {f"arn:aws:iam::{ACCOUNT}:role/hostler": "hostler-web-identity-token"}
    """The token that may assume a role, by role ARN."""
    roles: tuple[str, ...] = (f"arn:aws:iam::{ACCOUNT}:role/hostler",)
    """ARNs of the roles that every access key may assume."""

    @property
    def zones(self) -> tuple[str, ...]:
        return tuple(sorted({s.zone for s in self.subnets}))

    def subnet(self, subnet_id: str) -> Subnet | None:
        return next((s for s in self.subnets if s.id == subnet_id), None)

    def security_group(self, group_id: str) -> SecurityGroup | None:
        return next((g for g in self.security_groups if g.id == group_id), None)

    def image(self, image_id: str) -> Image | None:
        return next((i for i in self.images if i.id == image_id), None)
