"""Google Cloud: machines as instances of Compute Engine (seed 000; machine-controller-manager-provider-gcp)."""

from __future__ import annotations

from drivers.base import Driver, DriverSettings
from drivers.gcp.driver import GcpDriver


def driver(settings: DriverSettings) -> Driver:
    return GcpDriver(settings)


__all__ = ["GcpDriver", "driver"]
