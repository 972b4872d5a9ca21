"""Every reason that a person can meet: what it means, and what can be done about it.

A reason stands in waitingFor, in a condition, in the journal, in a Node's Events and in `hostler events`.
docs/runbook.md has an entry for each; tests/test_reasons.py holds that registry, runbook and code have the same ones.
"""

from __future__ import annotations

from resources.names import MACHINE_NAME_LABEL
from resources.reasons.classes import CLASS
from resources.reasons.machines import CREATING, JOINING, LEAVING, LIVING
from resources.reasons.others import ANY_TIME, CLUSTER, STORY
from resources.reasons.pools import POOL
from resources.reasons.preservation import PRESERVING
from resources.reasons.reason import Kind, Reason
from resources.reasons.times import TIMES

__all__ = ["GROUPS", "REASONS", "TIMES", "Kind", "Reason", "is_warning", "next_step", "nothing_to_do"]

GROUPS: dict[str, dict[str, Reason]] = {
    "Creating": CREATING,
    "Joining": JOINING,
    "Running, Unknown, Failed": LIVING,
    "Preserving": PRESERVING,
    "Deleting": LEAVING,
    "At any time": ANY_TIME,
    "Pools": POOL,
    "Machine classes": CLASS,
    "Clusters": CLUSTER,
    "Told by hostler events": STORY,
}
"""By the runbook's headings."""

REASONS: dict[str, Reason] = {name: reason for group in GROUPS.values() for name, reason in group.items()}


def next_step(
    reason: str, cluster: str, name: str = "NAME", kind: str = "machine", pool: str = "", kept: bool = False
) -> str:
    """What can be done, in commands that may be copied. `name` is whose reason it is, of that kind: a machine or a
    pool, which share some. `pool`: the machine's, which replaces it when it has Failed, unless it is `kept`: preserved
    now, and not without its VM.

    Also for a reason that is not known here: one of a newer worker, or one that somebody signalled by hand.
    """
    known, story = REASONS.get(reason), "events" if kind == "machine" else "describe"
    unknown = f"This version does not know the reason: `hostler {story} {{machine}}` tells the story."
    todo = known.todo if known else unknown
    if kept and known and Kind.FAILURE in known.kind and reason != "VMGone":
        todo = "Look at the VM, which is kept for it. When you are done: `hostler release {machine}`."
    elif pool and known and Kind.FAILURE in known.kind:
        todo = f"Nothing: pool {pool} replaces it, `hostler describe pool {pool} --cluster {{cluster}}` says when; at "
        todo += "once with `hostler delete {machine}`."
    return todo.format(
        machine=f"{kind} {name} --cluster {cluster}",
        pool=f"{name} --cluster {cluster}",
        cluster=cluster,
        node=f"kubectl describe node -l {MACHINE_NAME_LABEL}={name}",
    )


def nothing_to_do(reason: str) -> bool:
    """Whether it goes on by itself."""
    known = REASONS.get(reason)
    return known is not None and known.todo.startswith("Nothing")


def is_warning(reason: str) -> bool:
    known = REASONS.get(reason)
    return known is not None and known.warning
