"""What a pool knows of a machine of its own that has lost its workflow, and what the pool is told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from temporalio.service import RPCError

from resources.fleet.member import Vm
from resources.fleet.membership import MemberReport, member_state
from resources.machine.state import MachineState, Phase
from resources.names import MACHINE_NAME_LABEL, TAG_MACHINE, class_id, pool_id
from resources.orphans import OwnedVm
from resources.owner import Owner
from resources.pool.state import PoolState
from starter.sdk.connection import Connection
from starter.sdk.errors import NotFound, Refused, no_such_workflow, translated
from starter.sdk.pools.shelf import Pools
from starter.sdk.results import Adopted, Life, since

UNLISTED = "not listed"
"""The state of a VM that its account does not list: only its machine can look for it by id."""
SUFFIXES = 2
"""A pool's machine is called `<pool>-<revision's letters>-<its own>`."""


async def pool_of(pools: Pools, name: str, cluster: str, pool: str = "") -> PoolState | None:
    """The running pool that counts the machine among its own; None when there is none. The pool to ask is known, or is
    in the machine's name. Raises NoAnswer without a worker."""
    asked = pool or name.rsplit("-", SUFFIXES)[0]
    try:
        state = await pools.get(asked, cluster=cluster)
    except NotFound:
        return None
    return state if name in state.members else None


def membership(pool: PoolState, name: str) -> dict[str, Any]:
    """What makes the machine the pool's again."""
    revision = pool.members[name].revision
    return {"owner": Owner(name=pool.name), "revision": revision, "template": pool.template_of(revision)}


def made_from(pool: PoolState, name: str) -> MachineState | None:
    """The machine as its pool makes those of its revision; without a uid, which only the machine knew. None when the
    pool does not know its revision either."""
    revision = pool.find(pool.members[name].revision)
    return member_state(pool, Owner(name=pool.name), name, revision) if revision else None


def recorded(name: str, account: str, life: Life | None, former: MachineState | None) -> list[OwnedVm]:
    """The VM that the machine had, by what is recorded of it; none when too little is. A machine that has it again
    looks by id. If it finds the VM gone, its pool replaces it like any other machine, and its disks, NICs and Node are
    deleted.
    """
    if life is None or former is None or former.attempt is None or not (life.summary.provider_id and former.uid):
        return []
    return [
        OwnedVm(provider_id=life.summary.provider_id, machine=name, uid=former.uid, state=UNLISTED, account=account)
    ]


def refuse_too_early(name: str, life: Life | None, former: MachineState | None, now: datetime) -> None:
    """Refuses while it is too early. A create call that was under way when the workflow was ended goes on without it:
    for as long as such a call may last and a cloud may not show what it has made, "no VM" is not known."""
    if life is None or life.closed is None or former is None:
        return
    known = life.closed + former.timings.call_timeout + former.timings.consistency
    if now < known:
        raise Refused(
            f"machine {name} has no VM, but its workflow has only been ended{since(life.closed)}, and a call from "
            f"then may still create one: try again at {known:%H:%M:%S} UTC"
        )


async def give_up(connection: Connection, pool: PoolState, name: str, machine_class: str) -> Adopted:
    """Gives the machine up. No VM is left, and nothing is recorded by which a machine could look after the rest: its
    class and its pool hear of its end, as from a machine that is gone."""
    now = datetime.now(UTC)
    report = MemberReport(
        machine=name,
        seq=int(now.timestamp()),  # above any that it ever sent
        phase=Phase.TERMINATING,
        since=now,
        vm=Vm.GONE,
        message=f"it has no VM any longer; asked by {connection.requested_by}",
        ended=True,
    )
    with translated():
        try:
            await connection.temporal.get_workflow_handle(class_id(pool.cluster, machine_class)).signal(
                "forget_user", name
            )
        except RPCError as e:
            if not no_such_workflow(e):  # a class that is not there has nothing to forget
                raise
        await connection.temporal.get_workflow_handle(pool_id(pool.cluster, pool.name)).signal("report", report)
    staying = [n for n, m in pool.members.items() if n != name and not m.leaving]
    wanted = 0 if pool.deleted or pool.spec.hibernated else pool.spec.replicas
    then = "makes another" if len(staying) < wanted else "no longer counts it"
    return Adopted(
        name=name,
        cluster=pool.cluster,
        vm=None,
        pool=pool.name,
        notes=(
            f"it has no VM any longer; pool {pool.name} is told and {then}",
            f"disks and NICs are not listed: look in the cloud for those tagged {TAG_MACHINE}={name}, and delete "
            f"them; also its Node, if one is left: kubectl get nodes -l {MACHINE_NAME_LABEL}={name}",
        ),
    )
