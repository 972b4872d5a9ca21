"""What every simulated service shares: fault rules, lag of reads after writes, a journal of calls, state on disk.

A service asks the frame once per call (`Frame.intercept`), does its work, and reports the outcome (`Frame.record`). The
frame knows nothing of any protocol: a service turns a `FaultRule` into an error of its own wire format.
"""

from __future__ import annotations

import fnmatch
import heapq
import json
import os
import re
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

JOURNAL_LENGTH = 20_000  # calls kept in memory of each service; older ones are dropped


class FaultRule(BaseModel):
    """What goes wrong with the calls that it matches. Rules are tried in the order they were added; the first wins.

    A rule without `code`, `delay` or `drop` does nothing but count.
    """

    model_config = ConfigDict(extra="forbid")

    id: str = Field(default_factory=lambda: uuid.uuid4().hex[:8])
    service: str = "*"
    """One of the services that the frame serves (`Frame.services`); "*": any."""
    operation: str = "*"
    """A shell pattern: `Describe*`; for Kubernetes `verb resource[/subresource]`: `patch nodes`."""
    match: str | None = None
    """A regular expression searched in the request as text: a cloud's parameters as JSON, Kubernetes' path and body."""
    code: str | None = None
    """The error that is answered: a cloud's error code, or a Kubernetes reason such as `TooManyRequests`."""
    status: int | None = None
    """HTTP status of that error; the service's own for the code when absent."""
    message: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    """Extra headers of the answer, e.g. Retry-After."""
    times: int | None = Field(default=1, ge=1)
    """How many calls it strikes; None: all, until it is removed."""
    delay: float = Field(default=0.0, ge=0.0, le=600.0)
    """Seconds to wait before the call is worked on."""
    drop: bool = False
    """The effect is done, the connection is cut before the answer: a lost reply."""
    hits: int = 0


class Call(BaseModel):
    """One call as the service saw it."""

    n: int
    time: float
    """Seconds since the epoch, when the call was finished."""
    service: str
    operation: str
    caller: str = ""
    """The caller: an access key id, or a Kubernetes user name."""
    request: dict[str, Any] = Field(default_factory=dict)
    """The parameters that matter for assertions; never a secret (user data and tokens are left out)."""
    result: dict[str, Any] = Field(default_factory=dict)
    """Ids of what was made or changed."""
    error: str | None = None
    status: int = 200
    dropped: bool = False
    """The effect was done but the caller never got the answer."""
    mutating: bool = False


class Lag(BaseModel):
    """How long reads lag behind writes, in seconds. The defaults are a quiet, consistent world."""

    model_config = ConfigDict(extra="forbid")

    describe_after_create: float = Field(default=0.0, ge=0.0)
    """A cloud's new resource is unknown to describe calls by id and by filter for this long."""
    tags: float = Field(default=0.0, ge=0.0)
    """A cloud's written tags are unknown to filters and describe calls for this long."""


class Frame:
    """Faults, lag and journal of one simulator. All its services run in one event loop, so there is no lock."""

    def __init__(self, state_file: Path | None = None) -> None:
        self.faults: list[FaultRule] = []
        self.lag = Lag()
        self.state_file = state_file
        # One for each service: heartbeats of many nodes would push the cloud's few calls out of a common one.
        self._journals: dict[str, deque[Call]] = {}
        self._calls = 0
        self.changes = 0
        """How many calls have changed something."""

    @property
    def services(self) -> list[str]:
        """The services that have joined."""
        return sorted(self._journals)

    def join(self, service: str) -> None:
        """A service announces itself, before anything else."""
        self._journals.setdefault(service, deque(maxlen=JOURNAL_LENGTH))

    def intercept(self, service: str, operation: str, text: str) -> FaultRule | None:
        """The rule that strikes this call, already counted; None when the call goes through undisturbed."""
        for rule in self.faults:
            if rule.service not in ("*", service) or not fnmatch.fnmatchcase(operation, rule.operation):
                continue
            if rule.match and not re.search(rule.match, text):
                continue
            rule.hits += 1
            if rule.times is not None and rule.hits >= rule.times:
                self.faults.remove(rule)
            return rule
        return None

    def record(self, service: str, operation: str, **fields: Any) -> Call:
        """Append one call to the journal. `fields` are those of `Call`."""
        self._calls += 1
        call = Call(n=self._calls, time=time.time(), service=service, operation=operation, **fields)
        self._journals[service].append(call)
        self.changes += call.mutating
        return call

    def calls(self, service: str | None = None, operation: str | None = None, since: int = 0) -> list[Call]:
        """Calls after number `since`, oldest first; `operation` is a shell pattern."""
        return [
            c
            for c in self._kept(service)
            if c.n > since and (operation is None or fnmatch.fnmatchcase(c.operation, operation))
        ]

    def _kept(self, service: str | None = None) -> Iterable[Call]:
        journals = [j for s, j in self._journals.items() if service in (None, s)]
        return heapq.merge(*journals, key=lambda c: c.n)

    def clear_faults(self) -> None:
        self.faults.clear()

    def reset_journal(self) -> None:
        for journal in self._journals.values():
            journal.clear()

    def load(self) -> dict[str, Any]:
        """What the services wrote last, by service name; empty when there is nothing yet."""
        if self.state_file is None or not self.state_file.exists():
            return {}
        try:
            state = json.loads(self.state_file.read_text())
        except ValueError as e:
            raise ValueError(
                f"{self.state_file}: the simulator's state cannot be read ({e}); remove the file to start afresh"
            ) from None
        self._calls = int(state.get("calls", 0))
        for call in map(Call.model_validate, state.get("journal", ())):
            self.join(call.service)
            self._journals[call.service].append(call)
        return dict(state.get("services", {}))

    def save(self, services: dict[str, Any], journal: Iterable[Call] | None = None) -> None:
        """Write the state beside the old one and rename: a crash leaves one of the two, never half of one."""
        if self.state_file is None:
            return
        kept = self._kept() if journal is None else journal
        state = {"calls": self._calls, "journal": [c.model_dump(mode="json") for c in kept], "services": services}
        self.state_file.parent.mkdir(parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(dir=self.state_file.parent, prefix=".state-")
        with os.fdopen(fd, "w") as f:
            f.write(json.dumps(state))  # json.dump would use the encoder in Python, ten times slower
        os.replace(name, self.state_file)
