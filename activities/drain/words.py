"""What is in the way of a drain, as `describe` and the UI show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from activities.drain.memory import RefusedEviction

SHOWN = 3


@dataclass(frozen=True)
class Scene:
    """What a pass has found: pods by name."""

    now: datetime
    gone: int
    total: int
    blocked: Sequence[tuple[str, RefusedEviction]] = ()
    """Blocked pods, with the reason."""
    going: Sequence[tuple[str, datetime]] = ()
    """Pods that are terminating and waited for, with the ends of their grace periods."""
    volumes: Sequence[str] = ()
    """What the volumes are waited for, in words."""
    queued: int = 0
    """Pods with volumes whose turn comes when `before` has arrived."""
    before: str = ""
    deadline: datetime | None = None


def blocker(scene: Scene) -> str:
    blocked, going = scene.blocked, sorted(scene.going, key=lambda pod: pod[1])
    parts = [f"{scene.gone} of {scene.total} pods gone"]
    parts += [f"{pod} {refused.words}" for pod, refused in blocked[:SHOWN]]
    if len(blocked) > SHOWN:
        parts.append(f"{len(blocked) - SHOWN} more blocked")
    parts += [f"{pod} is terminating, {_grace(end, scene.now)}" for pod, end in going[:SHOWN]]
    if len(going) > SHOWN:
        parts.append(f"{len(going) - SHOWN} more terminating")
    parts += scene.volumes
    if scene.queued:
        wait = "pod with volumes waits" if scene.queued == 1 else "pods with volumes wait"
        parts.append(f"{scene.queued} {wait} for {scene.before}")
    text = "; ".join(parts)
    if scene.deadline:
        text += f", force at {moment(scene.deadline, scene.now)}"
    advice = dict.fromkeys(refused.advice for _, refused in blocked if refused.advice)  # once for each budget
    return "; ".join([text, *list(advice)[:SHOWN]])


def first_of(stuck: Sequence[str]) -> str:
    more = [f"{len(stuck) - SHOWN} more"] if len(stuck) > SHOWN else []
    return "; ".join([*stuck[:SHOWN], *more])


def _grace(end: datetime, now: datetime) -> str:
    return f"{'past its grace of' if now > end else 'grace until'} {moment(end, now)}"


def moving(volumes: Sequence[str], pod: str, until: datetime, *, away: bool = False) -> str:
    """`away`: the volumes are detached, and not yet attached to another node."""
    of = f" of {pod}" if pod else ""
    more = f" and {len(volumes) - 1} more" if len(volumes) > 1 else ""
    to = "attach to another node" if away else "detach"
    return f"waiting for volume {volumes[0]}{of}{more} to {to} (until {time_of_day(until)})"


def moment(time: datetime, now: datetime) -> str:
    """The time of day, with the date if it is not today's."""
    return time_of_day(time) if time.date() == now.date() else f"{time:%Y-%m-%d} {time_of_day(time)}"


def time_of_day(time: datetime) -> str:
    """The time of day, short, for it stands many times in one line: 14:05 UTC, 14:03:20 UTC."""
    return f"{f'{time:%H:%M:%S}'.removesuffix(':00')} UTC"
