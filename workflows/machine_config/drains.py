"""The drains that daemons ask for: one retrying activity for each node, until it has what it asked for."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import Urgency, failure_of, poller
from workflows.machine_config.entity import ConfigEntity, DrainCall

with workflow.unsafe.imports_passed_through():
    from activities.drain.configs import ConfigDrainActivities
    from resources.calls.machine_config import ConfigDrainInput, NodeRef
    from resources.machine_config.keys import DRAIN_VERB
    from resources.machine_config.node import ConfigNode
    from resources.machine_config.state import ConfigDrain
    from resources.names import drain_queue

AGAIN = 12
"""After how many passes a drain that has failed for good is tried again, as long as the node asks for it."""


def take(owner: ConfigEntity, nodes: Iterable[ConfigNode]) -> None:
    """Takes what nodes ask for. A drain that a node no longer asks for is ended."""
    s, now = owner.s, workflow.now()
    asked: dict[str, ConfigDrain] = {}
    for node in nodes:
        if not node.asks[0]:
            continue
        known = s.drains.get(node.name)
        same = known is not None and (known.uid, known.wish) == (node.uid, node.desired_drain)
        asked[node.name] = known if same and known else ConfigDrain(node.uid, node.desired_drain, now)
        if not same:
            owner.note("ConfigDrainAsked", f"{node.name} asks for {node.desired_drain}")
    s.drains = asked
    for name in [n for n, call in owner.drain_calls.items() if n not in asked or asked[n].wish != call.wish]:
        owner.drop(owner.drain_calls.pop(name).handle)
    start(owner)


def start(owner: ConfigEntity) -> None:
    """Starts what is asked for and not under way. None while one that failed is to rest."""
    if "drains" in owner.deadlines:
        return
    s = owner.s
    for name, drain in s.drains.items():
        if name in owner.drain_calls:
            continue
        drains = drain.wish.startswith(f"{DRAIN_VERB}-")
        method = ConfigDrainActivities.drain_for_config if drains else ConfigDrainActivities.uncordon_for_config
        handle = workflow.start_activity_method(
            method,
            ConfigDrainInput(
                cluster=owner.cluster,
                pool=owner.pool_name,
                node=NodeRef(name=name, uid=drain.uid),
                request=drain.wish,
                since=drain.since,
                poll=s.timings.poll,
            ),
            task_queue=drain_queue(owner.cluster, s.queue_prefix),
            start_to_close_timeout=timedelta(minutes=5),
            heartbeat_timeout=s.timings.heartbeat,
            retry_policy=poller(s.timings.poll),
            summary=f"{'drain' if drains else 'uncordon'} {name} for its config",
            priority=Urgency.OTHER,
        )
        owner.drain_calls[name] = DrainCall(drain.wish, handle)


def are_over(owner: ConfigEntity) -> bool:
    """Whether one has ended, or may begin again."""
    return any(call.handle.done() for call in owner.drain_calls.values()) or owner.due("drains")


async def collect(owner: ConfigEntity) -> None:
    """Takes the answers of those that have ended. The next look shows what has become of the node."""
    s = owner.s
    for name in [n for n, call in owner.drain_calls.items() if call.handle.done()]:
        call = owner.drain_calls.pop(name)
        try:
            output = await call.handle
        except ActivityError as e:
            owner.note_news("ConfigDrainFailed", f"{name}, {call.wish}: {failure_of(e).info.message}")
            owner.no_later("drains", workflow.now() + AGAIN * s.timings.poll)
            continue
        drain = s.drains.pop(name, None)
        if drain is not None and output.answered:
            left = f"; left: {', '.join(output.left)}" if output.left else ""
            owner.note("ConfigDrainDone", f"{name} has got {call.wish}{left}")
        owner.nudge()
    if owner.due_then("drains"):
        start(owner)


def stop(owner: ConfigEntity) -> None:
    """Ends those that are under way: the next run begins them again."""
    for call in owner.drain_calls.values():
        owner.drop(call.handle)
    owner.drain_calls.clear()
