"""Classes on the command line: hostler get|describe|delete class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from resources.words import utc
from starter.commands.kinds import CLASS
from starter.commands.rows import AGE, Column, Listing, key_of, listed, phase_style, those_named

if TYPE_CHECKING:
    from resources.machine_class.state import ClassChange, ClassState
    from resources.settings import Settings
    from starter.sdk.client import HostlerClient
    from starter.sdk.entity import EntityKey
    from starter.sdk.results import ClassDescription, ClassSummary, Json

SOME = 10
"""Users in trouble, and changes, that `describe` shows."""


# -- get --------------------------------------------------------------------------------------------------------------


def _answer(of: Callable[[ClassState], int | str]) -> Callable[[ClassSummary], int | str | None]:
    """What a class says itself: empty where no worker answers."""
    return lambda c: of(c.state) if c.state else None


def _states(s: ClassState) -> str:
    """`3 Updated, 1 Failed`."""
    counts: Counter[str] = Counter()
    for state, _, n in s.states:
        counts[state] += n
    return ", ".join(f"{n} {state}" for state, n in sorted(counts.items(), key=lambda c: (-c[1], c[0])))


COLUMNS: tuple[Column[ClassSummary], ...] = (
    Column("NAME", lambda c: c.name),
    Column("PROVIDER", _answer(lambda s: s.machine_class.provider), drop=3),
    Column("GENERATION", _answer(lambda s: s.generation)),
    Column("UPDATED", _answer(lambda s: s.last_updated_generation), drop=1),
    Column("USERS", _answer(lambda s: len(s.users)), drop=2),
    Column("STATES", _answer(_states), style=lambda c: phase_style(c.phase)),
    Column(AGE, lambda c: c.created, drop=4),
    Column("PHASE", lambda c: c.phase, wide=True),
    Column("REASON", lambda c: c.reason, wide=True),
)


def listing(client: HostlerClient, names: Sequence[str], all_clusters: bool) -> Listing[ClassSummary]:
    async def found() -> list[ClassSummary]:
        if names:
            return await those_named(names, partial(_one, client), missing)
        return await client.classes.list(all_clusters=all_clusters)

    missing: list[str] = []
    where = "any cluster" if all_clusters else f"cluster {client.cluster}"
    return Listing(
        listed(COLUMNS, all_clusters),
        find=found,
        key=key_of(CLASS, all_clusters),
        objects=_manifests,
        nothing=f"No classes found in {where}.",
        missing=missing,
        state="STATES",
    )


async def _one(client: HostlerClient, name: str) -> ClassSummary:
    from starter.sdk.errors import NotFound

    found = await client.classes.describe(name)
    if found.ended is not None:
        raise NotFound(f"class {name} is gone since {utc(found.ended)}")
    return found.summary


async def _manifests(found: Sequence[ClassSummary]) -> list[Json | None]:
    from starter.outlet import warn
    from starter.sdk.results import class_manifest

    silent = [c.name for c in found if c.state is None]
    if silent:
        warn(f"class {', '.join(silent)}: no answer, so not shown: no worker polls its task queue (hostler doctor)")
    return [class_manifest(c.state) if c.state else None for c in found]


# -- describe ---------------------------------------------------------------------------------------------------------


def about(found: ClassDescription, now: datetime) -> list[str]:
    """The lines that only a class has."""
    from resources.machine_class.state import pools_of, users_words
    from resources.names import UPDATE_CONCURRENCY_ANNOTATION
    from starter.output import fields, moment, unanswered

    summary, state = found.summary, found.state
    pairs = [
        ("Name", summary.name),
        ("Cluster", summary.cluster),
        ("Phase", summary.phase if found.ended is None else "(gone)"),
        ("Reason", summary.reason if found.ended is None else ""),
        ("Created", moment(summary.created, now)),
        ("Ended", moment(found.ended, now)),
    ]
    if state is not None:
        pairs[4:4] = [
            ("Provider", state.machine_class.provider),
            ("Generation", str(state.generation)),
            ("Last updated", f"{state.last_updated_generation}: the newest that all its users have"),
            ("Users", users_words(state.users)),
            ("Pools", "\n".join(pools_of(state.users))),
            ("At a time", f"{state.update_concurrency} (annotation {UPDATE_CONCURRENCY_ANNOTATION})"),
            ("Labels", "\n".join(f"{k}={v}" for k, v in sorted(state.labels.items()))),
        ]
    lines = fields(pairs)
    if found.no_answer:
        lines += unanswered(found.no_answer, "The above is what Temporal knows without a worker.")
    if found.task_attempt > 1:
        lines += ["", f"The workflow's own code fails (attempt {found.task_attempt}); the web UI shows the failure."]
    return lines + _users(state, now) if state is not None else lines


async def secrets(settings: Settings, found: ClassDescription) -> list[str]:
    """What is wrong with the Secrets that a class names: machines of it wait for those that are missing. Where nobody
    here can see them, why."""
    from starter.sdk.secrets import CannotLook, look, needed

    state = found.state
    if state is None or found.ended is not None:
        return []
    try:
        seen = await look(settings, list(needed(settings, state.machine_class)))
    except CannotLook as e:
        return [] if e.by_design else ["", f"Whether the Secrets that it names are there is not known: {e}"]
    lines = [f"  {one} {what}: hostler apply -f SECRET-FILE" for one, what in seen.missing.items()]
    lines += [f"  {one}: {what}" for one, what in seen.odd.items()]
    return ["", "Secrets:", *lines] if lines else []


def _users(s: ClassState, now: datetime) -> list[str]:
    """What only the workflow knows."""
    from resources.reasons import next_step
    from starter.output import moment

    lines = []
    if s.parked:
        lines += ["", f"Parked: {s.parked}", f"Once a fixed worker runs: hostler renew class {s.name}"]
    rows = [(str(state), reason, str(n)) for state, reason, n in s.states]
    lines += _table("States:", ("STATE", "REASON", "MACHINES"), rows)
    lines += _under_way(s)
    troubles = sorted(s.troubles.items())[:SOME]
    failed = [(name, s.users[name].reason, _next_try(t.next_try, now), t.message) for name, t in troubles]
    lines += _table("Failed:", ("MACHINE", "REASON", "NEXT TRY", "MESSAGE"), failed)
    reasons = {s.users[name].reason: name for name, _ in reversed(troubles)}
    lines += [f"  What can be done about {r}: {next_step(r, s.cluster, name)}" for r, name in sorted(reasons.items())]
    changes = [(str(c.generation), moment(c.time, now), c.requested_by, _what(c)) for c in reversed(s.changes[-SOME:])]
    return lines + _table("Changes:", ("GENERATION", "WHEN", "WHO", "WHAT"), changes)


def _under_way(s: ClassState) -> list[str]:
    """Users that have yet to take the newest generation, except those that failed."""
    from resources.machine_class.state import UpdateState
    from starter.output import fields

    newest = {n: u for n, u in sorted(s.users.items()) if u.told == s.generation or u.generation == s.generation}
    at_it = [n for n, u in newest.items() if u.generation == s.generation and u.state is UpdateState.UPDATING]
    silent = [n for n, u in newest.items() if u.generation < s.generation]
    untold = len(s.users) - len(newest)
    pairs = [
        ("Being updated", _some(at_it)),
        ("Told, no report yet", _some(silent)),
        ("Not told yet", f"{untold}; {s.update_concurrency} at a time" if untold else ""),
    ]
    shown = fields(pairs, 2)
    return ["", f"Generation {s.generation} is being rolled out:", *shown] if shown else []


def _next_try(time: datetime | None, now: datetime) -> str:
    """When the next try is. A machine reports only news: that the same error came again is none."""
    from starter.output import moment

    return moment(time, now) if time is None or time > now else f"tried again since {moment(time, now)}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:SOME]) + (f" and {len(names) - SOME} more" if len(names) > SOME else "")


def _what(change: ClassChange) -> str:
    return change.words if change.reason in change.words else f"{change.words}; {change.reason}"


def _table(title: str, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    from starter.output import Table

    return ["", title, *(f"  {line}" for line in Table(header).lines(rows))] if rows else []


# -- delete -----------------------------------------------------------------------------------------------------------


async def deletion_foretold(client: HostlerClient, key: EntityKey) -> str:
    """What --dry-run says. Raises Refused where the class would refuse."""
    from resources.machine_class.state import users_words
    from starter.sdk.errors import Refused

    cluster, name = key
    found = await client.classes.describe(name, cluster=cluster)
    if found.state is not None and found.state.users:
        raise Refused(f"class {name} is used by {users_words(found.state.users, SOME)}: the deletion would be refused")
    return "deletion (dry run)"
