"""Whether a node is healthy, what phase its machine has then, and when an unhealthy one is Failed.

Sources: machine-controller-manager, isHealthy and reconcileMachineHealth (machine_util.go); design *Running and its
troubles*: Ready must be True, each listed condition exactly False; healthTimeout is absolute, and no machine becomes
Failed because of a timer alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from planners.machine.claims import WELL, kubelet_lives
from resources.base import format_duration, later, whole_seconds
from resources.machine.advice import GONE
from resources.machine.facts import NodeFacts, VmFacts
from resources.machine.state import Illness, Look, Phase
from resources.names import STARTUP_TAINTS
from resources.timings import Timings
from resources.words import utc, utc_clock

KUBELET_REPORTS = timedelta(minutes=5)
"""The longest time between two status writes of a kubelet (its nodeStatusReportFrequency)."""


@dataclass(frozen=True)
class Health:
    healthy: bool
    reason: str
    message: str


def judge(node: NodeFacts | None, listed: list[str], vm: VmFacts | None = None) -> Health:
    """Judges a node's health. `listed`: condition types that must be False. An absent one is fine; Unknown is not (MCM
    H14).

    `vm`: the last word of the cloud account's watch. A VM that does not run explains a silent node, so it comes first;
    without news of it the node decides alone.
    """
    if vm is not None and vm.state not in WELL:
        reason = "VMGone" if vm.state == GONE else "VMNotRunning"
        return Health(False, reason, f"the cloud says that {vm.provider_id} is {vm.state}")
    if node is None:
        return Health(False, "NodeNotSeen", "no node has joined yet")
    if not node.exists:
        return Health(False, "NodeMissing", f"node {node.name} was deleted by somebody")
    if not node.ready:
        return Health(False, "NodeNotReady", f"node {node.name} is not Ready: {node.reason}")
    bad = [f"{kind} is {node.conditions[kind]}" for kind in listed if kind in node.conditions]
    if bad:
        return Health(False, "NodeUnhealthy", f"node {node.name}: {', '.join(bad)}")
    return Health(True, "NodeHealthy", f"node {node.name} is Ready")


def judge_joining(node: NodeFacts | None, listed: list[str], vm: VmFacts | None = None) -> Health:
    """Judges a node that has taken no work yet: it must also be free of startup taints that others remove (MCM H11)."""
    health = judge(node, listed, vm)
    if node is None or not health.healthy or not node.startup_taints:
        return health
    who = "cloud-controller-manager" if STARTUP_TAINTS[0] in node.startup_taints else "whoever set it"
    taints = ", ".join(node.startup_taints)
    return Health(False, "StartupTaint", f"{health.message}; waits for {who} to remove its taint {taints}")


@dataclass(frozen=True)
class Verdict:
    phase: Phase
    healthy_since: datetime | None
    settles_at: datetime | None
    """When a node that is healthy again will have been healthy for long enough."""


def plan_health(
    phase: Phase, health: Health, healthy_since: datetime | None, now: datetime, settle: timedelta
) -> Verdict:
    """The verdict on a machine that was Running: Running or Unknown, and when to look again.

    A node that flaps does not recover by being healthy for a moment: it must settle first.
    """
    if not health.healthy:
        return Verdict(Phase.UNKNOWN, None, None)
    if phase == Phase.RUNNING:
        return Verdict(Phase.RUNNING, healthy_since, None)
    since = healthy_since or now
    if now >= later(since, settle):
        return Verdict(Phase.RUNNING, since, None)
    return Verdict(Phase.UNKNOWN, since, later(since, settle))


# -- how long it has been unhealthy -----------------------------------------------------------------------------------


def fall_ill(former: Illness | None, now: datetime, timeout: timedelta) -> Illness:
    """Begins a spell of illness. What former spells used of the timeout still counts, unless the node was well for as
    long as the timeout in between: a node that flaps does not set its clock back (MCM #811; field case P57)."""
    if former is None or former.ended is None or now - former.ended >= timeout:
        return Illness(began=now)
    return Illness(began=now, spent=former.spent + (former.ended - former.began), spells=former.spells + 1)


def fails_at(illness: Illness, timeout: timedelta) -> datetime:
    """An absolute time, however often it is asked for."""
    return max(illness.began, later(illness.began, timeout - illness.spent))


# -- fresh looks before it is Failed ----------------------------------------------------------------------------------


class Outcome(StrEnum):
    WELL = "well"
    """Healthy for as long as is required."""
    SETTLING = "settling"
    """Healthy at this look; the next one says whether it has stayed so."""
    UNSURE = "unsure"
    CONTRADICTED = "contradicted"
    """The Node is well and its kubelet lives, but the cloud says that the VM does not run."""
    FAILED = "failed"


@dataclass(frozen=True)
class Confirmation:
    outcome: Outcome
    reason: str
    message: str
    look_again: datetime | None = None
    compare: Look | None = None
    """The look to compare the next one with."""
    gone: bool = False
    """The VM is gone, and no kubelet speaks against that."""


def confirm(
    before: Look | None, look: Look, provider_id: str, listed: list[str], deadline: datetime, timings: Timings
) -> Confirmation:
    """Judges, by a fresh look, a machine that has not settled by its health deadline. `before`: the look before.

    After an outage every timer has fired and every Node says Unknown, because no kubelet could report. So the second
    look comes `timings.confirm` after the first and not before the deadline, and a Lease that moved in between says
    that the kubelet lives. Its time is used for nothing else: node clocks may be wrong (field case P37).

    However a Node comes and goes, there is a verdict: a look that finds it healthy gives it `timings.settle`, once
    after the deadline, and the next look decides whether it has stayed healthy. So the last look is no later than
    `timings.confirm + timings.settle` after the deadline, plus `KUBELET_REPORTS` where Lease and Node disagree. The
    looks themselves decide, not what the watch told in between.
    """
    moved = before is not None and kubelet_lives(before, look)
    health = _found(look, provider_id, listed, believe=not moved)
    if before is None:
        return _go_on(look, health, look, max(deadline, look.time + timings.confirm))
    was_well = _found(before, provider_id, listed).healthy
    soonest = max(before.time + (timings.settle if was_well else timings.confirm), deadline)
    if look.time < soonest:
        return _go_on(before, health, look, soonest)
    if moved and health.healthy and look.vm.state not in WELL:
        again = look.time + max(KUBELET_REPORTS, timings.confirm)
        words = (
            f"{contradiction(provider_id, look)}; the machine is neither Failed nor replaced on the cloud's word alone"
        )
        return Confirmation(Outcome.CONTRADICTED, "VMContradiction", words, again, look)
    if health.healthy and was_well and _steady(before, look, listed):
        words = f"{health.message}, as in the look before"
        return Confirmation(Outcome.WELL, health.reason, words, compare=before)
    if health.healthy and not (was_well and before.time >= deadline):
        return _go_on(look, health, look, look.time + timings.settle)
    renewed = look.node.lease_renewed
    not_its_own_word = look.node.node.exists and look.node.ready not in ("True", "False")
    if moved and renewed and not_its_own_word and look.time < deadline + KUBELET_REPORTS:
        words = f"{health.message}; but its kubelet is alive: it renewed its Lease at {utc_clock(renewed)}"
        return Confirmation(Outcome.UNSURE, "KubeletAlive", words, look.time + timings.confirm, look)
    lease = f"Lease last renewed at {utc(renewed)}" if renewed else "no Lease"
    apart = format_duration(whole_seconds(look.time - before.time))
    seen = f"confirmed by two fresh looks, {apart} apart: {lease}, VM {look.vm.state}"
    found = f"{health.message} now, but was not all the time" if health.healthy else health.message
    gone = look.vm.state == GONE and not moved
    return Confirmation(Outcome.FAILED, health.reason, f"{found} ({seen})", gone=gone)


def contradiction(provider_id: str, look: Look) -> str:
    """Words for a look that saw the Lease move."""
    renewed = look.node.lease_renewed
    at = f" at {utc_clock(renewed)}" if renewed else ""
    said = f"does not find {provider_id}" if look.vm.state == GONE else f"says that {provider_id} is {look.vm.state}"
    return f"the cloud {said}, but the kubelet of node {look.node.node.name} is alive: it renewed its Lease{at}"


def _found(look: Look, provider_id: str, listed: list[str], believe: bool = True) -> Health:
    """The health that a look finds. `believe`: whether to count what the cloud says of the VM. A kubelet that renews
    its Lease runs on a VM, whatever the cloud says."""
    vm = VmFacts(epoch=0, seq=0, provider_id=provider_id, state=look.vm.state) if believe else None
    return judge(look.node.node, listed, vm)


def _go_on(compare: Look, health: Health, look: Look, again: datetime) -> Confirmation:
    """The outcome of a look that decides nothing yet."""
    if health.healthy:
        words = f"a fresh look has found it healthy: {health.message}"
        return Confirmation(Outcome.SETTLING, health.reason, words, again, compare)
    words = f"{health.message}; a second look at Node, Lease and VM decides"
    return Confirmation(Outcome.UNSURE, "ConfirmingFailure", words, again, compare)


def _steady(before: Look, look: Look, listed: list[str]) -> bool:
    """Two looks found it healthy, and it was healthy in between: no condition that counts has changed."""
    if before.node.node.uid != look.node.node.uid:
        return False
    return all(before.node.changed.get(kind) == look.node.changed.get(kind) for kind in ("Ready", *listed))
