"""Azure: machines as virtual machines of a resource group (machine-controller-manager-provider-azure)."""

from __future__ import annotations

from drivers.azure.driver import AzureDriver
from drivers.base import Driver, DriverSettings


def driver(settings: DriverSettings) -> Driver:
    return AzureDriver(settings)


__all__ = ["AzureDriver", "driver"]
