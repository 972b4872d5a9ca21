"""Azure: machines as virtual machines of Azure Resource Manager."""

from __future__ import annotations

from resources.clouds.azure.domain import AzureFailureDomain
from resources.clouds.azure.names import IDS
from resources.clouds.azure.openshift import AzureMachineProviderSpec
from resources.clouds.azure.spec import AzureProviderSpec
from resources.clouds.azure.worker import WORKERS
from resources.clouds.base import Provider, Simulation

PROVIDER = Provider(
    "Azure",
    AzureProviderSpec,
    IDS,
    domain=AzureFailureDomain,
    openshift=AzureMachineProviderSpec,
    driver="drivers.azure",
    simulation=Simulation("simulator.clouds.arm", service="arm", port=7647, create="VirtualMachines_CreateOrUpdate"),
    workers=WORKERS,
)

__all__ = ["PROVIDER", "AzureProviderSpec"]
