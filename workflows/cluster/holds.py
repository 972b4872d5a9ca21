"""What a person holds up in all pools of a cluster: a pause stops everything they do on their own, repairs too; a
freeze stops what nobody waits for, rollouts and hot updates."""

from __future__ import annotations

from datetime import datetime

from temporalio import workflow

from workflows.cluster.watches import Watches
from workflows.cluster.words import frozen, held

with workflow.unsafe.imports_passed_through():
    from resources.base import format_duration, whole_seconds
    from resources.cluster.state import ClusterState, Pause
    from resources.intents import Intent
    from resources.maintenance import FreezeIntent
    from resources.words import by_whom

FREEZE = "freeze"
"""The deadline at which a freeze ends on its own. Pools have it with the news, and wait for nobody."""


def pause(cluster: Watches, intent: Intent) -> str:
    s = cluster.s
    s.messages += 1
    if s.pause is not None:
        return f"cluster {s.name} is paused already, {s.pause.words}"
    s.pause = Pause(time=workflow.now(), requested_by=intent.requested_by, reason=intent.reason)
    cluster.note("Paused", s.pause.words)
    return pause_words(s)


def pause_words(s: ClusterState) -> str:
    return f"cluster {s.name} is paused: {held(s.pools)} until hostler resume cluster {s.name}"


def resume(cluster: Watches, intent: Intent) -> str:
    s = cluster.s
    s.messages += 1
    if s.pause is None:
        return f"cluster {s.name} is not paused"
    cluster.note("Resumed", _lasted(s.pause.time, intent))
    s.pause = None
    return f"cluster {s.name} is resumed"


def freeze(cluster: Watches, intent: FreezeIntent) -> str:
    s = cluster.s
    s.messages += 1
    s.freeze = intent.begun(workflow.now())
    keep_time(cluster)
    cluster.note("FreezeBegan", s.freeze.words)
    return f"cluster {s.name} is frozen {s.freeze.words}: {frozen(s.pools)}; hostler unfreeze cluster {s.name} ends it"


def unfreeze(cluster: Watches, intent: Intent) -> str:
    s = cluster.s
    s.messages += 1
    if s.freeze is None:
        return f"cluster {s.name} is not frozen"
    cluster.note("FreezeEnded", _lasted(s.freeze.time, intent))
    s.freeze = None
    keep_time(cluster)
    return f"cluster {s.name} is no longer frozen"


def keep_time(cluster: Watches) -> None:
    """Ends a freeze whose time is over, and is there when it will be."""
    s = cluster.s
    if s.freeze is not None and not s.freeze.holds(workflow.now()):
        s.freeze = None
        cluster.note("FreezeEnded", "its time is over")
    if s.freeze is None or s.freeze.until is None:
        cluster.deadlines.pop(FREEZE, None)
    else:
        cluster.deadlines[FREEZE] = s.freeze.until


def _lasted(since: datetime, intent: Intent) -> str:
    """How long a hold lasted, and who ended it and why."""
    lasted = format_duration(whole_seconds(workflow.now() - since))
    return f"after {lasted}{by_whom(intent.requested_by, intent.reason)}"
