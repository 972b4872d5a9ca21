"""`hostler rollout approve|reject|resume --now` and `hostler freeze`, with the real pool; its machines are played."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cli.place import Place, class_yaml, eventually, place, text
from pools.behind_cli import Machines, played, pool_yaml

__all__ = ["place"]  # a fixture

APPROVAL = {"approval": {"required": True, "timeout": "1h"}}


@pytest.fixture
async def machines(place: Place) -> AsyncIterator[Machines]:
    async with played(place) as machines:
        yield machines


async def rolls(place: Place, **spec: Any) -> None:
    """A pool with these gates whose template gets a second revision."""
    (await place.run("apply", "-f", "-", stdin=text(class_yaml(), pool_yaml(**spec)))).ok()
    (await place.run("rollout", "status", "p1")).ok()
    (await place.run("rollout", "restart", "p1")).ok()


async def page(place: Place, wanted: str) -> str:
    """The pool's page, once these words are in it."""

    async def shown() -> str:
        found = (await place.run("describe", "pool", "p1")).ok()
        return found if wanted in found else ""

    return await eventually(shown, wanted)


async def test_a_person_approves_a_rollout(place: Place, machines: Machines) -> None:
    await rolls(place, **APPROVAL)
    stands = await place.run("rollout", "status", "p1")
    assert stands.code == 1
    assert "is blocked: Approval: Revision 2 waits for a person's approval and is aborted at" in stands.err
    assert "hostler rollout approve p1 --cluster" in stands.err
    assert "revision 2: asked for since" in await page(place, "Approval")
    wrong = await place.run("rollout", "approve", "p1", "--revision", "3")
    assert (wrong.code, "revision 2, not 3" in wrong.err) == (1, True)
    approved = (await place.run("rollout", "approve", "pool/p1", "--reason", "tried it")).ok()
    assert approved == "machinedeployment/p1 approved; the rollout of revision 2 continues\n"
    (await place.run("rollout", "status", "p1")).ok()
    assert {m.revision for m in machines.there.values()} == {2}
    events = (await place.run("events", "pool", "p1")).ok()
    assert "Approved" in events
    assert "tried it" in events
    history = (await place.run("rollout", "history", "p1", "--revision", "2")).ok()
    assert "Approved" in history


async def test_a_person_rejects_a_rollout(place: Place, machines: Machines) -> None:
    await rolls(place, **APPROVAL)
    await page(place, "Approval")
    assert "rejected; " in (await place.run("rollout", "reject", "p1", "--reason", "not today")).ok()
    again = await place.run("rollout", "approve", "p1")
    assert (again.code, "is aborted" in again.err) == (1, True)
    assert "is blocked: RolloutAborted" in (await place.run("rollout", "status", "p1")).err
    assert {m.revision for m in machines.there.values()} == {1}


async def test_a_window_is_shown_and_opened(place: Place, machines: Machines) -> None:
    begin = datetime.now(UTC) + timedelta(hours=2)
    window = {"begin": f"{begin:%H:%M}", "end": f"{begin + timedelta(hours=1):%H:%M}"}
    await rolls(place, maintenance={"windows": [window]})
    shown = await page(place, "next window begins at")
    assert f"daily {window['begin']}-{window['end']} UTC\n" in shown
    assert "next: " in shown
    once = await place.run("rollout", "status", "p1", "--no-watch")
    assert (once.code, "MaintenanceWindow" in once.out) == (0, True), "it passes on its own"
    assert "MaintenanceWindow" in (await place.run("tree", "pool", "p1")).ok()
    late = await place.run("rollout", "resume", "p1", "--for", "1h")
    assert (late.code, "--for needs --now" in late.err) == (2, True)
    opened = (await place.run("rollout", "resume", "p1", "--now", "--for", "1h")).ok()
    assert "rollouts and hot updates may begin until" in opened
    (await place.run("rollout", "status", "p1")).ok()
    assert "opened by a person until" in await page(place, "opened")


async def test_a_change_is_held_by_the_windows_that_come_with_it(place: Place, machines: Machines) -> None:
    """A tag, a new image and the windows that are to hold them back, in one `apply`: the pool takes them together."""
    (await place.run("apply", "-f", "-", stdin=text(class_yaml(), pool_yaml()))).ok()
    (await place.run("rollout", "status", "p1")).ok()
    await machines.known_to("c1")
    begin = datetime.now(UTC) + timedelta(hours=2)
    window = {"begin": f"{begin:%H:%M}", "end": f"{begin + timedelta(hours=1):%H:%M}"}
    given = pool_yaml(maintenance={"windows": [window]})
    (await place.run("apply", "-f", "-", stdin=text(class_yaml(team="b"), given))).ok()
    assert "a hot update of 3 machines waits: next window begins at" in await page(place, "MaintenanceWindow")
    assert machines.told == [], "neither the pool, which had it from the command, nor its machines"
    wanted = text(class_yaml(team="b", ami="ami-2"), pool_yaml(maintenance={"windows": [window]}, paused=True))
    assert "revision 2 replaces 3 machines" in (await place.run("apply", "-f", "-", stdin=wanted)).ok()
    assert "The rollout is paused" in await page(place, "RolloutPaused")
    assert machines.told == []
    assert {m.revision for m in machines.there.values()} == {1}


async def test_a_pool_is_frozen(place: Place, machines: Machines) -> None:
    await rolls(place, **APPROVAL)
    frozen = (await place.run("freeze", "pool", "p1", "--for", "2h", "--reason", "sale")).ok()
    assert "frozen since" in frozen
    shown = await page(place, "Frozen:")
    assert ": sale" in shown
    approved = (await place.run("rollout", "approve", "p1")).ok()
    assert "it waits: Frozen since" in approved
    assert {m.revision for m in machines.there.values()} == {1}
    assert "no longer frozen" in (await place.run("unfreeze", "pool/p1")).ok()
    (await place.run("rollout", "status", "p1")).ok()
    for words, wrong in ((("freeze", "pool"), "give the names"), (("freeze", "all", "x"), "takes no names")):
        ran = await place.run(*words)
        assert (ran.code, wrong in ran.err) == (2, True)
