"""What a class says of itself: its words for people, and its page in Temporal's web UI."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from planners.machine_class.rollout import behind
    from resources.machine.state import ClassSnapshot
    from resources.machine_class.state import ClassChange, ClassState, user_words, users_words
    from resources.markdown import Markdown, code, heading, items, join, page, plain, prose, strong
    from resources.owner import is_owner
    from resources.reasons import next_step
    from resources.words import utc

SOME = 5
"""How many names a message lists."""


def moves(former: ClassSnapshot, wanted: ClassSnapshot) -> str:
    return (
        f"provider: VMs cannot move from {former.provider} to {wanted.provider}; apply a class with another name, "
        "and machines that use it"
    )


def some(users: list[str]) -> str:
    names = [user_words(user) if is_owner(user) else user for user in users[:SOME]]
    return ", ".join(names) + (", …" if len(users) > SOME else "")


def refusal_to_delete(s: ClassState) -> str | None:
    """Why the class cannot be deleted, while somebody uses it."""
    if not s.users or s.deleted:
        return None
    ways = ["hostler update-class MACHINE CLASS"]
    ways += ["for a pool, apply its manifest with another class"] if any(map(is_owner, s.users)) else []
    return (
        f"machineclass {s.name} is used by {users_words(s.users, SOME)}: delete them first, or give them another class "
        f"({'; '.join(ways)})"
    )


def details(s: ClassState) -> Markdown:
    """The state of the class, in Markdown for Temporal's web UI."""
    lines = [heading(f"Class {s.name}, generation {s.generation}")]
    if s.parked:
        lines.append(join(strong("Parked"), f": {s.parked}"))
        lines.append(join("Once a fixed worker runs: ", code(f"hostler renew class {s.name}")))
    left, untold = len(s.not_done), sum(behind(u, s.generation) for u in s.users.values())
    behind_it = join(strong(f"{left} without the newest generation"), f", {untold} not told yet")
    done = behind_it if left else "all have the newest generation"
    facts: list[str] = [join(f"{users_words(s.users)}, ", done)] if s.users else ["No machine uses it"]
    pools = sorted(user for user in s.users if is_owner(user))
    facts += [f"Used by {some(pools)}"] if pools else []
    facts += [f"{state}{f' ({reason})' if reason else ''}: {n}" for state, reason, n in s.states]
    facts += [f"Newest generation that every machine has: {s.last_updated_generation}"]
    if (opens := s.deadlines.get("opens")) is not None:
        facts.append(f"Until {utc(opens)} some wait for a maintenance window of their pool")
    if s.before and s.turn < s.touching and left:
        facts.append(f"Waits until the machines of class {s.before} are updated: they share one budget")
    if s.awaited:
        facts.append(f"Waits for the word of {some(sorted(s.awaited))}, which takes the change with one of its own")
    facts += [f"At most {s.update_concurrency} updated at the same time"] if left else []
    lines.append(items(facts))
    troubles = sorted(s.troubles.items())
    if troubles:
        named: list[str] = [f"{name}: {trouble.message}" for name, trouble in troubles[:SOME]]
        advice = {s.users[name].reason: name for name, _ in reversed(troubles)}
        for reason, name in sorted(advice.items()):
            named.append(join(f"What can be done about {reason}: ", prose(next_step(reason, s.cluster, name))))
        lines += [plain("Failed:"), items(named)]
    return page(*lines, "Changes:", items(_told(c) for c in reversed(s.changes[-SOME:])))


def _told(change: ClassChange) -> str:
    by = f", {change.requested_by}" if change.requested_by else ""
    return f"Generation {change.generation}, {utc(change.time)}{by}: {change.words}"
