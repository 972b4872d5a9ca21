"""When a wait for a machine is over, by the server's records. Its workflow is asked only where they do not say enough:
whether it goes for good, or in order to be made again (`recreate`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from resources.base import format_duration
from resources.machine.state import Phase
from resources.words import utc
from starter.sdk.errors import Refused
from starter.sdk.results import Description, Life, since

WAIT_POLL = 0.5
"""Seconds between two looks, each one cheap read of the server's records."""
DELETED = "deleted"


async def reached(
    life: Life, first: Life, target: str, unlike: str | None, describe: Callable[[], Awaitable[Description]]
) -> bool:
    """Whether the target is reached. `target`: a phase or DELETED; `unlike` as in `HostlerClient.wait`. Raises Refused
    when it can no longer be reached."""
    name = life.summary.name
    another = life.first_run_id != first.first_run_id  # a new machine has taken the name
    over = another or not life.running
    if target == DELETED:
        if over and not another and life.status != "COMPLETED":
            raise Refused(
                f"the workflow of machine {name} ended as {life.status}: its resources may still exist: `hostler "
                f"adopt machine {name} --cluster {life.summary.cluster}` takes over its VM"
            )
        return over
    if over:
        raise Refused(f"machine {name} is gone{since(life.closed)}; it never became {target}")
    phase = _phase(life)
    there = phase == target
    lost = not there and (phase == Phase.TERMINATING or (phase == Phase.FAILED and target != Phase.TERMINATING))
    if there and unlike is None:
        return True
    if not (there or lost):
        return False
    found = await describe()
    if _comes_back(found) or _phase(found.life) != phase or _newer(found, phase) or _mends(found, target):
        return False
    if there and found.state is not None and found.state.uid != unlike:
        return True
    if there:
        raise Refused(f"machine {name} is {_where(life)} and is not being recreated: hostler events machine {name}")
    raise Refused(f"machine {name} is {_where(life)} and will not become {target}: hostler describe machine {name}")


def late(life: Life, until: str, unlike: str | None, timeout: timedelta | None) -> str:
    """The message for a machine that is not there in time."""
    after = f", after {format_duration(timeout)}" if timeout else ""
    what = f"not {until}" if unlike is None else f"not yet {until} as a new one"
    yet = until_when(life) or "it may get there yet"
    return f"machine {life.summary.name} is {_where(life)}, {what}{after}; {yet}"


def _comes_back(found: Description) -> bool:
    """Whether it goes, or will go, and a new life follows."""
    deletion = found.state.deletion if found.state else None
    return deletion is not None and deletion.recreate


def _mends(found: Description, target: str) -> bool:
    """Whether it has Failed, is kept, and may be well again in time. A machine that never was Running may not: nobody
    has made its Node ready."""
    ran = found.state is None or found.no_answer or found.state.was_running
    return bool(until_when(found.life)) and target in (Phase.RUNNING, Phase.UNKNOWN) and bool(ran)


def until_when(life: Life) -> str:
    """What a preserved Failed machine waits for; "" for any other."""
    until = life.summary.preserved_until
    if until is None or _phase(life) != Phase.FAILED:
        return ""
    return f"it is kept until {utc(until)}, and becomes Running if its Node is healthy again by then"


def _newer(found: Description, phase: str) -> bool:
    """Whether the machine itself is further than its attributes, which follow when it has something to wait for."""
    return not found.no_answer and found.state is not None and str(found.state.status.phase) != phase


def _phase(life: Life) -> str:
    return life.summary.phase.split(":")[0]  # Running:Preserved is Running


def _where(life: Life) -> str:
    return life.summary.phase + (f" ({life.summary.reason})" if life.summary.reason else "") or life.status
