"""What the rounds found, as a table and as one line of JSON."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from _stack import SIDES, Side
from rich.console import Console
from rich.table import Table


@dataclass
class Round:
    """One burst."""

    machines: int
    seconds: float
    cpu: dict[str, float]
    """Seconds by process."""
    ec2_calls: int

    @property
    def rate(self) -> float:
        return self.machines / self.seconds


@dataclass
class Costs:
    """What one Running machine costs, from the last round of Hostler."""

    kb_per_machine: float
    events_to_running: list[int]
    events_life: list[int]
    idle_machines: int
    idle_seconds: float
    idle_events: int
    lease_renewals: int
    status_reports: int

    @property
    def idle_events_per_hour(self) -> float:
        return self.idle_events * 3600 / (self.idle_machines * self.idle_seconds)


@dataclass
class Report:
    rounds: dict[Side, list[Round]] = field(default_factory=lambda: {side: [] for side in SIDES})
    load: list[float] = field(default_factory=list)
    costs: Costs | None = None


def summary(report: Report) -> dict[str, Any]:
    """The line of JSON."""
    assert report.costs is not None
    c, per_side = report.costs, report.rounds
    pairs = zip(per_side["hostler"], per_side["bare"], strict=True)
    return {
        "ratio": round(statistics.median(h.rate / b.rate for h, b in pairs), 3),
        "events_to_running": statistics.median(c.events_to_running),
        "events_life": statistics.median(c.events_life),
        "idle_events_per_hour": round(c.idle_events_per_hour, 3),
        "kb_per_machine": round(c.kb_per_machine, 1),
        "machines": per_side["hostler"][0].machines,
        "rounds": len(per_side["hostler"]),
        "machines_per_second": round(_median(per_side["hostler"], lambda r: r.rate), 2),
        "bare_per_second": round(_median(per_side["bare"], lambda r: r.rate), 2),
        "ratios": [round(h.rate / b.rate, 3) for h, b in zip(per_side["hostler"], per_side["bare"], strict=True)],
        "cpu_ratio": _cpu_ratio(per_side),
        "cpu_ms": {side: _cpu_ms(per_side[side]) for side in SIDES},
        "ec2_calls": {side: round(_median(per_side[side], lambda r: r.ec2_calls / r.machines), 2) for side in SIDES},
        "idle_machine_hours": round(c.idle_machines * c.idle_seconds / 3600, 2),
        "idle_heartbeats": c.lease_renewals + c.status_reports,
        "load": [round(x, 1) for x in report.load],
    }


def _median(rounds: list[Round], value: Callable[[Round], float]) -> float:
    return statistics.median(map(value, rounds))


def _cpu_ms(rounds: list[Round]) -> dict[str, float]:
    """Milliseconds per machine, by process."""
    return {
        name: round(statistics.median(1000 * r.cpu[name] / r.machines for r in rounds), 1) for name in rounds[0].cpu
    }


def _cpu_ratio(rounds: dict[Side, list[Round]]) -> float:
    """The bare side's processor time in server (with its database) and worker over hostler's: steadier than rates on a
    shared machine."""
    ours = ("server", "database", "worker")
    spent = {side: sum(_cpu_ms(rounds[side]).get(process, 0) for process in ours) for side in SIDES}
    return round(spent["bare"] / spent["hostler"], 3)


def show(report: Report, console: Console) -> None:
    c, values = report.costs, summary(report)
    assert c is not None
    table = Table(title=f"{values['machines']} machines at once, {values['rounds']} rounds, medians")
    table.add_column("")
    for name in (*SIDES, "hostler/bare"):
        table.add_column(name, justify="right")
    hostler, bare = values["machines_per_second"], values["bare_per_second"]
    table.add_row("machines/s to Running", f"{hostler:.1f}", f"{bare:.1f}", f"{values['ratio']:.2f}")
    for process in values["cpu_ms"]["hostler"]:
        ours, theirs = (values["cpu_ms"][side][process] for side in SIDES)
        quotient = f"{ours / theirs:.2f}" if theirs else ""
        table.add_row(f"CPU ms per machine: {process}", f"{ours:.1f}", f"{theirs:.1f}", quotient)
    ours, theirs = (values["ec2_calls"][side] for side in SIDES)
    table.add_row("EC2 calls per machine", f"{ours:.1f}", f"{theirs:.1f}", f"{ours / theirs:.2f}")
    console.print(table)
    hours = c.idle_machines * c.idle_seconds / 3600
    console.print(
        f"events: {_spread(c.events_to_running)} to Running, {_spread(c.events_life)} in a whole life\n"
        f"idle: {c.idle_events} events in {hours:.2f} machine-hours ({c.idle_machines} machines, "
        f"{c.idle_seconds:.0f} s), while kubelets renewed {c.lease_renewals} leases and reported "
        f"{c.status_reports} statuses\n"
        f"memory: {c.kb_per_machine:.0f} kB of the worker per cached machine",
        highlight=False,
    )


def _spread(values: list[int]) -> str:
    return f"{statistics.median(values):g} (from {min(values)} to {max(values)})"
