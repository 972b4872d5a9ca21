"""The failure domains of AWS: an availability zone, a subnet, or both."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from resources.base import Key, Manifest
from resources.clouds.domain import FailureDomain

BY_ID = "EC2 cannot be asked for it where manifests are read: write its id"


class AwsFilter(Manifest):
    """A filter that finds resources."""

    name: Key
    """The name of the filter, such as `tag:Name`."""
    values: list[Key] = Field(default_factory=list)
    """The values that it takes."""


class AwsReference(Manifest):
    """A resource of AWS, as OpenShift refers to it. Only an id is taken."""

    type: Literal["ID", "ARN", "Filters"] | None = None
    """Which of the others is given; it may be left out."""
    id: Key | None = None
    """The id."""
    arn: Key | None = None
    """Refused: EC2 cannot be asked which resource that is."""
    filters: list[AwsFilter] = Field(default_factory=list)
    """Refused: EC2 cannot be asked which resources they find."""

    def mistakes(self, path: str, arn_too: bool = False) -> list[tuple[str, str]]:
        """What is wrong with a reference that must be an id, or with `arn_too` an id or an ARN."""
        given = {"ID": self.id, "ARN": self.arn, "Filters": self.filters}
        wrong = [
            (path, f"{kind.lower()} is required when type is {kind}, and forbidden otherwise")
            for kind, value in given.items()
            if self.type is not None and (kind == self.type) != bool(value)
        ]
        barred = ("Filters",) if arn_too else ("ARN", "Filters")
        wrong += [(f"{path}.{kind.lower()}", BY_ID) for kind in barred if given[kind]]
        return wrong


class AwsDomainPlacement(Manifest):
    """Where a failure domain is."""

    availability_zone: Key = Field(min_length=1)
    """The availability zone."""


class AwsFailureDomain(FailureDomain):
    """A failure domain of AWS: give at least one of the fields."""

    placement: AwsDomainPlacement | None = None
    """Takes the place of the class's `placement.availabilityZone`."""
    subnet: AwsReference | None = None
    """Takes the place of the subnet of the class's first network interface, and of all that are in the same."""

    @property
    def zone(self) -> str:
        return self.placement.availability_zone if self.placement else ""

    @property
    def subnet_id(self) -> str:
        return self.subnet.id or "" if self.subnet else ""

    @property
    def name(self) -> str:
        return "/".join(filter(None, (self.zone, self.subnet_id)))

    def mistakes(self) -> list[tuple[str, str]]:
        found = self.subnet.mistakes("subnet") if self.subnet else []
        return found if found or self.name else [("", "give placement.availabilityZone, subnet.id, or both")]
