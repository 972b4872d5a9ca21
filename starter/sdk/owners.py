"""What an owner of machines knows of one that has lost its workflow, and what the owner is told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from temporalio.service import RPCError

from resources.control_plane.state import ControlPlaneState
from resources.fleet.member import Vm
from resources.fleet.membership import MemberReport, member_state
from resources.fleet.state import FleetState
from resources.machine.state import MachineState, Phase
from resources.names import MACHINE_NAME_LABEL, TAG_MACHINE, class_id
from resources.orphans import OwnedVm
from resources.owner import CONTROL_PLANE, KINDS, Owner
from resources.words import utc_clock
from starter.sdk import live
from starter.sdk.connection import Connection
from starter.sdk.entity import runs
from starter.sdk.errors import NoAnswer, Refused, no_such_workflow, translated
from starter.sdk.results import Adopted, Life, since

UNLISTED = "not listed"
"""The state of a VM that its account does not list: only its machine can look for it by id."""
SUFFIXES = 2
"""An owner's machine is called `<owner>-<revision's letters>-<its own>`."""


class Owning(NamedTuple):
    """A running owner, and its state."""

    owner: Owner
    state: FleetState


async def owner_of(connection: Connection, name: str, cluster: str, known: Owner | None = None) -> Owning | None:
    """The running owner that counts the machine among its own; None when there is none. The owner to ask is known, or
    is in the machine's name. Raises NoAnswer without a worker."""
    named = name.rsplit("-", SUFFIXES)[0]
    for owner in [known] if known else [Owner(kind=kind.manifest, name=kind.only or named) for kind in KINDS.values()]:
        state = await _state(connection, owner, cluster)
        if state is not None and name in state.members:
            return Owning(owner, state)
    return None


async def _state(connection: Connection, owner: Owner, cluster: str) -> FleetState | None:
    """The owner's own state; None when it does not run."""
    handle = connection.temporal.get_workflow_handle(owner.workflow_id(cluster))
    with translated():
        found = await live.described(handle)
        if found is None or not runs(found):
            return None
        try:
            return await live.query(handle, ControlPlaneState if owner.kind == CONTROL_PLANE.manifest else FleetState)
        except NoAnswer as e:
            absent = await live.absence(connection.temporal, found.task_queue, datetime.now(UTC))
            raise NoAnswer(f"{owner} cannot be asked: {absent}; {e}") from None


def membership(of: Owning, name: str) -> dict[str, Any]:
    """What makes the machine its owner's again."""
    member = of.state.members[name]
    template = of.state.template_of(member.revision)
    belongs = {"owner": of.owner, "revision": member.revision, "template": template, "placement": member.placement}
    return belongs | _place(of, name)


def _place(of: Owning, name: str) -> dict[str, Any]:
    """The fields of the machine's failure domain, which a control plane gives."""
    placement = of.state.members[name].placement
    return {"domain": of.state.fields_of(placement)} if isinstance(of.state, ControlPlaneState) else {}


def made_from(of: Owning, name: str) -> MachineState | None:
    """The machine as its owner makes those of its revision; without a uid, which only the machine knew. None when the
    owner does not know its revision either."""
    member = of.state.members[name]
    revision = of.state.find(member.revision)
    if revision is None:
        return None
    made = member_state(of.state, of.owner, name, revision, member.placement)
    return made.model_copy(update=_place(of, name))


def recorded(name: str, account: str, life: Life | None, former: MachineState | None) -> list[OwnedVm]:
    """The VM that the machine had, by what is recorded of it; none when too little is. A machine that has it again
    looks by id. If it finds the VM gone, its owner replaces it like any other machine, and its disks, NICs and Node are
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
            f"then may still create one: try again at {utc_clock(known)}"
        )


async def give_up(connection: Connection, of: Owning, name: str, machine_class: str) -> Adopted:
    """Gives the machine up. No VM is left, and nothing is recorded by which a machine could look after the rest: its
    class and its owner hear of its end, as from a machine that is gone."""
    owner, cluster, now = of.owner, of.state.cluster, datetime.now(UTC)
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
            await connection.temporal.get_workflow_handle(class_id(cluster, machine_class)).signal("forget_user", name)
        except RPCError as e:
            if not no_such_workflow(e):  # a class that is not there has nothing to forget
                raise
        await connection.temporal.get_workflow_handle(owner.workflow_id(cluster)).signal("report", report)
    then = "no longer counts it" if of.state.deleted else "makes another if it needs one"
    return Adopted(
        name=name,
        cluster=cluster,
        vm=None,
        owner=owner,
        notes=(
            f"it has no VM any longer; {owner} is told and {then}",
            f"disks and NICs are not listed: look in the cloud for those tagged {TAG_MACHINE}={name}, and delete "
            f"them; also its Node, if one is left: kubectl get nodes -l {MACHINE_NAME_LABEL}={name}",
        ),
    )
