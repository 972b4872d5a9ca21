"""Every reason that a person can meet: what it means, how to look closer, what happens on its own, what can be done,
and when to worry.

A reason stands in waitingFor, in a condition, in the journal, in a Node's Events and in `hostler events`. There are no
other words for it: describe, the web UI and doctor read them here, and tools/runbook.py makes docs/runbook.md of them.
tests/unit/test_reasons.py ensures that the registry, the runbook and the code have the same reasons.
"""

from __future__ import annotations

from resources.names import MACHINE_NAME_LABEL
from resources.reasons.classes import CLASS
from resources.reasons.creating import CREATING
from resources.reasons.joining import JOINING
from resources.reasons.leaving import LEAVING
from resources.reasons.living import LIVING
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
    "filled",
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
    "Machine classes": Group("The journal of a class: `hostler describe class CLASS`.", CLASS),
    "Clusters": Group("The journal of a cluster: `hostler describe cluster {cluster}`.", CLUSTER),
    "Told by hostler events": Group("Lines of `hostler events {machine}` that come from Temporal's histories.", STORY),
}
"""The registry by the runbook's headings."""

REASONS: dict[str, Reason] = {name: reason for group in GROUPS.values() for name, reason in group.reasons.items()}


def filled(text: str, cluster: str, name: str, kind: str = "machine") -> str:
    """A text of a Reason with its placeholders filled in. `name` is the machine or pool, as `kind` says, that has the
    reason; the two share some."""
    machine = f"{kind} {name} --cluster {cluster}"
    return text.format(
        machine=machine,
        name=name,
        pool=f"{name} --cluster {cluster}",
        cluster=cluster,
        node=f"kubectl describe node -l {MACHINE_NAME_LABEL}={name}",
        seen="`Seen last` in describe (the web UI: Pending Activities)",
        replace=f"`hostler recreate {machine}` replaces it, `hostler delete {machine}` only removes it",
    )


def next_step(
    reason: str, cluster: str, name: str = "NAME", kind: str = "machine", pool: str = "", kept: bool = False
) -> str:
    """What can be done about a reason of `name`, a machine or a pool as `kind` says, in commands that can be copied.

    `pool`: the machine's, which replaces it when it has Failed, unless it is `kept`: preserved now, and not without its
    VM.

    It also has words for an unknown reason: one of a newer worker, or one that somebody signalled by hand.
    """
    known, story = REASONS.get(reason), "events" if kind == "machine" else "describe"
    unknown = f"This version does not know the reason: `hostler {story} {{machine}}` tells the story."
    do = known.do if known else unknown
    if kept and known and Kind.FAILURE in known.kind and reason != "VMGone":
        do = "Inspect the VM, which is kept for that. When you are done: `hostler release {machine}`."
    elif pool and known and Kind.FAILURE in known.kind:
        do = f"Nothing: pool {pool} replaces it, `hostler describe pool {pool} --cluster {{cluster}}` says when; at "
        do += "once with `hostler delete {machine}`."
    return filled(do, cluster, name, kind)


def nothing_to_do(reason: str) -> bool:
    """Whether it goes on by itself."""
    known = REASONS.get(reason)
    return known is not None and known.do.startswith("Nothing")


def is_warning(reason: str) -> bool:
    known = REASONS.get(reason)
    return known is not None and known.warning
