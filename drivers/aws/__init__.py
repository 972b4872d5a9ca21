"""AWS: machines as EC2 instances (seed 000; machine-controller-manager-provider-aws)."""

from __future__ import annotations

from drivers.aws.driver import AwsDriver
from drivers.base import Driver, DriverSettings


def driver(settings: DriverSettings) -> Driver:
    return AwsDriver(settings)


__all__ = ["AwsDriver", "driver"]
