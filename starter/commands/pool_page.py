"""hostler describe pool: everything that a person who was woken at night needs, on one page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from starter.commands.kinds import MACHINE

if TYPE_CHECKING:
    from resources.fleet.member import Member
    from resources.pool.intents import PoolSummary
    from resources.pool.manifest import MachineDeploymentSpec
    from resources.pool.state import PoolState, Rollout
    from starter.sdk.fleet.results import FleetDescription, Numbers
    from starter.sdk.fleet.trouble import MachineTrouble
    from starter.sdk.pools.results import PoolDescription
    from starter.sdk.results import MachineSummary

REVISIONS = 5
"""The newest ones, and those that have machines; `hostler rollout history` has them all."""
ILL = 10
"""Machines named that are not well."""


def about(found: PoolDescription, now: datetime) -> list[str]:
    """The lines that only a pool has."""
    from starter.output import fields

    lines = fields(_head(found, now)) + silence(found) + _ended(found)
    summary = found.summary
    if found.running and summary is not None:
        first, waiting = trouble(found.trouble, now, summary, "pool"), waits(summary, found.trouble, now)
        grave = found.trouble is not None and found.trouble.grave
        lines += _parked(summary) + (first + waiting if grave else waiting + first)
        lines += _rollout(summary, found.state, now) + _phases(summary)
    lines += _unwell(found, now)
    if summary is not None:
        lines += revisions(summary, now)
    return lines


def silence(found: FleetDescription[Any, Any]) -> list[str]:
    """Why a workflow does not answer, or cannot."""
    from starter.output import unanswered

    lines: list[str] = []
    if found.no_answer:
        lines += unanswered(found.no_answer, "The following is what Temporal knows without a worker.")
    if found.running and found.task_attempt > 1:
        lines += ["", f"The workflow's own code fails (attempt {found.task_attempt}); the web UI shows the failure."]
    return lines


def commands(found: PoolDescription) -> list[str]:
    """Commands to go on with, ready to be copied."""
    if not found.running and not found.machines:
        return []
    name, cluster = found.listed.name, found.listed.cluster
    of = f"{name} --cluster {cluster}"
    shown = [(f"hostler get machines --pool {of} -o wide", "its machines")]
    if (s := found.summary) is not None and found.running:
        if s.rollout is not None:
            shown += [
                (f"hostler rollout status {of} -w", "follow the rollout"),
                (f"hostler rollout undo {of}", "go back to the previous revision"),
            ]
            shown.append(
                (f"hostler rollout resume {of}", "resume the rollout")
                if s.waits and (s.paused or s.rollout.gate or found.listed.phase in ("Stopped", "Paused"))
                else (f"hostler rollout pause {of}", "pause the rollout")
            )
        if s.hibernated:
            shown.append((f"hostler wake pool {of}", "create its machines again"))
        shown.append((f"hostler rollout history {of}", "list its revisions, and how their rollouts ended"))
    return next_steps(shown)


def next_steps(shown: Sequence[tuple[str, str]]) -> list[str]:
    """Commands with what each does."""
    width = max(len(command) for command, _ in shown) + 3
    return ["", "Next steps:", *(f"  {command.ljust(width)}# {words}" for command, words in shown)]


# -- the head ---------------------------------------------------------------------------------------------------------


def _head(found: PoolDescription, now: datetime) -> list[tuple[str, str]]:
    from resources.machine.state import generation_words
    from starter.output import moment

    listed, state, s = found.listed, found.state, found.summary
    phase = listed.phase if found.running else f"{listed.phase}, when its workflow ended" if found.failure else "(gone)"
    spec = state.spec if state else None
    known = state.machine_class if state else None
    named = spec.template.spec.class_.name if spec else listed.machine_class
    generation = f", generation {known.generation}" if known and known.name == named else ""
    newest = state.revisions[-1].machine_class if state and state.revisions else None
    if newest is not None and generation and newest.name == named and newest.base:
        generation += f"; gone back: VMs are made from {generation_words(newest.base, newest.generation)}"
    return [
        ("Name", listed.name),
        ("Cluster", listed.cluster),
        ("Phase", phase),
        ("Reason", listed.reason if found.running else ""),
        ("Not reachable", state.unseen if state and found.running else ""),
        ("Class", f"{named}{generation}"),
        ("Replicas", _replicas(spec, s)),
        ("Machines", _numbers(found)),
        ("Revision", str(s.revision) if s else ""),
        ("Strategy", _strategy(spec) if spec and found.running else ""),
        ("Repair", _repair(spec, s) if spec and found.running else ""),
        ("Paused", _paused(state)),
        ("Frozen", _frozen(state)),
        ("Windows", _windows(state)),
        ("Approval", _approval(state)),
        ("Rolls after", _rolls_after(state)),
        ("Labels", "\n".join(f"{k}={v}" for k, v in sorted(state.labels.items())) if state else ""),
        ("Created", moment(listed.created, now)),
        ("Ended", moment(found.ended, now)),
    ]


def _replicas(spec: MachineDeploymentSpec | None, s: PoolSummary | None) -> str:
    if spec is None:
        return str(s.replicas) if s else ""
    return f"{spec.replicas} wanted" + (", but 0 for now: hibernated" if spec.hibernated else "")


def _numbers(found: PoolDescription) -> str:
    """The pool's own numbers; without them, the number of machines by visibility."""
    s = found.summary
    if s is None or not found.running:
        return f"{found.machines}, according to the list of workflows"
    parts = [_vms(s), f"{s.available} available", f"{s.updated} of revision {s.revision}"]
    parts += [f"{n} {word}" for n, word in ((s.unhealthy, "unhealthy"), (s.leaving, "leaving")) if n]
    if s.preserved or s.slots:
        parts.append(f"preserved {preserved(s)}")
    if s.template_pending:
        parts.append(f"{s.template_pending} do not have the newest node template yet")
    return ", ".join(parts)


