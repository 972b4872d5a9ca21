"""The made-up cloud itself, in this process: VMs, disks and network interfaces of some accounts, behind one `call`.

It keeps to the simulator's frame: fault rules, lag of reads, a journal.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from simulator.frame import Frame

SERVICE = "fake"
CHANGING = ("CreateNic", "CreateVm", "DeleteVm", "DeleteNic", "SetLabels", "SetConsole")
Labels = dict[str, str]


class FakeError(Exception):
    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message or code)
        self.code = code


class NoAnswer(Exception):
    """The reply is lost, or does not arrive in time."""


@dataclass
class Thing:
    """A VM, a disk or a network interface."""

    id: str
    account: str
    kind: str
    labels: Labels = field(default_factory=dict)
    made: float = field(default_factory=time.time)
    labelled: float = field(default_factory=time.time)
    vm: str = ""
    """The VM of a disk, or of a network interface that is in use."""
    ready: bool = True
    boots: float = 0.0
    """When a VM runs."""
    ends: float | None = None
    """When a VM that was told to go is gone."""
    request: str = ""
    """Digest of the request that a VM was made with."""
    token: str = ""
    name: str = ""
    user_data: str = ""
    console: dict[str, Any] = field(default_factory=dict)
    output: str = ""
    """What a VM's console shows."""

    @property
    def state(self) -> str:
        if self.ends is not None:
            return "terminated" if time.time() >= self.ends else "terminating"
        return "running" if time.time() >= self.boots else "pending"


class FakeApi:
    def __init__(self, frame: Frame, accounts: dict[str, str]) -> None:
        self.frame = frame
        self.accounts = accounts
        """Credentials to account."""
        self.lock = threading.Lock()
        self.slow = False
        """While set, what is made is ready only after `finish`."""
        self.boot = self.terminate = 0.0
        self.things: dict[str, Thing] = {}
        self.failed: dict[str, str] = {}
        """Id to code, of what could not be made in the end."""
        self.count = 0
        frame.join(SERVICE)

    def finish(self) -> None:
        """What is being made becomes ready now."""
        for thing in self.things.values():
            thing.ready = True

    def fail(self, code: str) -> None:
        """What is being made ends with this code, and leaves nothing."""
        for thing in [t for t in self.things.values() if not t.ready]:
            self.failed[thing.id] = code
            self._lose_disks(thing.id)
            del self.things[thing.id]

    def call(self, operation: str, credentials: str, timeout: float, **parameters: Any) -> Any:
        """Makes a call. Raises FakeError, NoAnswer."""
        rule = self.frame.intercept(SERVICE, operation, json.dumps(parameters, sort_keys=True))
        if rule is not None and rule.delay:
            time.sleep(min(rule.delay, timeout))
            if rule.delay > timeout:
                raise NoAnswer(f"no answer within {timeout:g} s")
        error, result = None, None
        try:
            account = self.accounts.get(credentials)
            if account is None:
                raise FakeError("Denied", "nobody has these credentials")
            if rule is not None and rule.code:
                raise FakeError(rule.code, rule.message or "a fault")
            with self.lock:
                result = getattr(self, f"_{operation}")(account, **parameters)
        except FakeError as e:
            error = e
        self.frame.record(SERVICE, operation, error=error and error.code, mutating=operation in CHANGING)
        if rule is not None and rule.drop:
            raise NoAnswer("the connection was cut")
        if error is not None:
            raise error
        return result

    # -- operations

    def _Whoami(self, account: str) -> str:
        return account

    def _CreateNic(self, account: str, name: str) -> Thing:
        """Idempotent by name: an existing one is returned."""
        return self.things.setdefault(name, Thing(name, account, "nic", ready=not self.slow))

    def _CreateVm(self, account: str, token: str, nic: str, name: str, labels: Labels, **asked: Any) -> Thing:
        everything = json.dumps({"nic": nic, "name": name, "labels": labels, **asked}, sort_keys=True)
        digest = hashlib.sha256(everything.encode()).hexdigest()
        former = next((t for t in self._of(account, "vm") if t.token == token), None)
        if former is not None:
            if former.state in ("terminated", "terminating"):
                raise FakeError("TokenOfDeadVm", f"the token's VM {former.id} is gone")
            if former.request != digest:
                raise FakeError("TokenReused", "the token was used with other parameters")
            return former
        self.count += 1
        vm = Thing(f"vm-{self.count}", account, "vm", dict(labels), name=name, token=token, request=digest)
        vm.user_data = asked["user_data"]
        vm.boots, vm.ready, vm.console = time.time() + self.boot, not self.slow, dict(asked["console"])
        self.things[vm.id] = vm
        self.things[nic].vm = vm.id
        for n, disk in enumerate(asked["disks"]):
            id = f"{vm.id}-disk-{n}"
            self.things[id] = Thing(id, account, "disk", dict(disk["labels"]), vm=vm.id)
        return vm

    def _GetVm(self, account: str, id: str) -> Thing:
        vm = self.things.get(id)
        if vm is None or vm.account != account or time.time() - vm.made < self.frame.lag.describe_after_create:
            raise FakeError("NotFound", f"there is no {id}")
        return vm

    def _GetOperation(self, account: str, id: str) -> str:
        """How the making of a thing goes: `running`, `done`, or the code with which it has ended."""
        if code := self.failed.get(id):
            return code
        if id not in self.things:
            raise FakeError("NotFound", f"there is no {id}")
        return "done" if self.things[id].ready else "running"

    def _ListVms(self, account: str, labels: Labels, token: str, page: int, size: int) -> tuple[list[Thing], bool]:
        """One page, and whether there are more."""
        found = [
            t
            for t in self._of(account, "vm")
            if time.time() - t.made >= self.frame.lag.describe_after_create
            and (not token or t.token == token)
            and (not labels or (time.time() - t.labelled >= self.frame.lag.tags and labels.items() <= t.labels.items()))
        ]
        return found[page * size : (page + 1) * size], len(found) > (page + 1) * size

    def _ListDisks(self, account: str, vm: str) -> list[Thing]:
        return [t for t in self._of(account, "disk") if t.vm == vm]

    def _ListNics(self, account: str, prefix: str) -> list[Thing]:
        return [t for t in self._of(account, "nic") if t.id.startswith(prefix)]

    def _DeleteVm(self, account: str, id: str) -> Thing:
        vm = self._GetVm(account, id)
        vm.ends = vm.ends or time.time() + self.terminate
        self._lose_disks(id)
        return vm

    def kill(self, id: str) -> None:
        """The VM dies behind everyone's back, and its disks with it."""
        self.things[id].ends = 0.0
        self._lose_disks(id)

    def _lose_disks(self, vm: str) -> None:
        for disk in [t for t in self.things.values() if t.kind == "disk" and t.vm == vm]:
            del self.things[disk.id]

    def _DeleteNic(self, account: str, id: str) -> None:
        nic = self.things[id]
        if nic.vm and self.things[nic.vm].state != "terminated":
            raise FakeError("InUse", f"{id} is in use by {nic.vm}")
        del self.things[id]

    def _SetLabels(self, account: str, id: str, set: Labels, remove: list[str]) -> None:
        thing = self.things[id]
        thing.labels = {k: v for k, v in {**thing.labels, **set}.items() if k not in remove}
        thing.labelled = time.time()

    def _SetConsole(self, account: str, id: str, log: bool) -> None:
        self.things[id].console["log"] = log

    def _of(self, account: str, kind: str) -> list[Thing]:
        return [t for t in self.things.values() if t.account == account and t.kind == kind]
