"""The failure domains of a control plane, as each cloud's own module fills them."""

from __future__ import annotations

from resources.base import Manifest


class FailureDomain(Manifest):
    """A place where machines of a control plane may be, as OpenShift's FailureDomains (machine/v1) have it for one
    cloud. What is given takes the place of the same thing in the class; what is not given stays the class's."""

    @property
    def name(self) -> str:
        """Its name: that of the place, the same for all that name the same place."""
        raise NotImplementedError

    def mistakes(self) -> list[tuple[str, str]]:
        """Path and words for what is wrong with it."""
        return []