def _vms(s: PoolSummary) -> str:
    """How many VMs there are, and how many machines have none yet."""
    there = s.machines - s.unborn
    words = f"{there} VM{'s' if there != 1 else ''}"
    return f"{words}, {s.unborn} still without one" if s.unborn else words


def preserved(s: PoolSummary) -> str:
    """How many machines are preserved, and how many of the slots Failed ones take."""
    return f"{s.preserved} ({s.slots_used} of {s.slots} slots)" if s.slots or s.slots_used else str(s.preserved)


def _strategy(spec: MachineDeploymentSpec) -> str:
    rolling = spec.strategy.rolling
    if rolling is None:
        words = "OnDelete: an old machine is replaced when somebody deletes it"
    else:
        words = f"RollingUpdate: maxSurge {rolling.max_surge}, maxUnavailable {rolling.max_unavailable}"
        words += f", pauseAfter {rolling.pause_after}" if rolling.pause_after is not None else ""
    words += f"; minReadySeconds {spec.min_ready_seconds}" if spec.min_ready_seconds else ""
    deadline = spec.progress_deadline_seconds
    return words + (f"; progressDeadlineSeconds {deadline}" if deadline else "")


def _repair(spec: MachineDeploymentSpec, s: PoolSummary | None) -> str:
    under_way = f"; {s.repairs} in progress" if s and s.repairs else ""
    repair = spec.repair
    return f"{repair.max_concurrent} at a time, none above {repair.pause_above_unhealthy} unhealthy{under_way}"


def _paused(state: PoolState | None) -> str:
    if state is None or not (state.paused or state.spec.paused):
        return ""
    by = f" by {state.paused_by}" if state.paused_by else ""
    return f"no rollout begins or continues{by}" if state.paused else "no rollout begins or continues, by the manifest"


def _frozen(state: PoolState | None) -> str:
    if state is None:
        return ""
    given = (("pool", state.freeze), ("cluster", state.news.freeze if state.news else None))
    return "\n".join(f"{word} {freeze.words}" for word, freeze in given if freeze is not None)


def _windows(state: PoolState | None) -> str:
    """The maintenance windows, and what they come to next."""
    from resources.words import utc

    if state is None or not state.spec.maintenance.windows:
        return ""
    lines = ["; ".join(w.words for w in state.spec.maintenance.windows)]
    calendar = state.calendar
    if calendar is not None and calendar.problem:
        lines.append(calendar.problem)
    elif calendar is not None and calendar.openings:
        lines.append("next: " + ", ".join(f"{utc(o.begin)} to {utc(o.end)}" for o in calendar.openings[:2]))
    if state.opened is not None:
        lines.append(f"opened by a person until {utc(state.opened.end)}")
    return "\n".join(lines)


def _approval(state: PoolState | None) -> str:
    from resources.base import format_duration
    from resources.words import utc

    if state is None or not state.spec.approval.required:
        return ""
    words = f"required for each new revision, within {format_duration(state.spec.approval.timeout)}"
    consent = state.rollout.consent if state.rollout else None
    if consent is None or state.rollout is None:
        return words
    stand = consent.words or f"asked for since {utc(consent.asked)}"
    return f"{words}\nrevision {state.rollout.revision}: {stand}"


