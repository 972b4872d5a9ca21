"""What is in the way of a drain, as `describe` and the UI show it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from activities.draining.memory import Refused

BLOCKERS_SHOWN = 3


def blocker(
    gone: int, total: int, blocked: Sequence[tuple[str, Refused]], volumes: Sequence[str], deadline: datetime | None
) -> str:
    """`blocked`: pods by name with why. `volumes`: what is waited for of them, in words."""
    parts = [f"{gone} of {total} pods gone"]
    parts += [f"{pod} {refused.words}" for pod, refused in blocked[:BLOCKERS_SHOWN]]
    if len(blocked) > BLOCKERS_SHOWN:
        parts.append(f"{len(blocked) - BLOCKERS_SHOWN} more blocked")
    text = "; ".join([*parts, *volumes])
    if deadline:
        text += f", force at {time_of_day(deadline)}"
    advice = dict.fromkeys(refused.advice for _, refused in blocked if refused.advice)  # once for each budget
    return "; ".join([text, *list(advice)[:BLOCKERS_SHOWN]])


def moving(volumes: Sequence[str], pod: str, until: datetime, *, away: bool = False) -> str:
    """`away`: they are detached, and not yet attached to another node."""
    of = f" of {pod}" if pod else ""
    more = f" and {len(volumes) - 1} more" if len(volumes) > 1 else ""
    to = "attach to another node" if away else "detach"
    return f"waiting for volume {volumes[0]}{of}{more} to {to} (until {time_of_day(until)})"


def time_of_day(time: datetime) -> str:
    """14:05, 14:03:20."""
    return f"{time:%H:%M:%S}".removesuffix(":00")
