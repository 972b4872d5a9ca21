"""Hooks that an operator or a controller adds to a machine and removes from it while it lives, besides those of its
spec (resources/machine/manifest.py)."""

from __future__ import annotations

from pydantic import Field

from resources.base import Instant, Key, Model, Text, Value
from resources.intents import Intent
from resources.machine.manifest import Hook, HookKind, LifecycleHooks


class HookIntent(Intent):
    """`hostler hook add|remove`; signal and update `hook`. The receiver says in words what is wrong with it, so its
    fields are as they were typed."""

    name: Key
    owner: Key = ""
    """In a removal: only if it is this owner's; "": any owner's."""
    kind: HookKind | None = None
    """None: preDrain; in a removal, whichever kind has the name."""
    remove: bool = False


class HookChange(Value):
    """A hook that was added, or one of the spec that was removed."""

    kind: HookKind
    name: Key
    owner: Key
    time: Instant
    requested_by: Text = ""
    reason: Text = ""


class HookOverrides(Model):
    """The hooks of one machine, besides its spec's: a manifest or template that is applied again undoes none of it."""

    added: list[HookChange] = Field(default_factory=list)
    removed: list[HookChange] = Field(default_factory=list)
    holding: HookKind | None = None
    """What holds the machine, or held it until a moment ago: kept across runs, so that a drain which was held gets its
    whole time."""

    def effective(self, spec: LifecycleHooks, kind: HookKind) -> list[Hook]:
        """The spec's hooks without those removed, then those added; one for each name, the added one."""
        added = {c.name: Hook(name=c.name, owner=c.owner) for c in self.added if c.kind == kind}
        removed = {(c.name, c.owner) for c in self.removed if c.kind == kind}
        rest = [h for h in spec.of(kind) if h.name not in added and (h.name, h.owner) not in removed]
        return [*rest, *added.values()]
