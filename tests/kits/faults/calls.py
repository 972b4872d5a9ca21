"""Faults at single calls of a worker to its cloud, inside an activity: the worker is killed when the cloud has done
what it asked, the reply is lost, or it has called too often.

Which worker makes a call its request does not say, so a stack whose calls are struck has its simulator for itself.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lifekit import Stack

from faults.sites import SITES
from faults.strike import is_armed
from simulator.frame import Call, FaultRule

CallKind = Literal["killed", "lost", "throttled"]
CALL_KINDS: tuple[CallKind, ...] = ("killed", "lost", "throttled")


@dataclass(frozen=True)
class CallFault:
    """Strikes the n-th call of an operation since the flow was armed, once."""

    operation: str
    kind: CallKind
    call: int = 1

    def __str__(self) -> str:
        return f"{self.operation} {self.call} {self.kind}"


class Calls:
    """Counts the calls of a flow, and strikes some."""

    def __init__(self, stack: Stack, faults: Sequence[CallFault], kill: Callable[[], None]) -> None:
        self.seen: Counter[str] = Counter()
        """How often each operation was called."""
        self._faults = list(faults)
        self._kill = kill
        self._doomed: set[str] = set()
        """Operations whose next answer nobody hears."""
        self._stack, self._service, self._throttled = stack, stack.cloud.service, SITES[stack.home].throttled

    def left(self) -> list[CallFault]:
        """Faults that have not struck and should have: how often what is under way is looked at varies."""
        return [fault for fault in self._faults if fault.call == 1]

    def intercept(self, service: str, operation: str) -> FaultRule | None:
        if service != self._service or not is_armed(self._stack):
            return None
        self.seen[operation] += 1
        wanted = (f for f in self._faults if (f.operation, f.call) == (operation, self.seen[operation]))
        fault = next(wanted, None)
        if fault is None:
            return None
        self._faults.remove(fault)
        match fault.kind:
            case "lost":
                return FaultRule(drop=True)
            case "throttled":
                return FaultRule(code=self._throttled)
            case _:
                self._doomed.add(operation)
                return None

    def recorded(self, operation: str) -> None:
        if operation in self._doomed:
            self._doomed.remove(operation)
            self._kill()


@contextlib.contextmanager
def struck(stack: Stack, faults: Sequence[CallFault], kill: Callable[[], None]) -> Iterator[Calls]:
    """Strikes these calls; `kill` ends the worker's process."""
    frame, calls = stack.simulator.simulator.frame, Calls(stack, faults, kill)
    intercept, record = frame.intercept, frame.record

    def intercepted(service: str, operation: str, text: str) -> FaultRule | None:
        return calls.intercept(service, operation) or intercept(service, operation, text)

    def recorded(service: str, operation: str, **fields: Any) -> Call:
        call = record(service, operation, **fields)
        calls.recorded(operation)
        return call

    def install() -> None:
        frame.intercept, frame.record = intercepted, recorded  # type: ignore[method-assign]

    stack.simulator.call(install)
    yield calls
