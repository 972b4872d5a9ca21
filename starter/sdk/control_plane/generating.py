"""A manifest for the control plane that a cluster has already."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from resources.control_plane.generation import generated, is_control_plane
from resources.control_plane.spec import State
from resources.machine.state import MachineState
from resources.owner import CONTROL_PLANE
from starter.sdk import parallel
from starter.sdk.errors import Refused
from starter.sdk.results import Json

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient


async def generate(client: HostlerClient, names: Sequence[str] | None = None, *, cluster: str | None = None) -> Json:
    """An Inactive ControlPlaneMachineSet as it is printed. `names`: the machines; None: those whose labels say that
    they are of the control plane. Raises Refused, NotFound, NoAnswer."""
    where = client.connection.where(cluster)
    there = await client.control_planes.current(CONTROL_PLANE.only, cluster=where)
    if there is not None and there.spec.state is State.ACTIVE:
        raise Refused(
            f"the control plane of cluster {where} is Active: `hostler get controlplane -o yaml` prints its manifest"
        )
    wanted = names if names is not None else [m.name for m in await client.list(cluster=where)]
    states: list[MachineState] = await parallel.each(partial(client.get, name, cluster=where) for name in wanted)
    ours = [s for s in states if is_control_plane(s) and s.deletion is None]
    machines = states if names is not None else ours
    try:
        made = generated(machines)
    except ValueError as e:
        raise Refused(str(e)) from None
    return made.model_dump(mode="json", by_alias=True, exclude_unset=True)
