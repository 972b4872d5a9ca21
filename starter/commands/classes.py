"""Classes on the command line: hostler get|describe|delete class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starter.commands.kinds import CLASS

if TYPE_CHECKING:
    from resources.machine_class.state import ClassChange, ClassState
    from starter.commands.rows import Form, Row
    from starter.sdk.client import HostlerClient
    from starter.sdk.entity import EntityKey
    from starter.sdk.results import ClassDescription, ClassSummary

COLUMNS = ("NAME", "PROVIDER", "GENERATION", "UPDATED", "USERS", "STATES", "AGE")
WIDE = (*COLUMNS, "PHASE", "REASON")
SOME = 10
"""Users in trouble, and changes, that `describe` shows."""


# -- get --------------------------------------------------------------------------------------------------------------


async def listing(client: HostlerClient, names: list[str], all_clusters: bool, form: Form, watch: bool) -> None:
    from starter.commands.rows import OF, print_objects, print_rows

    async def found() -> list[ClassSummary]:
        if names:
            return [await _one(client, name) for name in names]
        return await client.classes.list(all_clusters=all_clusters)

    if form in ("json", "yaml"):
        await print_objects(_manifests(await found()), form, single=len(names) == 1)
        return

    async def rows() -> list[Row]:
        return [_row(c, all_clusters) for c in await found()]

    columns = WIDE if form == "wide" else COLUMNS
    where = "any cluster" if all_clusters else f"cluster {client.cluster}"
    nothing = f"No classes found in {where}."
    await print_rows((OF, *columns) if all_clusters else columns, "STATES", rows, form, watch, nothing)


async def _one(client: HostlerClient, name: str) -> ClassSummary:
    from starter.sdk.errors import NotFound

    found = await client.classes.describe(name)
    if found.ended is not None:
        raise NotFound(f"class {name} is gone since {found.ended:%Y-%m-%d %H:%M:%S} UTC")
    return found.summary


def _row(c: ClassSummary, all_clusters: bool) -> Row:
    from starter.commands.rows import OF, Row
    from starter.output import age

    s, shown = c.state, age(datetime.now(UTC) - c.created)
    cells = {OF: c.cluster, "NAME": c.name, "AGE": shown, "PHASE": c.phase, "REASON": c.reason}
    cells |= dict.fromkeys(("PROVIDER", "GENERATION", "UPDATED", "USERS", "STATES"), "")
    if s is not None:
        cells |= {
            "PROVIDER": s.machine_class.provider,
            "GENERATION": str(s.generation),
            "UPDATED": str(s.last_updated_generation),
            "USERS": str(len(s.users)),
            "STATES": _states(s),
        }
    return Row((CLASS, c.cluster, c.name) if all_clusters else (CLASS, c.name), cells)


def _states(s: ClassState) -> str:
    """`3 Updated, 1 Failed`."""
    counts: Counter[str] = Counter()
    for state, _, n in s.states:
        counts[state] += n
    return ", ".join(f"{n} {state}" for state, n in sorted(counts.items(), key=lambda c: (-c[1], c[0])))


def _manifests(found: list[ClassSummary]) -> list[dict[str, Any]]:
    from starter.outlet import warn
    from starter.sdk.results import class_manifest

    silent = [c.name for c in found if c.state is None]
    if silent:
        warn(f"class {', '.join(silent)}: no answer, so not shown: no worker polls its task queue (hostler doctor)")
    return [class_manifest(c.state) for c in found if c.state is not None]


# -- describe ---------------------------------------------------------------------------------------------------------


def about(found: ClassDescription, now: datetime) -> list[str]:
    """The lines that only a class has."""
    from resources.machine_class.state import pools_of, users_words
    from resources.names import UPDATE_CONCURRENCY_ANNOTATION
    from starter.output import fields, moment

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
        why = found.no_answer.rstrip(".")
        lines += ["", f"No answer: {why}.", "The above is what Temporal knows without a worker."]
    if found.task_attempt > 1:
        lines += ["", f"The workflow's own code fails (attempt {found.task_attempt}); the web UI shows the failure."]
    return lines + _users(state, now) if state is not None else lines


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
    from workflows.machine_class.words import change_words

    words = change_words(change)
    return words if change.reason in words else f"{words}; {change.reason}"


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
