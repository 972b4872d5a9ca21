"""The drains that daemons ask for: one retrying activity for each node, until it has what it asked for."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import Urgency, failure_of, poller
from workflows.machine_config.pool_entity import ConfigPoolEntity, DrainCall

with workflow.unsafe.imports_passed_through():
    from activities.drain.configs import ConfigDrainActivities
    from resources.calls.machine_config import ConfigDrainInput, NodeRef
    from resources.machine_config.keys import DRAIN_VERB
    from resources.machine_config.state import ConfigDrain
    from resources.machine_config.view import ConfigPoolView
    from resources.names import drain_queue

AGAIN = timedelta(minutes=1)
"""When a drain that has failed for good is tried again, as long as the node asks for it."""


def take(pool: ConfigPoolEntity, view: ConfigPoolView) -> None:
    """Takes what nodes ask for. A drain that a node no longer asks for is ended."""
    s, now = pool.s, workflow.now()
    asked: dict[str, ConfigDrain] = {}
    for node in view.nodes:
        if not node.asks[0]:
            continue
        known = s.drains.get(node.name)
        same = known is not None and (known.uid, known.wish) == (node.uid, node.desired_drain)
        asked[node.name] = known if same and known else ConfigDrain(node.uid, node.desired_drain, now)
        if not same:
            pool.note("ConfigDrainAsked", f"{node.name} asks for {node.desired_drain}")
    s.drains = asked
    for name in [n for n, call in pool.drain_calls.items() if n not in asked or asked[n].wish != call.wish]:
        pool.drop(pool.drain_calls.pop(name).handle)
    start(pool)


def start(pool: ConfigPoolEntity) -> None:
    """Starts what is asked for and not under way. None while one that failed is to rest."""
    if "drains" in pool.deadlines:
        return
    s = pool.s
    for name, drain in s.drains.items():
        if name in pool.drain_calls:
            continue
        drains = drain.wish.startswith(f"{DRAIN_VERB}-")
        method = ConfigDrainActivities.drain_for_config if drains else ConfigDrainActivities.uncordon_for_config
        handle = workflow.start_activity_method(
            method,
            ConfigDrainInput(
                cluster=s.cluster,
                pool=s.name,
                node=NodeRef(name=name, uid=drain.uid),
                request=drain.wish,
                since=drain.since,
                poll=s.timings.poll,
            ),
            task_queue=drain_queue(s.cluster, s.queue_prefix),
            start_to_close_timeout=timedelta(minutes=5),
            heartbeat_timeout=s.timings.heartbeat,
            retry_policy=poller(s.timings.poll),
            summary=f"{'drain' if drains else 'uncordon'} {name} for its config",
            priority=Urgency.OTHER,
        )
        pool.drain_calls[name] = DrainCall(drain.wish, handle)


def are_over(pool: ConfigPoolEntity) -> bool:
    """Whether one has ended, or may begin again."""
    return any(call.handle.done() for call in pool.drain_calls.values()) or pool.due("drains")


async def collect(pool: ConfigPoolEntity) -> None:
    """Takes the answers of those that have ended. The next look shows what has become of the node."""
    s = pool.s
    for name in [n for n, call in pool.drain_calls.items() if call.handle.done()]:
        call = pool.drain_calls.pop(name)
        try:
            output = await call.handle
        except ActivityError as e:
            pool.note_news("ConfigDrainFailed", f"{name}, {call.wish}: {failure_of(e).info.message}")
            pool.no_later("drains", workflow.now() + AGAIN)
            continue
        drain = s.drains.pop(name, None)
        if drain is not None and output.answered:
            left = f"; left: {', '.join(output.left)}" if output.left else ""
            pool.note("ConfigDrainDone", f"{name} has got {call.wish}{left}")
        pool.nudge()
    if pool.due_then("drains"):
        start(pool)


def stop(pool: ConfigPoolEntity) -> None:
    """Ends those that are under way: the next run begins them again."""
    for call in pool.drain_calls.values():
        pool.drop(call.handle)
    pool.drain_calls.clear()