def _rolls_after(state: PoolState | None) -> str:
    if state is None or state.spec.rolls_after is None:
        return ""
    after = state.spec.rolls_after
    return f"pool {after.pool}" + (f" with class {after.class_}" if after.class_ else "")


# -- how it stands ----------------------------------------------------------------------------------------------------


def _ended(found: PoolDescription) -> list[str]:
    if found.running:
        return []
    if not found.failure:
        return [] if found.machines else ["", "Nothing is left."]
    n = found.machines
    taken = (
        f"it takes over the {n} machine{'s' if n != 1 else ''} that still exist"
        if n
        else "none of its machines is left"
    )
    todo = f"apply its manifest again, which creates a new pool (hostler apply -f FILE): {taken}"
    return ["", f"{found.failure[:1].upper()}{found.failure[1:]}.", f"What can be done: {todo}"]


def _parked(s: PoolSummary) -> list[str]:
    if not s.parked:
        return []
    renew = f"hostler renew pool {s.name} --cluster {s.cluster}"
    return ["", f"Parked: {s.parked}", f"Once a fixed worker runs: {renew}"]


def trouble(first: MachineTrouble | None, now: datetime, s: Numbers, page: str = "") -> list[str]:
    """The machine to look at first, in its own words: the cloud's own message is there. `page`: as in Situation."""
    from resources.machine.advice import has_vm, is_up_to_its_owner, step
    from starter.output import fields, moment

    if first is None or not first.reason:
        return []
    waiting = first.state.status.waiting_for
    held = s.holding(first.state.revision, has_vm(first.state)) if is_up_to_its_owner(first.state) else None
    todo = step(first.state, first.reason, page=page, held=held.reason if held else "")
    pairs = [
        ("Machine", f"{first.machine.name}, {first.state.status.shown_phase}"),
        ("Reason", first.reason),
        ("Message", first.message),
        ("Seen last", first.seen),
        ("Since", moment(waiting.since, now) if waiting else ""),
        ("Next try", moment(waiting.next_try, now) if waiting else ""),
        ("What can be done", todo),
    ]
    return ["", "First machine to look at:", *fields(pairs, 2)]


def waits_step(reason: str, s: Numbers, first: MachineTrouble | None, page: str = "") -> str:
    """What can be done about a wait of the pool. What only a person ends outranks what takes its time."""
    from resources.reasons import Situation, next_step, nothing_to_do

    if first is not None and first.lasting and nothing_to_do(reason):
        return f"what machine {first.machine.name} needs, see above"
    return next_step(reason, s.cluster, s.name, s.noun, Situation(page=page))


def waits(s: Numbers, first: MachineTrouble | None, now: datetime) -> list[str]:
    """Everything that it waits for, each with what can be done."""
    from starter.output import fields, moment

    lines = []
    for wait in s.waits:
        pairs = [
            ("Reason", wait.reason),
            ("Message", wait.message),
            ("Since", moment(wait.since, now)),
            ("What can be done", waits_step(wait.reason, s, first, page=s.noun)),
        ]
        lines += ["", "Waiting for:", *fields(pairs, 2)]
    return lines


def _rollout(s: PoolSummary, state: PoolState | None, now: datetime) -> list[str]:
    from starter.output import fields, moment
    from starter.sdk.pools.rollout_status import counts, drawn, numbers

    if (rollout := s.rollout) is None:
        return []
    newest = s.revisions[-1] if s.revisions else None
    by = f" by {newest.requested_by}" if newest and newest.requested_by else ""
    why = f": {newest.reason}" if newest and newest.reason else ""
    pairs = [
        ("Progress", drawn(counts(s))),
        ("Machines", numbers(s)),
        ("Began", f"{moment(rollout.began, now)}{by}{why}"),
        ("Progressed", moment(rollout.progress_at, now)),
        ("Stops", _stops(s, state, rollout, now)),
        ("State", _gate(rollout)),
        ("Never joined", str(rollout.lost) if rollout.lost > 0 else ""),
    ]
    return ["", f"Rollout to revision {rollout.revision}:", *fields(pairs, 2)]


def _gate(rollout: Rollout) -> str:
    """What holds it for good, and who wanted that."""
    if not rollout.gate:
        return ""
    consent = rollout.consent
    refused = consent is not None and consent.given is None and consent.words
    return f"{rollout.gate}: {refused}" if refused else f"{rollout.gate} by a person"


