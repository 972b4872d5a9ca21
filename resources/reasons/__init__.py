"""Every reason that a person can meet: what it means, how to look closer, what happens on its own, what can be done,
and when to worry.

A reason stands in waitingFor, in a condition, in the journal, in a Node's Events and in `hostler events`. There are no
other words for it: describe, the web UI and doctor read them here, and tools/runbook.py makes docs/runbook.md of them.
tests/unit/test_reasons.py ensures that the registry, the runbook and the code have the same reasons.
"""

from __future__ import annotations

from typing import NamedTuple

from resources.names import MACHINE_NAME_LABEL
from resources.owner import CONTROL_PLANE
from resources.reasons.classes import CLASS
from resources.reasons.control_plane import CONTROL_PLANE_STEPS, CONTROL_PLANE_WAITS
from resources.reasons.creating import CREATING
from resources.reasons.etcd import ETCD_STEPS, ETCD_WAITS
from resources.reasons.joining import JOINING
from resources.reasons.leaving import LEAVING
from resources.reasons.living import LIVING
from resources.reasons.machine_config import CONFIG_STEPS, CONFIG_WAITS
from resources.reasons.others import ANY_TIME, CLUSTER, RESET, STORY
from resources.reasons.pool_waits import POOL_WAITS
from resources.reasons.pools import POOL_STEPS
from resources.reasons.preservation import PRESERVING
from resources.reasons.reason import Group, Kind, Reason
from resources.reasons.times import TIMES

__all__ = [
    "GROUPS",
    "REASONS",
    "RESET",
    "TIMES",
    "Group",
    "Kind",
    "Reason",
    "Situation",
    "filled",
    "is_lasting",
    "is_warning",
    "next_step",
    "nothing_to_do",
]

GROUPS: dict[str, Group] = {
    "Creating": Group(
        "From the start until the VM exists. The errors from OutOfCapacity to ProviderError can also come later, "
        "from updates, drains and deletions.",
        CREATING,
    ),
    "Joining": Group("From the new VM to a Node that accepts pods.", JOINING),
    "Running, Unknown, Failed": Group("A machine that has been Running, and one that has Failed.", LIVING),
    "Preserving": Group(
        "A machine that is kept for inspection, or for which that was requested: [preservation.md](preservation.md).",
        PRESERVING,
    ),
    "Deleting": Group(
        "This is also the first half of a recreation. A deletion has no deadline: it continues until everything is "
        "gone.",
        LEAVING,
    ),
    "At any time": Group(
        "Machines in any phase. Classes and clusters can also have InternalError, CancelIgnored and Refused; "
        "clusters can also have APIUnreachable and APIRefused.",
        ANY_TIME,
    ),
    "Pools": Group(
        "What a pool does, and what it waits for: `hostler describe pool {pool}`, `hostler rollout status {pool}`. "
        "Here NAME is the pool, and MACHINE one of its machines. A pool also waits after a cloud's error "
        "(OutOfCapacity to ProviderError), with one back-off for all its machines.",
        POOL_WAITS | POOL_STEPS,
    ),
    "Control plane": Group(
        "What a cluster's control plane does, and what it waits for: `hostler describe controlplane --cluster "
        "{cluster}`. It also waits like a pool: for its class, its cluster, a pause, and after a cloud's error.",
        CONTROL_PLANE_WAITS | CONTROL_PLANE_STEPS | ETCD_WAITS | ETCD_STEPS,
    ),
    "Machine configs": Group(
        "What a config pool does, and what it waits for: `hostler describe mcp {name}`; and what keeps a cluster's "
        "machine configs from being rendered. Here NAME is the config pool. It also waits while its cluster is paused "
        "or frozen (ClusterPaused, Frozen).",
        CONFIG_WAITS | CONFIG_STEPS,
    ),
    "Machine classes": Group("The journal of a class: `hostler describe class CLASS`.", CLASS),
    "Clusters": Group("The journal of a cluster: `hostler describe cluster {cluster}`.", CLUSTER),
    "Told by hostler events": Group("Lines of `hostler events {machine}` that come from Temporal's histories.", STORY),
}
"""The registry by the runbook's headings."""

REASONS: dict[str, Reason] = {name: reason for group in GROUPS.values() for name, reason in group.reasons.items()}


