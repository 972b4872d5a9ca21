"""The failure domains of Google Cloud: a zone of the region."""

from __future__ import annotations

from pydantic import Field

from resources.base import Name
from resources.clouds.domain import FailureDomain


class GcpFailureDomain(FailureDomain):
    """A failure domain of Google Cloud."""

    zone: Name = Field(min_length=1)
    """Takes the place of the class's `zone`; it must be one of the class's region."""

    @property
    def name(self) -> str:
        return self.zone
