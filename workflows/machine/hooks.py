"""Hooks: what holds a machine before its drain and before its VM is deleted, until the one who asked for it is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from temporalio import workflow

from workflows.machine.entity import MachineEntity

with workflow.unsafe.imports_passed_through():
    from planners.machine.hooks import (
        CONDITION,
        HELD,
        NAMED,
        forget,
        is_own,
        kind_of,
        names,
        refusal,
        remove_command,
        taken,
    )
    from resources.machine.hooks import HookIntent
    from resources.machine.manifest import Hook, HookKind
    from resources.machine.state import Deletion, OperationState, OperationType, Phase
    from resources.words import by_whom

Waiter = Callable[[Callable[[], bool]], Awaitable[None]]
"""Waits until the condition holds; it may end earlier."""


def hooks_of(m: MachineEntity, kind: HookKind) -> list[Hook]:
    return m.s.hooks.effective(m.s.spec.lifecycle_hooks, kind)


def show(m: MachineEntity) -> None:
    """Sets the conditions that say what will hold the machine, from the first hook to the last and not only once it is
    held."""
    m.s.hooks = forget(m.s.spec.lifecycle_hooks, m.s.hooks)
    for kind, condition in CONDITION.items():
        if hooks := hooks_of(m, kind):
            m.condition(condition, "HookPresent", f"{kind} hooks hold up {HELD[kind]}: {names(hooks)}")
        else:
            m.drop_condition(condition)


# -- holding ----------------------------------------------------------------------------------------------------------


async def hold(machine: MachineEntity, kind: HookKind, turn: Callable[[], None], wait: Waiter) -> bool:
    """Waits until no hook of the kind is left; returns whether one has held the machine. Without hooks it does nothing.

    `turn` is called after each piece of news: a deletion of a machine that Failed begins then. `wait` is the phase's
    own, which does what a machine on its way out does meanwhile; a hold may last for weeks.
    """
    state = machine.s
    while machine.leaving and (held := hooks_of(machine, kind)):
        turn()
        _say(machine, kind, held)
        await wait(partial(_news, machine, kind, held, state.deletion))
        await machine.renew_if_due()  # a safe point: no call is in flight
    # Not only what this run has seen: the last hook may have gone in the last moment of the former one.
    was_held = state.hooks.holding == kind
    if was_held:
        state.hooks.holding = None
    return was_held


def _news(m: MachineEntity, kind: HookKind, held: list[Hook], deletion: Deletion | None) -> bool:
    return hooks_of(m, kind) != held or m.s.deletion != deletion or not m.leaving or m.renewal_due


def _say(machine: MachineEntity, kind: HookKind, held: list[Hook]) -> None:
    state = machine.s
    deletion = state.deletion
    others = [h for h in held if not is_own(h, state.owner)]
    if others:
        commands = ", ".join(f"`{remove_command(state.name, state.cluster, kind, h)}`" for h in others[:NAMED])
        force = "; force does not skip hooks" if deletion and deletion.force else ""
        words = f"{HELD[kind]} is held up by {names(held)}{force}; when their work is done: {commands}"
        reason = "PreDrainHook" if kind is HookKind.PRE_DRAIN else "PreTerminateHook"
    else:
        words = f"{HELD[kind]} waits until its {state.owner} has another machine ready in its place"
        reason = "HeldByOwner"
    operation = OperationType.DRAIN if kind is HookKind.PRE_DRAIN else OperationType.DELETE
    machine.operation(operation, OperationState.PROCESSING, words)
    machine.waiting(reason, words)
    if state.hooks.holding != kind:
        state.hooks.holding = kind
        machine.note(reason, words)
        machine.tell()  # on the Node too: its owner looks there (OpenShift's event DrainBlocked)


# -- the intent -------------------------------------------------------------------------------------------------------


def refuse(m: MachineEntity, intent: HookIntent) -> str:
    return refusal(m.s.name, m.s.spec.lifecycle_hooks, m.s.hooks, intent, m.s.deletion is not None, m.s.owner)


def take(machine: MachineEntity, intent: HookIntent) -> str:
    state, spec = machine.s, machine.s.spec.lifecycle_hooks
    kind = kind_of(spec, state.hooks, intent)
    before = hooks_of(machine, kind)
    state.hooks = taken(state, intent, workflow.now())
    after = hooks_of(machine, kind)
    if after == before:
        return f"unchanged: machine {state.name} already has the {kind} hook {intent.name} of {intent.owner}"
    show(machine)
    (hook,) = (h for h in (before if intent.remove else after) if h.name == intent.name)
    words = f"{kind} hook {hook.name} of {hook.owner}"
    by = by_whom(intent.requested_by, intent.reason)
    if intent.remove:
        machine.note("HookRemoved", f"{words} was removed{by}")
        left = f"is still held up by {names(after)}" if after else "is no longer held up"
        return f"{words} is removed; {HELD[kind]} {left}"
    machine.note("HookAdded", f"{words} was added{by}")
    return f"{words} is added; {_effect(machine, kind)}"


def _effect(m: MachineEntity, kind: HookKind) -> str:
    """What a hook that has just been added will do."""
    if kind is HookKind.PRE_DRAIN and m.status.phase == Phase.FAILED and m.s.drain_began is not None:
        return "the drain of this Failed machine has already begun and is not held up; later drains are"
    return f"it holds up {HELD[kind]} until it is removed"
