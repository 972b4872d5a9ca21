"""Whether a node is healthy, what phase that makes of its machine, and when an unhealthy one is Failed.

Sources: machine-controller-manager, isHealthy and reconcileMachineHealth (machine_util.go); design *Running and its
troubles*: Ready must be True, each listed condition exactly False; healthTimeout is absolute, and no machine is Failed
on the word of a timer alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from resources.base import format_duration, whole_seconds
from resources.machine import Illness, Look, Phase
from resources.messages import NodeFacts, VmFacts
from resources.names import STARTUP_TAINTS
from resources.timings import Timings

KUBELET_REPORTS = timedelta(minutes=5)
"""A kubelet writes its node's status at least so often (kubelet's nodeStatusReportFrequency)."""


@dataclass(frozen=True)
class Health:
    healthy: bool
    reason: str
    message: str


WELL = ("pending", "running")


def judge(node: NodeFacts | None, listed: list[str], vm: VmFacts | None = None) -> Health:
    """`listed`: condition types that must be False. An absent one is no trouble; Unknown is (MCM H14).

    `vm`: what the watch of the cloud account said last. A VM that does not run explains a silent node, so it comes
    first; without news of it the node decides alone.
    """
    if vm is not None and vm.state not in WELL:
        reason = "VMGone" if vm.state == "gone" else "VMNotRunning"
        return Health(False, reason, f"{vm.provider_id} is {vm.state} at the cloud")
    if node is None:
        return Health(False, "NodeNotSeen", "no node has joined")
    if not node.exists:
        return Health(False, "NodeMissing", f"node {node.name} was deleted by somebody")
    if not node.ready:
        return Health(False, "NodeNotReady", f"node {node.name} is not Ready: {node.reason}")
    bad = [f"{kind} is {node.conditions[kind]}" for kind in listed if kind in node.conditions]
    if bad:
        return Health(False, "NodeUnhealthy", f"node {node.name}: {', '.join(bad)}")
    return Health(True, "NodeHealthy", f"node {node.name} is Ready")


def judge_joining(node: NodeFacts | None, listed: list[str], vm: VmFacts | None = None) -> Health:
    """Of a node that has taken no work yet: it must also be free of startup taints that others remove (MCM H11)."""
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
    """When a node that is healthy again will have been so for long enough."""


def plan_health(
    phase: Phase, health: Health, healthy_since: datetime | None, now: datetime, settle: timedelta
) -> Verdict:
    """For a machine that was Running: Running or Unknown, and when to look again.

    A node that flaps does not come back by being healthy for a moment: it must settle first.
    """
    if not health.healthy:
        return Verdict(Phase.UNKNOWN, None, None)
    if phase == Phase.RUNNING:
        return Verdict(Phase.RUNNING, healthy_since, None)
    since = healthy_since or now
    if now >= since + settle:
        return Verdict(Phase.RUNNING, since, None)
    return Verdict(Phase.UNKNOWN, since, since + settle)


# -- how long it has been unhealthy -----------------------------------------------------------------------------------


def fall_ill(former: Illness | None, now: datetime, timeout: timedelta) -> Illness:
    """A spell begins. What former spells took of the timeout counts on, unless it was well for as long in between: a
    node that flaps does not set its clock back (MCM #811; field case P57)."""
    if former is None or former.ended is None or now - former.ended >= timeout:
        return Illness(began=now)
    return Illness(began=now, spent=former.spent + (former.ended - former.began), spells=former.spells + 1)


def fails_at(illness: Illness, timeout: timedelta) -> datetime:
    """Absolute, however often it is looked at."""
    return max(illness.began, illness.began + timeout - illness.spent)


# -- two looks before it is Failed ------------------------------------------------------------------------------------


class Outcome(StrEnum):
    WELL = "well"
    UNSURE = "unsure"
    FAILED = "failed"


@dataclass(frozen=True)
class Confirmation:
    outcome: Outcome
    reason: str
    message: str
    look_again: datetime | None = None


def confirm(
    first: Look | None, look: Look, provider_id: str, listed: list[str], deadline: datetime, timings: Timings
) -> Confirmation:
    """What a fresh look makes of an unhealthy machine. `first`: the look before, which found it unhealthy too.

    After an outage every timer has fired and every Node says Unknown, because no kubelet could report. So the second
    look comes `timings.confirm` after the first, not before the deadline, and a Lease that moved in between says that
    the kubelet lives. That it moves is all that its time is used for: node clocks may be wrong (field case P37).
    """
    vm = VmFacts(epoch=0, seq=0, provider_id=provider_id, state=look.vm.state)
    health = judge(look.node.node, listed, vm)
    if health.healthy:
        return Confirmation(Outcome.WELL, health.reason, f"a fresh look finds it healthy: {health.message}")
    if first is None:
        again = max(deadline, look.time + timings.confirm)
        words = f"{health.message}; a second look at Node, Lease and VM decides"
        return Confirmation(Outcome.UNSURE, "ConfirmingFailure", words, again)
    if look.time < first.time + timings.confirm:
        again = first.time + timings.confirm
        return Confirmation(Outcome.UNSURE, "ConfirmingFailure", f"{health.message}; the looks were too near", again)
    renewed = look.node.lease_renewed
    moved = renewed is not None and renewed != first.node.lease_renewed
    not_its_own_word = look.node.node.exists and look.node.ready not in ("True", "False") and look.vm.state in WELL
    if moved and not_its_own_word and look.time < deadline + KUBELET_REPORTS:
        words = f"{health.message}; but its kubelet has renewed its Lease at {renewed:%H:%M:%S}: it lives"
        return Confirmation(Outcome.UNSURE, "KubeletAlive", words, look.time + timings.confirm)
    lease = f"Lease last renewed at {renewed:%Y-%m-%d %H:%M:%S}" if renewed else "no Lease"
    seen = f"two fresh looks, {format_duration(whole_seconds(look.time - first.time))} apart"
    return Confirmation(Outcome.FAILED, health.reason, f"{health.message} ({seen}: {lease}, VM {look.vm.state})")
