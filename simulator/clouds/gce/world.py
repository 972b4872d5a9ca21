"""What exists in the simulated projects before anybody calls: network, images, machine types, service accounts.

The defaults are the world of the demo. A world is never changed by calls; what calls make lives in the other modules.
"""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict

from simulator.clouds.gce.keys import HOSTLER_KEY, OTHER_KEY

REGION = "europe-west1"
PROJECT = "hostler-simulator"
OTHER_PROJECT = "hostler-other"
POOL = "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/hostler/providers/hostler"
TOKEN_URI = "https://oauth2.googleapis.com/token"  # an address


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Project(_Frozen):
    number: str
    """The number that Google gave it; it is in no other project."""


class ServiceAccount(_Frozen):
    email: str
    key_id: str
    private_key: str
    """PEM: the account's only key. A simulator that serves others needs it to give it away (`key_file`)."""
    projects: tuple[str, ...]
    """Where it may do everything; it sees nothing of any other."""

    def key_file(self, token_uri: str = TOKEN_URI) -> str:
        """The JSON that a person downloads for the key, with the address where tokens are given for it."""
        return json.dumps(
            {
                "type": "service_account",
                "project_id": self.projects[0],
                "private_key_id": self.key_id,
                "private_key": self.private_key,
                "client_email": self.email,
                "client_id": "1" + self.key_id[:8],
                "token_uri": token_uri,
            }
        )


class MachineType(_Frozen):
    vcpus: int
    memory_mib: int
    architecture: str = "X86_64"


class Image(_Frozen):
    project: str
    name: str
    family: str = ""
    disk_size_gb: int = 10
    """The least size of a disk that is made from it, and its size where an insert says none."""
    architecture: str = "X86_64"


class Network(_Frozen):
    name: str


class Subnetwork(_Frozen):
    name: str
    network: str
    cidr: str
    secondary_ranges: dict[str, str] = {}
    """CIDR by name, for alias ranges. One without any takes every name."""


def _machine_types() -> dict[str, MachineType]:
    return {
        "e2-medium": MachineType(vcpus=2, memory_mib=4096),
        "e2-standard-2": MachineType(vcpus=2, memory_mib=8192),
        "e2-standard-4": MachineType(vcpus=4, memory_mib=16384),
        "n1-standard-2": MachineType(vcpus=2, memory_mib=7680),
        "n2-standard-2": MachineType(vcpus=2, memory_mib=8192),
        "n2-standard-4": MachineType(vcpus=4, memory_mib=16384),
        "n2-standard-8": MachineType(vcpus=8, memory_mib=32768),
        "n2d-standard-2": MachineType(vcpus=2, memory_mib=8192),
        "t2a-standard-2": MachineType(vcpus=2, memory_mib=8192, architecture="ARM64"),
    }


class World(BaseModel):
    """The projects, as a value: give another one to `Gce` for other networks, types or service accounts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    region: str = REGION
    zones: tuple[str, ...] = (f"{REGION}-b", f"{REGION}-c", f"{REGION}-d")
    projects: dict[str, Project] = {
        PROJECT: Project(number="123456789012"),
        OTHER_PROJECT: Project(number="210987654321"),
    }
    networks: tuple[Network, ...] = (Network(name="nodes"), Network(name="default"))
    """Those of each project."""
    subnetworks: tuple[Subnetwork, ...] = (
        Subnetwork(name="nodes", network="nodes", cidr="10.250.0.0/16", secondary_ranges={"pods": "100.96.0.0/11"}),
        Subnetwork(name="default", network="default", cidr="10.132.0.0/20"),
    )
    """Those of each project, all in the region."""
    images: tuple[Image, ...] = (
        Image(project="debian-cloud", name="debian-12-bookworm-v20260101", family="debian-12"),
        Image(
            project="debian-cloud", name="debian-12-bookworm-arm64-v20260101", family="debian-12-arm64",
            architecture="ARM64",
        ),
        Image(project="kinvolk-public", name="flatcar-stable-4459-2-1"),
        Image(project="kinvolk-public", name="flatcar-stable-4459-2-2", family="flatcar-stable"),
        Image(
            project="kinvolk-public", name="flatcar-stable-arm64-4459-2-2", family="flatcar-stable-arm64",
            architecture="ARM64",
        ),
    )  # fmt: skip
    machine_types: dict[str, MachineType] = _machine_types()
    """In every zone."""
    accelerator_types: tuple[str, ...] = ("nvidia-l4", "nvidia-tesla-t4")
    disk_types: tuple[str, ...] = (
        "hyperdisk-balanced",
        "pd-balanced",
        "pd-extreme",
        "pd-ssd",
        "pd-standard",
    )
    service_accounts: tuple[ServiceAccount, ...] = (
        ServiceAccount(
            email=f"hostler@{PROJECT}.iam.gserviceaccount.com",
            key_id="0a1b2c3d4e5f60010a1b2c3d4e5f60010a1b2c3d",
            private_key=HOSTLER_KEY,
            projects=(PROJECT,),
        ),
        ServiceAccount(
            email=f"hostler@{OTHER_PROJECT}.iam.gserviceaccount.com",
            key_id="0a1b2c3d4e5f60020a1b2c3d4e5f60020a1b2c3d",
            private_key=OTHER_KEY,
            projects=(OTHER_PROJECT,),
        ),
    )
    web_identities: dict[str, str] = {POOL: "hostler-web-identity-token"}
    """The subject token that a workload identity pool's provider takes, by the provider's audience. It stands for the
    first service account, directly or by impersonation."""

    def service_account(self, email: str) -> ServiceAccount | None:
        return next((a for a in self.service_accounts if a.email == email), None)
