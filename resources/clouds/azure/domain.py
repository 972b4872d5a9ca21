"""The failure domains of Azure: an availability zone of the location."""

from __future__ import annotations

from resources.base import Key
from resources.clouds.domain import FailureDomain


class AzureFailureDomain(FailureDomain):
    """A failure domain of Azure."""

    zone: Key
    """Takes the place of the class's `properties.zone`, such as "1"; "": Azure chooses."""
    subnet: Key | None = None
    """Takes the place of the class's `subnetInfo.subnetName`."""

    @property
    def name(self) -> str:
        return "/".join(filter(None, (self.zone or "any", self.subnet)))

    def mistakes(self) -> list[tuple[str, str]]:
        fits = not self.zone or (self.zone.isascii() and self.zone.isdecimal() and int(self.zone) > 0)
        return [] if fits else [("zone", 'an availability zone of Azure is a number; write it like "1"')]
