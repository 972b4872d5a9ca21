"""Flows of a class and its machine: what changes on the VM that runs, and a class from its start to its end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from lifekit import Stack, eventually
from machine.classes import LiveClass, refuse, relent, start_by_hand, waiting

from faults.flow import Flow, flow, mark, new_name, running
from faults.invariants import (
    Witness,
    check_i1,
    check_i5,
    check_i6,
    check_i7,
    check_i8,
    check_i10,
    check_i11,
    check_marks,
    check_ready,
    check_tags,
)
from faults.sites import SITES
from faults.strike import arm, disturbed
from resources.errors import ErrorClass
from resources.journal import Happening
from resources.machine_class.state import SILENCE, UpdateState
from resources.names import class_id, machine_id

BEFORE, AFTER = {"team": "a", "old": "1"}, {"team": "b"}
TRIED_AGAIN, LATER = timedelta(seconds=4), timedelta(seconds=12)
"""The wait after a failure; later in an undisturbed run, which must not fail twice."""
SILENT = timedelta(seconds=4)
"""After this time a class asks a machine again that it has not heard from; in an undisturbed run after minutes, as
usual."""

CLASSES: dict[str, Flow] = {}


@flow(CLASSES, "tell_users", "report_to_class", "update_machine", "tell_node", "report_to_class 2")
async def hot_update(stack: Stack) -> None:
    """A tag changes, a tag goes, an option changes: on VM, NIC and disk, and nothing else of them (field case P69)."""
    of, seen = await machine_of_class(stack)
    arm(stack)
    await of.apply(**fields(stack, AFTER, changed=True))
    await updated(stack, seen, of, 2)
    check_carries(stack, seen, AFTER, changed=True)
    await end(stack, seen, of)


@flow(CLASSES, "update_machine", "report_to_class", "report_to_class 2", "update_machine 2", "report_to_class 3")
async def hot_update_of_a_failing_kind(stack: Stack) -> None:
    """One resource of three refuses for a while: the others get their change, and it is tried again in time."""
    wait = TRIED_AGAIN if disturbed(stack) else LATER
    of, seen = await machine_of_class(stack, waits=dict.fromkeys(ErrorClass, wait))  # a fault may be the first failure
    rule = refuse(stack, seen.last.uid, "UnauthorizedOperation")
    arm(stack)
    await of.apply(**fields(stack, AFTER, changed=True))
    failed = await failure(stack, seen)
    relent(stack, rule)
    await updated(stack, seen, of, 2)
    check_i7(seen.last.journal, "Updated", failed.time + wait)
    check_carries(stack, seen, AFTER, changed=True)
    await end(stack, seen, of)


@flow(CLASSES, "update_machine", "update_machine 2")
async def hot_update_set_back(stack: Stack) -> None:
    """It fails half-way, and the class becomes what it was: what was changed already is changed back."""
    of, seen = await machine_of_class(stack, waits={ErrorClass.INVALID: timedelta(hours=1)})
    rule = refuse(stack, seen.last.uid, "TagLimitExceeded")
    arm(stack)
    await of.apply(**fields(stack, AFTER, changed=True))
    await failure(stack, seen)
    relent(stack, rule)
    await of.apply(**fields(stack, BEFORE))
    await updated(stack, seen, of, 3)
    check_carries(stack, seen, BEFORE)
    await end(stack, seen, of)


@flow(CLASSES, "find_users", "ask_class", "tell_users", "report_to_class", "report_to_class 2", "forget_machine")
async def class_life(stack: Stack) -> None:
    """Started; asked by a machine that was started with plain JSON; changed; deletion refused while used; deleted."""
    name, of = new_name(), new_class(stack)
    arm(stack)
    await of.start()
    await eventually(of.state, lambda s: s.searched or s.journal, "the search for users, before there is one")
    await start_by_hand(stack, name, of)
    seen = Witness([await stack.born(name)])
    assert "ClassTaken" in [h.reason for h in seen.last.journal], seen.last.journal
    check_ready(stack, seen)
    await of.known(name)
    mark(stack, seen)
    await of.apply(**fields(stack, AFTER, changed=True))
    await updated(stack, seen, of, 2)
    check_carries(stack, seen, AFTER, changed=True)
    assert f"is used by 1 machine ({name})" in await of.refusal()
    await end(stack, seen, of)
    assert (await of.delete()).endswith("is gone")
    await of.handle.result()
    await check_i11(stack, class_id(stack.cluster, of.name))


def fields(stack: Stack, tags: dict[str, str], changed: bool = False) -> dict[str, Any]:
    """Fields of the class at this cloud: these tags, and another hot field as before, or changed."""
    return SITES[stack.home].fields(tags, changed)


def new_class(stack: Stack) -> LiveClass:
    return LiveClass(stack, SILENT if disturbed(stack) else SILENCE, **fields(stack, BEFORE))


async def machine_of_class(stack: Stack, waits: dict[ErrorClass, timedelta] | None = None) -> tuple[LiveClass, Witness]:
    """A class and a machine of it that lives and carries somebody's marks; `waits`: after failures."""
    of, name = new_class(stack), new_name()
    await of.start()
    seen = await running(stack, name, timings=waiting(stack, waits or {}), provider_spec=fields(stack, BEFORE))
    await of.known(name)
    mark(stack, seen)
    return of, seen


async def failure(stack: Stack, seen: Witness) -> Happening:
    """Waits for the first failure of a hot update."""

    async def look() -> Happening | None:
        journal = (await stack.state(seen.last.name)).journal
        return next((h for h in journal if h.reason == "UpdateFailed"), None)

    found = await eventually(look, what="the failure")
    assert found is not None
    return found


async def updated(stack: Stack, seen: Witness, of: LiveClass, generation: int) -> None:
    """Waits until the class knows its one user, and what it carries."""
    name = seen.last.name
    state = await of.updated(generation)
    assert (set(state.users), state.users[name].state) == ({name}, UpdateState.UPDATED)
    assert state.last_updated_generation == generation
    assert not state.troubles
    seen.states.append(await stack.state(name))
    status = seen.last.status
    assert (status.phase, status.applied_generation) == (seen.states[0].status.phase, generation)
    assert status.update_trouble is None


def check_carries(stack: Stack, seen: Witness, tags: dict[str, str], changed: bool = False) -> None:
    """No VM was replaced, and each resource is as the class and somebody else want it."""
    first, last = seen.states[0], seen.last
    assert (last.uid, last.status.provider_id) == (first.uid, first.status.provider_id), "I1: it is another VM"
    check_i1(stack, seen)
    check_i5(stack, seen)
    check_i8(stack, seen)
    check_tags(stack, seen, tags)
    assert SITES[stack.home].changed(stack, str(last.status.provider_id).rsplit("/", 1)[-1]) is changed
    check_marks(stack, seen)


async def end(stack: Stack, seen: Witness, of: LiveClass) -> None:
    """The machine is deleted: nothing of it is left, and its class no longer knows it."""
    name = seen.last.name
    await stack.delete(name)
    state = await of.state()
    assert not state.users, f"the class still knows {sorted(state.users)}"
    check_i1(stack, seen)
    check_i6(stack, seen)
    check_i8(stack, seen)
    check_i10(stack, seen)
    for id in (machine_id(stack.cluster, name), class_id(stack.cluster, of.name)):
        await check_i11(stack, id)
