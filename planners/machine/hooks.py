"""Which hooks hold a machine, and what a change to them means (OpenShift, machine/v1beta1: keyed by name, one owner
each, only removals once the machine is being deleted)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime

from resources.machine.hooks import HookChange, HookIntent, HookOverrides
from resources.machine.manifest import HOOKS_MOST, Hook, HookKind, LifecycleHooks, check_hook_name, check_hook_owner
from resources.machine.state import MachineState
from resources.owner import Owner

HELD = {HookKind.PRE_DRAIN: "the drain", HookKind.PRE_TERMINATE: "the deletion of the VM"}
CONDITION = {HookKind.PRE_DRAIN: "Drainable", HookKind.PRE_TERMINATE: "Terminable"}
"""OpenShift's names; a hook makes the condition false."""
NAMED = 3
"""How many hooks a message names; `hostler hook list` has them all."""


def refusal(
    machine: str,
    spec: LifecycleHooks,
    hooks: HookOverrides,
    intent: HookIntent,
    deleting: bool,
    owner: Owner | None = None,
) -> str:
    """Why an intent is refused, and what to do; "" where nothing speaks against it. `owner`: the machine's."""
    if intent.remove:
        return _no_removal(machine, spec, hooks, intent, owner)
    try:
        check_hook_name(intent.name)
        check_hook_owner(intent.owner)
    except ValueError as e:
        return str(e)
    kind = kind_of(spec, hooks, intent)
    there = _named(hooks.effective(spec, kind), intent.name)
    if there is not None and there.owner == intent.owner:
        return ""  # it changes nothing
    if deleting:
        return f"machine {machine} is being deleted; its hooks can only be removed now"
    if there is not None:
        return (
            f"machine {machine} has the {kind} hook {there.name} already, owned by {there.owner}, and a hook has one "
            "owner: use another name, or remove that hook first"
        )
    if sum(c.kind == kind for c in hooks.added) >= HOOKS_MOST:
        return f"{HOOKS_MOST} {kind} hooks are on machine {machine}, which is the maximum; remove hooks that are done"
    return ""


def _no_removal(
    machine: str, spec: LifecycleHooks, hooks: HookOverrides, intent: HookIntent, owner: Owner | None
) -> str:
    kinds = [intent.kind] if intent.kind else list(HookKind)
    found = [(k, h) for k in kinds if (h := _named(hooks.effective(spec, k), intent.name))]
    if not found:
        kind = f"{intent.kind} hook" if intent.kind else "hook"
        there = "; ".join(f"{k} {names(of)}" for k in HookKind if (of := hooks.effective(spec, k)))
        return f"machine {machine} has no {kind} {intent.name[:300]!r}; it has {there or 'none at all'}"
    if len(found) > 1:
        return f"machine {machine} has the hook {intent.name} of both kinds; give --kind: {' or '.join(HookKind)}"
    ((kind, hook),) = found
    if intent.owner and intent.owner != hook.owner:
        return (
            f"the {kind} hook {hook.name} of machine {machine} belongs to {hook.owner}, not to {intent.owner}; to "
            f"remove it anyway, give its owner: {hook.owner}"
        )
    if owner is not None and is_own(hook, owner) and intent.requested_by != str(owner):
        return (
            f"the {kind} hook {hook.name} is of the {owner.word} that machine {machine} belongs to, and only that "
            f"removes it, once another machine is ready in its place: `hostler describe {owner.word}` says what it "
            f"waits for. `hostler delete machine {machine} --force` does not wait for another one"
        )
    return ""


def is_own(hook: Hook, owner: Owner | None) -> bool:
    """Whether the hook is the one by which the machine's owner holds it: no person's to remove."""
    return owner is not None and hook.owner == owner.user


def kind_of(spec: LifecycleHooks, hooks: HookOverrides, intent: HookIntent) -> HookKind:
    """The kind that an intent means, if it is not refused."""
    if intent.kind or not intent.remove:
        return intent.kind or HookKind.PRE_DRAIN
    return next((k for k in HookKind if _named(hooks.effective(spec, k), intent.name)), HookKind.PRE_DRAIN)


def change(spec: LifecycleHooks, hooks: HookOverrides, intent: HookIntent, now: datetime) -> HookOverrides:
    """The hooks after an intent that is not refused."""
    kind = kind_of(spec, hooks, intent)
    of_spec, there = _named(spec.of(kind), intent.name), _named(hooks.effective(spec, kind), intent.name)
    if not intent.remove and there is not None:
        return hooks
    owner = there.owner if there else intent.owner
    made = HookChange(
        kind=kind, name=intent.name, owner=owner, time=now, requested_by=intent.requested_by, reason=intent.reason
    )
    if intent.remove:
        ours = of_spec is not None and of_spec.owner == owner
        removed = [*_without(hooks.removed, made), made] if ours else hooks.removed
        return hooks.model_copy(update={"added": _without(hooks.added, made), "removed": removed})
    if of_spec is not None and of_spec.owner == owner:  # removed, and now wanted again
        return hooks.model_copy(update={"removed": _without(hooks.removed, made)})
    return hooks.model_copy(update={"added": [*hooks.added, made]})


def taken(s: MachineState, intent: HookIntent, now: datetime) -> HookOverrides:
    """A machine's hooks after an intent; unchanged where it is refused. Also for readers of a history who have nobody
    to ask."""
    spec = s.spec.lifecycle_hooks
    if refusal(s.name, spec, s.hooks, intent, s.deletion is not None, s.owner):
        return s.hooks
    return change(spec, s.hooks, intent, now)


def forget(spec: LifecycleHooks, hooks: HookOverrides) -> HookOverrides:
    """Drops removals that are over. A removal lasts as long as the spec has the hook; a hook that comes back later, or
    with another owner, is a new one and holds."""
    removed = [c for c in hooks.removed if Hook(name=c.name, owner=c.owner) in spec.of(c.kind)]
    return hooks if removed == hooks.removed else hooks.model_copy(update={"removed": removed})


def names(hooks: Sequence[Hook]) -> str:
    """`A of x, B of y`, as many as fit in a message."""
    more = [f"{len(hooks) - NAMED} more"] if len(hooks) > NAMED else []
    return ", ".join([f"{h.name} of {h.owner}" for h in hooks[:NAMED]] + more)


def remove_command(machine: str, cluster: str, kind: HookKind, hook: Hook) -> str:
    """The command for a person who has done what the hook is there for."""
    owner = shlex.quote(hook.owner)
    return f"hostler hook remove {machine} {hook.name} --kind {kind} --owner {owner} --cluster {cluster}"


def _named(hooks: Sequence[Hook], name: str) -> Hook | None:
    return next((h for h in hooks if h.name == name), None)


def _without(changes: Sequence[HookChange], one: HookChange) -> list[HookChange]:
    return [c for c in changes if (c.kind, c.name) != (one.kind, one.name)]
