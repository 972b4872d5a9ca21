"""How `hostler rollout status` shows rollouts under way: bars on a terminal, lines of what is new anywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from resources.fleet.state import FleetWait
from resources.journal import Happening
from resources.reasons import is_lasting
from resources.words import utc, utc_clock
from starter.commands.fleet_page import trouble, waits_step
from starter.outlet import say
from starter.output import age, fields, moment, relative
from starter.screen import words
from starter.sdk.fleet.trouble import MachineTrouble
from starter.sdk.fleet.waiting import Stand
from starter.sdk.pools.rollout_status import BAR, RolloutLook, counts, drawn, fresh, numbers
from starter.sdk.results import MachineSummary

SOME = 10
"""Earlier steps that are shown."""


class RolloutView(Protocol):
    def say(self, line: str) -> None: ...

    def show(self, look: RolloutLook, now: datetime) -> None:
        """Shows the rollout as it is now, and its steps since it was last shown."""

    def finish(self, look: RolloutLook) -> None:
        """The rollout is done."""

    def running(self) -> AbstractContextManager[object]:
        """The context in which `show` is visible."""


def view(console: Console) -> RolloutView:
    return RolloutBars(console) if console.is_terminal else RolloutLines()


class Told:
    """What has been printed about each pool."""

    def __init__(self) -> None:
        self._steps: dict[str, set[Happening]] = {}

    def news(self, look: RolloutLook) -> list[str]:
        """Lines about steps; only the last of those before the first look."""
        first = look.name not in self._steps
        new = fresh(self._steps.setdefault(look.name, set()), look.steps)
        earlier = look.dropped + max(0, len(new) - SOME) if first else 0
        lines = [step_line(look.name, step) for step in (new[-SOME:] if first else new)]
        return [f"{earlier} earlier steps: {story_of(look)}", *lines] if earlier else lines


def story_of(look: RolloutLook) -> str:
    """The command that tells all of it."""
    return f"hostler rollout history {look.name} --revision {look.revision} --cluster {look.pool.listed.cluster}"


def step_line(pool: str, step: Happening) -> str:
    return f"{step.time:%H:%M:%SZ} {pool}: {step.reason}: {step.message}"


class RolloutLines:
    """The view for pipes and CI, which prints a line when it is news."""

    def __init__(self) -> None:
        self._told = Told()
        self._shown: dict[str, set[str]] = {}

    def say(self, line: str) -> None:
        say(line)

    def show(self, look: RolloutLook, now: datetime) -> None:
        for line in self._told.news(look):
            self.say(line)
        lines = list(_now(look))
        for line in lines:
            if line not in self._shown.get(look.name, ()):
                self.say(line)
        self._shown[look.name] = set(lines)

    def finish(self, look: RolloutLook) -> None:
        self.say(look.verdict.words)

    def running(self) -> AbstractContextManager[object]:
        return nullcontext()


def _now(look: RolloutLook) -> Iterator[str]:
    name, summary = look.name, look.pool.summary
    if summary is None:
        yield look.verdict.words
        return
    yield f"{name}: {numbers(summary)}"
    if look.verdict.stand is Stand.GOING and look.verdict.words:
        yield f"{name}: {look.verdict.words}"
    for machine in look.unwell:
        yield f"{name}: {_unwell(machine, look.trouble)}"
    for wait in summary.waits:
        yield f"{name}: waits: {wait.reason}: {wait.message}"
    if (stops := stops_at(look)) is not None:
        yield f"{name}: stops at {utc(stops)} unless a new machine is available by then"


def _unwell(machine: MachineSummary, first: MachineTrouble | None) -> str:
    """The machine's line; the first one to look at has its message, with the cloud's own words."""
    words = f"{machine.name} is {machine.phase}" + (f": {machine.reason}" if machine.reason else "")
    own = first is not None and first.machine.name == machine.name and first.reason == machine.reason
    return f"{words}: {first.message}" if own and first is not None and first.message else words


def stops_at(look: RolloutLook) -> datetime | None:
    """When it stops on its own; None for one that has stopped."""
    if look.verdict.stand is not Stand.GOING:
        return None
    state = look.story.listed.state if look.story else None
    return state.stops_at if state else None


class RolloutBars:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._told = Told()
        self._looks: dict[str, tuple[RolloutLook, datetime]] = {}
        self._live = Live(console=console, refresh_per_second=8, get_renderable=self._picture)

    def say(self, line: str) -> None:
        self._console.print(words(line))

    def show(self, look: RolloutLook, now: datetime) -> None:
        for line in self._told.news(look):
            self.say(line)
        self._looks[look.name] = look, now
        self._live.refresh()

    def finish(self, look: RolloutLook) -> None:
        del self._looks[look.name]
        self._live.refresh()
        self.say(look.verdict.words)

    @contextmanager
    def running(self) -> Iterator[object]:
        with self._live:
            yield None

    def _picture(self) -> RenderableType:
        return Group(*(picture(look, now) for look, now in self._looks.values()))


def picture(look: RolloutLook, now: datetime) -> RenderableType:
    """A bar, and below it what is waited for."""
    summary = look.pool.summary
    if summary is None:
        return words(look.verdict.words, style="yellow")
    c = counts(summary)
    row = Table.grid(padding=(0, 1))
    done, whole = (c.done, c.whole) if c.whole else (1, 1)
    # Plain colours: rich's own look like an empty bar where a terminal has only sixteen.
    bar = ProgressBar(whole, done, width=BAR, style="bright_black", complete_style="cyan", finished_style="green")
    took = age(now - summary.rollout.began) if summary.rollout else ""
    row.add_row(words(look.name, style="bold"), bar, words(numbers(summary)), words(took, style="dim"))
    below = [words(f"  {look.verdict.words}")] if look.verdict.stand is Stand.GOING and look.verdict.words else []
    below += [words(f"  {_unwell(m, look.trouble)}") for m in look.unwell]
    below += [words(f"  {w.reason}: {w.message} ({age(now - w.since)})") for w in summary.waits]
    if (stops := stops_at(look)) is not None:
        line = f"  stops {relative(stops, now)} ({utc_clock(stops)}) unless a new machine is available by then"
        below.append(words(line, style="yellow"))
    return Group(row, *below)


# -- once -------------------------------------------------------------------------------------------------------------


def page(look: RolloutLook, now: datetime) -> list[str]:
    """Everything about its state, for one look."""
    summary, verdict = look.pool.summary, look.verdict
    if summary is None:
        return [verdict.words]
    rollout = summary.rollout
    pairs = [
        ("Pool", f"{look.name} of cluster {look.pool.listed.cluster}"),
        ("Rollout", _stand(look)),
        ("Machines", numbers(summary)),
        ("Progress", "" if summary.rolled_out else drawn(counts(summary))),
        ("Began", moment(rollout.began, now) if rollout else ""),
        ("Stops", _stops(look, now)),
    ]
    lines = fields(pairs) + trouble(look.trouble, now, summary)
    steps = look.steps[-SOME:]
    if earlier := look.dropped + len(look.steps) - len(steps):
        lines += ["", f"Steps ({earlier} earlier ones: {story_of(look)}):"]
    elif steps:
        lines += ["", "Steps:"]
    lines += [f"  {step.time:%H:%M:%SZ} {step.reason}: {step.message}" for step in steps]
    if summary.waits:
        lines += ["", "Waits:"]
    for wait in summary.waits:
        lines += _wait(wait, look, now)
    if look.unwell:
        lines += ["", f"Not available (hostler describe machine NAME --cluster {look.pool.listed.cluster}):"]
        lines += fields([(m.name, f"{m.phase} {m.reason}".strip()) for m in look.unwell], 2)
    return lines


def _stand(look: RolloutLook) -> str:
    verdict, first, summary = look.verdict, look.trouble, look.pool.summary
    if verdict.stand is Stand.GOING and not verdict.words:
        reasons = [f"{first.reason} (machine {first.machine.name})"] if first is not None and first.lasting else []
        reasons += [w.reason for w in summary.waits if is_lasting(w.reason)] if summary else []
        if reasons:
            return f"tried again and again, but only a person ends this: {reasons[0]}"
    stand = {Stand.DONE: "done", Stand.GOING: "continues on its own", Stand.STANDS: "blocked"}[verdict.stand]
    return f"{stand}: {verdict.words}" if verdict.stand is Stand.GOING and verdict.words else stand


def _stops(look: RolloutLook, now: datetime) -> str:
    stops = stops_at(look)
    return f"{moment(stops, now)}, unless a new machine is available by then" if stops else ""


def _wait(wait: FleetWait, look: RolloutLook, now: datetime) -> list[str]:
    summary = look.pool.summary
    assert summary is not None
    pairs = [
        (wait.reason, wait.message),
        ("since", moment(wait.since, now)),
        ("what can be done", waits_step(wait.reason, summary, look.trouble)),
    ]
    first, *rest = fields(pairs, 2)
    return [first, *rest]