class Situation(NamedTuple):
    """What advice must know, besides the reason, of the machine or pool that has it."""

    owner: str = ""
    """The machine's owner in words ("pool demo"), which replaces it when it has Failed."""
    kept: bool = False
    """Preserved now."""
    failed: bool = False
    """Failed because of the reason: nothing is tried again."""
    vm: bool = True
    """Whether there is a VM to look at, as far as is known."""
    held: str = ""
    """The reason of its owner's wait for which it is not replaced for now."""
    page: str = ""
    """The kind of what is described on the page that it stands on, or "doctor": it sends nobody to the command just
    run."""


ELSEWHERE = Situation()


def filled(text: str, cluster: str, name: str, kind: str = "machine", at: Situation = ELSEWHERE) -> str:
    """A text of a Reason with its placeholders filled in. `name` is the machine or pool, as `kind` says, that has the
    reason; the two share some."""
    machine, pool = f"{kind} {name} --cluster {cluster}", f"{name} --cluster {cluster}"
    if kind == CONTROL_PLANE.word:  # a cluster's only one has the same name everywhere, which nobody types
        machine = pool = f"{kind} --cluster {cluster}"
        text = text.replace("pool {pool}", "{pool}")
    in_doctor = at.page == "doctor"
    seen = "`Seen last` above" if at.page == "machine" else "`Seen last` in describe (the web UI: Pending Activities)"
    return text.format(
        machine=machine,
        name=name,
        pool=pool,
        cluster=cluster,
        thaw="" if kind == CONTROL_PLANE.word else f"`hostler unfreeze pool {pool}`, or ",
        node=f"kubectl describe node -l {MACHINE_NAME_LABEL}={name}",
        look="this page" if at.page == kind else f"`hostler describe {machine}`",
        seen="the message" if at.failed else seen,
        doctor="the rest of this report" if in_doctor else "`hostler doctor`",
        then="on its own" if in_doctor else "at the time shown",
        replace=f"`hostler recreate {machine}` replaces it, `hostler delete {machine}` only removes it",
        inspect=" Inspect the VM first: both commands delete it." if at.vm else "",
    )


def next_step(reason: str, cluster: str, name: str = "NAME", kind: str = "machine", at: Situation = ELSEWHERE) -> str:
    """What can be done about a reason of `name`, a machine or a pool as `kind` says, in commands that can be copied.

    It also has words for an unknown reason: one of a newer worker, or one that somebody signalled by hand.
    """
    if at.held:
        return _of_one_held(cluster, at)
    known, story = REASONS.get(reason), "events" if kind == "machine" else "describe"
    if known is None:
        do = f"This version does not know the reason: `hostler {story} {{machine}}` tells the story."
    elif not (at.failed or Kind.FAILURE in known.kind):
        do = known.step
    else:
        do = _of_a_failed(reason, known, at)
    return filled(do, cluster, name, kind, at)


def _of_one_held(cluster: str, at: Situation) -> str:
    """What holds up its replacement is what somebody can end."""
    kind, _, owner = at.owner.partition(" ")
    held = f"{at.owner} does not replace it for now ({at.held})"
    if kind == at.page:
        return f"{held}; what to do about that stands on this page."
    return f"{held}. {next_step(at.held, cluster, owner, kind, Situation(page=at.page))}"


def _of_a_failed(reason: str, known: Reason, at: Situation) -> str:
    cure = known.cure[:1].upper() + known.cure[1:]
    if at.kept and reason != "VMGone":  # without its VM there is nothing to inspect
        return "Inspect the VM, which is kept for that. When you are done: `hostler release {machine}`."
    if at.owner and known.lasting:
        return f"{cure} Then the next one will not fail like it: {at.owner} replaces this one on its own."
    if at.owner:
        own = at.owner.startswith(f"{at.page} ")
        when = "this page" if own else f"`hostler describe {at.owner} --cluster {{cluster}}`"
        held = "what holds that up, with what can be done"
        return f"Nothing: {at.owner} replaces it, {when} says when, or {held}; at once: `hostler delete {{machine}}`."
    if Kind.FAILURE in known.kind:
        return known.do
    return f"{cure or 'Correct what the message names.'} Then {{replace}}.{{inspect}}"


def nothing_to_do(reason: str) -> bool:
    """Whether it continues on its own."""
    known = REASONS.get(reason)
    return known is not None and known.do.startswith("Nothing")


def is_lasting(reason: str) -> bool:
    """Whether only a change by a person ends it."""
    known = REASONS.get(reason)
    return known is not None and known.lasting


def is_warning(reason: str) -> bool:
    known = REASONS.get(reason)
    return known is not None and known.warning
