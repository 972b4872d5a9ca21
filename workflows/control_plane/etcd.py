"""The guard of etcd: one activity at a time, which watches its members or changes one, as the plan wants it.

The watch goes on while nothing leaves: whose a member is must be known before its machine's Node is gone.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import SHORT, failure_of, poller
from workflows.control_plane.entity import ControlPlaneEntity, EtcdCall
from workflows.entity import unheard

with workflow.unsafe.imports_passed_through():
    from activities.cluster.etcd import EtcdActivities
    from planners.control_plane.etcd import Act
    from planners.control_plane.holds import etcd_act
    from planners.waits import wait_after
    from resources.control_plane.etcd import EtcdChange, EtcdLook, EtcdView
    from resources.control_plane.spec import State
    from resources.names import cluster_queue

NEXT = "etcd"
"""The deadline before which nothing is asked again: after trouble, and between two answers in a row."""


def follow(cp: ControlPlaneEntity) -> None:
    """Takes what etcd has answered, and asks for what is wanted now."""
    s, call = cp.s, cp.etcd_call
    if cp.due(NEXT):
        del cp.deadlines[NEXT]
    if not s.spec.etcd_guard or s.spec.state is State.INACTIVE or s.deleted:
        _stop(cp)
        return
    if call is not None and call.handle.done():
        _take(cp, call)
    act = None if s.expected else etcd_act(cp.observed())
    urgent = act is not None or not s.etcd_is_fresh
    if (call := cp.etcd_call) is not None:
        current = call.act is not None or (act is None and set(s.leaving) <= set(call.leaving))
        if current:
            return
        cp.drop(call.handle)
    if NEXT in cp.deadlines and (s.etcd_trouble or not urgent):
        cp.etcd_call = None
        return
    cp.deadlines.pop(NEXT, None)
    handle = _watch(cp) if act is None else _change(cp, act)
    unheard(handle)
    handle.add_done_callback(lambda _: setattr(cp, "news", True))
    cp.etcd_call = EtcdCall(handle, act, s.leaving)


def _stop(cp: ControlPlaneEntity) -> None:
    s = cp.s
    if cp.etcd_call is not None:
        cp.drop(cp.etcd_call.handle)
    cp.etcd_call, s.etcd, s.etcd_for, s.etcd_trouble = None, None, [], ""
    cp.deadlines.pop(NEXT, None)


def _take(cp: ControlPlaneEntity, call: EtcdCall) -> None:
    """Its answer is what etcd is like, whatever was asked; a new plan follows."""
    s, now, former = cp.s, workflow.now(), cp.s.etcd
    cp.etcd_call, cp.news = None, True
    cp.deadlines[NEXT] = now + s.timings.poll
    try:
        s.etcd, s.etcd_for, s.etcd_trouble = call.handle.result(), call.leaving, ""
    except ActivityError as e:
        failure = failure_of(e)
        s.etcd_trouble = failure.info.message
        cp.deadlines[NEXT] = now + wait_after(failure.info, s.timings)
        return
    if call.act is not None and s.etcd.like(former):
        s.etcd_trouble = f"{call.act.message}: etcd took it, and nothing has changed yet"


def _watch(cp: ControlPlaneEntity) -> workflow.ActivityHandle[EtcdView]:
    s = cp.s
    interval = s.timings.poll if s.leaving else s.timings.cloud_watch
    at_once = not s.etcd_is_fresh or bool(s.etcd_trouble)
    return workflow.start_activity_method(
        EtcdActivities.look_at_etcd,
        EtcdLook(cluster=s.cluster, seen=s.etcd, at_once=at_once, interval=interval),
        task_queue=cluster_queue(s.cluster, s.queue_prefix),
        start_to_close_timeout=s.timings.call_timeout,
        heartbeat_timeout=s.timings.heartbeat,
        retry_policy=poller(interval),
        summary="watch etcd's members",
    )


def _change(cp: ControlPlaneEntity, act: Act) -> workflow.ActivityHandle[EtcdView]:
    s = cp.s
    assert s.etcd is not None, "it was decided on by a look"
    cp.note_news(act.reason, act.message)
    return workflow.start_activity_method(
        EtcdActivities.change_etcd,
        EtcdChange(cluster=s.cluster, seen=s.etcd, act=act.act, member=act.member.id),
        task_queue=cluster_queue(s.cluster, s.queue_prefix),
        start_to_close_timeout=s.timings.call_timeout,
        heartbeat_timeout=s.timings.heartbeat,
        retry_policy=SHORT,
        summary=act.message,
    )
