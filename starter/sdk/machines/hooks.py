"""Hooks as HostlerClient sees them: what holds a machine before its drain and before its VM is deleted.

await hostler.hooks.add("m1", "example.com/Backup", owner="backup-operator")
for hook in await hostler.hooks.list("m1"):
    print(hook.kind, hook.name, hook.owner, hook.holds)
await hostler.hooks.remove("m1", "example.com/Backup", owner="backup-operator")
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass

from resources.machine.hooks import HookChange, HookIntent
from resources.machine.manifest import HookKind
from resources.machine.state import MachineState
from starter.sdk.machines.shelf import Machines
from starter.sdk.results import Json, Sent

WAITS = {HookKind.PRE_DRAIN: "PreDrainHook", HookKind.PRE_TERMINATE: "PreTerminateHook"}


@dataclass(frozen=True)
class Held:
    """One hook of a machine."""

    kind: HookKind
    name: str
    owner: str
    holds: bool
    """Whether the machine waits for it now."""
    added: HookChange | None = None
    """When, by whom and why it was added; None for one from the machine's spec."""

    def plain(self) -> Json:
        """The hook for programs."""
        plain: Json = {"kind": str(self.kind), "name": self.name, "owner": self.owner, "holds": self.holds}
        if self.added is not None:
            told = {"time", "requested_by", "reason"}
            plain["added"] = self.added.model_dump(mode="json", by_alias=True, include=told)
        return plain


class Hooks:
    """`HostlerClient.hooks`."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    async def list(
        self, name: str, kind: HookKind | str | None = None, *, cluster: str | None = None
    ) -> builtins.list[Held]:
        """The hooks of a machine, in the order in which they hold it. Raises NotFound, NoAnswer without a worker."""
        found = hooks_of(await self._machines.get(name, cluster=cluster))
        return [h for h in found if kind in (None, h.kind)]

    async def add(
        self,
        name: str,
        hook: str,
        *,
        owner: str,
        kind: HookKind | str = HookKind.PRE_DRAIN,
        reason: str = "",
        cluster: str | None = None,
    ) -> Sent:
        """Holds the machine's drain (`preDrain`) or its VM's deletion (`preTerminate`) until the hook is removed; one
        that is there already changes nothing.

        Raises NotFound, Refused: a bad name or owner, a name of another owner, a machine that is being deleted.
        """
        intent = HookIntent(**self._machines.connection.by(reason), name=hook, owner=owner, kind=HookKind(kind))
        return await self._machines.tell(name, "hook", intent, cluster=cluster)

    async def remove(
        self,
        name: str,
        hook: str,
        *,
        owner: str = "",
        kind: HookKind | str | None = None,
        reason: str = "",
        cluster: str | None = None,
    ) -> Sent:
        """Lets the machine go on, as far as this hook is concerned. `owner`: only if the hook is this owner's; `kind`
        is needed where both kinds have the name.

        Raises NotFound, Refused for a hook that does not exist, or of another owner.
        """
        by, which = self._machines.connection.by(reason), HookKind(kind) if kind else None
        intent = HookIntent(**by, name=hook, owner=owner, kind=which, remove=True)
        return await self._machines.tell(name, "hook", intent, cluster=cluster)


def hooks_of(state: MachineState) -> list[Held]:
    """The hooks by kind, those that hold the machine first."""
    waiting = state.status.waiting_for.reason if state.status.waiting_for else ""
    added = {(c.kind, c.name): c for c in state.hooks.added}
    return [
        Held(kind, h.name, h.owner, waiting == WAITS[kind], added.get((kind, h.name)))
        for kind in HookKind
        for h in state.hooks.effective(state.spec.lifecycle_hooks, kind)
    ]
