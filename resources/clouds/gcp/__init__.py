"""Google Cloud: machines as instances of Compute Engine."""

from __future__ import annotations

from resources.clouds.base import Provider, Simulation
from resources.clouds.gcp.domain import GcpFailureDomain
from resources.clouds.gcp.names import IDS
from resources.clouds.gcp.openshift import GCPMachineProviderSpec
from resources.clouds.gcp.spec import GcpProviderSpec
from resources.clouds.gcp.worker import WORKERS

PROVIDER = Provider(
    "GCP",
    GcpProviderSpec,
    IDS,
    domain=GcpFailureDomain,
    openshift=GCPMachineProviderSpec,
    driver="drivers.gcp",
    simulation=Simulation("simulator.clouds.gce", service="gce", port=7646, create="instances.insert"),
    workers=WORKERS,
)

__all__ = ["PROVIDER", "GcpProviderSpec"]