def _stops(s: PoolSummary, state: PoolState | None, rollout: Rollout, now: datetime) -> str:
    """When the rollout stops. The pool also counts from the newest machine that it waits for, so it is no earlier than
    this. Its clock stops while it waits for no machine, but for a person."""
    from starter.output import moment
    from starter.sdk.pools.rollout_status import HELD

    seconds = state.spec.progress_deadline_seconds if state else None
    reasons = {w.reason for w in s.waits}
    if seconds is None or rollout.held_since is not None or reasons.intersection(HELD) or not _waits_for_new(s):
        return ""
    stop = rollout.progress_at + timedelta(seconds=seconds)
    if stop < now:
        return ""
    return f"not before {moment(stop, now)}, unless a new machine is available by then"


def _waits_for_new(s: PoolSummary) -> bool:
    """Whether a machine of the newest revision is not there yet, or has not been for minReadySeconds."""
    from resources.machine.state import Phase

    settled = (Phase.RUNNING, Phase.TERMINATING)
    on_the_way = any(n for revision, phase, n in s.phases if revision == s.revision and phase not in settled)
    return on_the_way or any(w.reason == "NewMachinesNotReady" for w in s.waits)


def _phases(s: PoolSummary) -> list[str]:
    """One line for each revision, the newest first."""
    words: dict[int, list[str]] = {}
    for revision, phase, n in s.phases:
        words.setdefault(revision, []).append(f"{n} {phase}")
    rows = []
    for revision in sorted(words, reverse=True):
        newest = " (newest)" if revision == s.revision else ""
        rows.append((f"{revision}{newest}", ", ".join(words[revision])))
    return table("Machines by revision:", ("REVISION", "PHASES"), rows)


def _unwell(found: PoolDescription, now: datetime) -> list[str]:
    """Machines that are not Running, with the reason; the pool's own words first."""
    from starter.output import age

    members = found.state.members if found.state and not found.no_answer else {}
    rows = []
    for m in found.unwell[:ILL]:
        member = members.get(m.name)
        revision = str(member.revision) if member else ""
        since = age(now - member.since) if member else ""
        rows.append((m.name, revision, m.phase, m.reason, since))
    title = "Machines that are not Running:" if found.running else "Remaining machines:"
    lines = table(title, ("MACHINE", "REVISION", "PHASE", "REASON", "SINCE"), rows)
    if not rows:
        return []
    told = found.trouble.reason if found.trouble else ""
    reasons = Counter(m.reason for m in found.unwell if m.reason and m.reason != told)
    first = {m.reason: m for m in reversed(found.unwell)}
    told_first = [first[reason] for reason, _ in reasons.most_common(3)]
    advice = [(m.reason, _advice(m, members.get(m.name), found.summary)) for m in told_first]
    lines += [f"  What can be done about {reason}: {todo}" for reason, todo in advice if todo]
    first_one = found.trouble.machine if found.trouble else found.unwell[0]
    more = f"hostler describe {MACHINE} {first_one.name} --cluster {found.listed.cluster}"
    return [*lines, f"  More of one: {more}"]


def _advice(m: MachineSummary, member: Member | None, s: PoolSummary | None) -> str:
    from resources.machine.state import Phase
    from resources.owner import Owner
    from resources.reasons import Situation, next_step, nothing_to_do

    failed, kept = m.phase.startswith(Phase.FAILED), m.preserved_until is not None
    vm, held = bool(m.provider_id), None
    if s is not None and member is not None and failed and member.drained and not (member.leaving or member.stays):
        held = s.holding(member.revision, vm)
    at = Situation(Owner.words(m.pool), kept, failed, vm=vm, held=held.reason if held else "", page="pool")
    return "" if nothing_to_do(m.reason) else next_step(m.reason, m.cluster, m.name, at=at)


def revisions(s: Numbers, now: datetime) -> list[str]:
    """The newest revisions, and those that have machines."""
    from starter.output import age

    shown = [r for i, r in enumerate(reversed(s.revisions)) if i < REVISIONS or r.machines]
    rows = [
        (
            str(r.revision),
            f"{r.machine_class}, generation {r.generation}",
            str(r.machines),
            age(now - r.created),
            r.requested_by,
            r.reason,
        )
        for r in shown
    ]
    return table("Revisions:", ("REVISION", "CLASS", "MACHINES", "AGE", "WHO", "WHY"), rows)


def table(title: str, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    from starter.output import Table

    return ["", title, *(f"  {line}" for line in Table(header).lines(rows))] if rows else []
