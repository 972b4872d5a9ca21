"""Operations that a cloud goes on with after its answer, as far as all clouds that have such are alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from drivers.errors import OperationFailed
from resources.errors import BegunOperation, ErrorClass


class Course(StrEnum):
    """How an operation goes that has not ended badly."""

    GOES_ON = "goes on"
    OVER = "over"
    UNKNOWN = "unknown"
    """The cloud knows none, or none any longer."""


class Deletions:
    """What one pass of a deletion knows of the operations that it and the pass before have begun."""

    def __init__(self, before: Sequence[BegunOperation], course: Callable[[BegunOperation], Course]) -> None:
        """`course`: asks the cloud, and raises OperationFailed for one that has ended badly."""
        self._before = {b.what: b for b in before}
        self._course = course
        self.begun: list[BegunOperation] = []
        """What goes on, for the next pass."""

    def add(self, begun: BegunOperation | None) -> None:
        """This pass has begun it."""
        self.begun += [begun] if begun is not None else []

    def keep(self, name: str) -> None:
        """It is seen to go: its operation still says how that ends."""
        self.add(self._before.get(name))

    def goes_on(self, name: str) -> bool:
        """Whether what does not look so is being deleted: a read that is late. It is asked for only where something is
        there that was told to go, so a deletion that goes well costs no call.

        Raises OperationFailed where the deletion has ended badly, with its code, which nothing else shows. One that
        found nothing to delete is none.
        """
        begun = self._before.get(name)
        if begun is None:
            return False
        try:
            goes_on = self._course(begun) is Course.GOES_ON
        except OperationFailed as e:
            if e.error_class is ErrorClass.NOT_FOUND:
                return False
            raise
        self.add(begun if goes_on else None)
        return goes_on
