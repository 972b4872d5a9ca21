"""What a cluster says of itself: its words for people, and its page in Temporal's web UI."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from planners.cluster.accounts import classes_of
    from resources.base import format_duration, whole_seconds
    from resources.cluster.state import ClusterState, Ended, Pause
    from resources.markdown import Markdown, code, heading, items, join, page, strong
    from resources.owner import Owner, by_word

SOME = 5
"""How many names a message lists."""


def phase_of(s: ClusterState) -> str:
    if s.api is not None and not s.api.reachable:
        return "APIRefused" if s.api.refused else "APIUnreachable"
    return "Parked" if s.parked else "Paused" if s.pause else "Watching"


def refusal(s: ClusterState, left: str = "") -> str | None:
    """Why it cannot be removed. `left`: what visibility lists of it."""
    known = [_some(set(s.machines.values()), len(s.machines), "machine")] if s.machines else []
    known += [_some(names, len(names), word) for word, names in _by_word(s.pools).items()]
    words = left or " and ".join(known)
    return f"cluster {s.name} still has {words}; delete them first" if words else None


def _by_word(owners: Iterable[str]) -> dict[str, list[str]]:
    """The names of the cluster's owners of machines, by what people call them."""
    return {word: names for word, names in by_word(Owner.read(name).user for name in owners).items() if names}


def _some(names: Collection[str], number: int, kind: str) -> str:
    some = ", ".join(sorted(names)[:SOME]) + (", …" if len(names) > SOME else "")
    return f"{number} {kind}{'s' if number > 1 else ''} ({some})"


def gap_words(ended: Ended, now: datetime) -> str:
    """Since when nobody watched the cluster, and what that means now."""
    at = f" at {ended.time:%Y-%m-%d %H:%M:%S} UTC" if ended.time else ""
    after = f" after {format_duration(whole_seconds(now - ended.time))}" if ended.time else ""
    words = f"somebody ended the workflow{at} ({ended.how}); it runs again{after}"
    lost = "; its earlier state could not be read: if the cluster was paused, it no longer is" if ended.unread else ""
    return f"{words}: every machine gets the current state of its Node and VM{lost}"


def pause_words(pause: Pause) -> str:
    """Since when it is paused, by whom and why."""
    by = f" by {pause.requested_by}" if pause.requested_by else ""
    why = f": {pause.reason}" if pause.reason else ""
    return f"since {pause.time:%Y-%m-%d %H:%M:%S} UTC{by}{why}"


def held(owners: Collection[str]) -> str:
    """What a pause means, as the answer to it."""
    if not owners:
        return "it has no pools now; new ones will do nothing"
    kinds = _by_word(owners).items()
    words = " and ".join(word if len(names) == 1 else f"{len(names)} {word}s" for word, names in kinds)
    return f"its {words} {'does' if len(owners) == 1 else 'do'} nothing"


def not_told(owners: Collection[str]) -> str:
    """Which pools have not heard of a pause, or of its end, after a few seconds; "" among them stands for pools that
    are not known yet."""
    named = [_some(names, len(names), word) for word, names in _by_word(filter(None, owners)).items()]
    words = f"not told yet: {' and '.join(named)}" if named else "its pools are still being searched for"
    return f"{words}; it is tried again until it succeeds"


def details(s: ClusterState) -> Markdown:
    """The state of the cluster, in Markdown for Temporal's web UI."""
    api = s.api
    words = "not known yet" if api is None else api.words
    lines = [heading(f"Cluster {s.name}: {phase_of(s)}")]
    if s.pause:
        again = code(f"hostler resume cluster {s.name}")
        lines.append(join(strong("Paused"), f" {pause_words(s.pause)}. To resume: ", again))
    facts = [f"API server: {words}"]
    facts += [f"Pools: {', '.join(sorted(s.pools))}"] if s.pools else []
    for key, cloud in sorted(s.clouds.items()):
        whose = ", ".join(name for name in classes_of(s, key) if name)
        facts.append(f"{key}{f' (classes {whose})' if whose else ''}: {cloud.words}")
    return page(*lines, items(facts))
