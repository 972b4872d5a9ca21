"""Hooks that an operator or a controller adds to a machine and removes from it while it lives, beside those of its spec
(resources/machine_manifest.py).
"""

from __future__ import annotations

from pydantic import Field

from resources.base import Instant, Key, Model, Text, Value
from resources.machine_manifest import Hook, HookKind, LifecycleHooks
from resources.messages import Intent


class HookIntent(Intent):
    """`hostler hook add|remove`; signal and update `hook`. What is wrong with it is said in words by its receiver, so
    its fields are as they were typed."""

    name: Key
    owner: Key = ""
    """Of a removal: only if it is this owner's; "": whoever's."""
    kind: HookKind | None = None
    """None: preDrain; of a removal, whichever kind has the name."""
    remove: bool = False


class HookChange(Value):
    """One that was added, or one of the spec that was removed."""

    kind: HookKind
    name: Key
    owner: Key
    time: Instant
    requested_by: Text = ""
    reason: Text = ""


class Hooks(Model):
    """Of one machine, beside its spec's: a manifest or template that is applied again undoes none of it."""

    added: list[HookChange] = Field(default_factory=list)
    removed: list[HookChange] = Field(default_factory=list)
    holding: HookKind | None = None
    """What holds the machine, or held it until a moment ago: known over a new run, so that a drain which was held gets
    its whole time."""

    def effective(self, spec: LifecycleHooks, kind: HookKind) -> list[Hook]:
        """The spec's without those that were removed, then those that were added; one of each name, the added one."""
        added = {c.name: Hook(name=c.name, owner=c.owner) for c in self.added if c.kind == kind}
        removed = {(c.name, c.owner) for c in self.removed if c.kind == kind}
        rest = [h for h in spec.of(kind) if h.name not in added and (h.name, h.owner) not in removed]
        return [*rest, *added.values()]
