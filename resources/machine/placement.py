"""Where a machine stands among the others of its owner. It is no part of what the machine is made from: two machines of
one revision may differ in it, and no hash has it."""

from __future__ import annotations

from resources.base import Count, Name, Value


class Placement(Value):
    index: Count | None = None
    """The place in a set that is counted through, such as a control plane's."""
    zone: Name = ""
    failure_domain: Name = ""
    """The name of the failure domain, in its owner's words."""

    @property
    def counted(self) -> bool:
        """Whether it is a place of a set that is counted through."""
        return self.index is not None
