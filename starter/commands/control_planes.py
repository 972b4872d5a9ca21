"""The control plane in hostler get|delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from starter.commands import fleets
from starter.commands.kinds import CONTROL_PLANE
from starter.commands.rows import AGE, Column, Listing, phase_style

if TYPE_CHECKING:
    from resources.control_plane.state import ControlPlaneState
    from resources.control_plane.summary import ControlPlaneSummary
    from starter.sdk.client import HostlerClient
    from starter.sdk.control_plane.results import ControlPlaneListed
    from starter.sdk.entity import EntityKey
    from starter.sdk.results import Json


def _own(of: Callable[[ControlPlaneSummary], int | str]) -> Callable[[ControlPlaneListed], int | str | None]:
    """Its own account: empty where no worker answers."""
    return lambda c: of(c.summary) if c.summary else None


def _quorum(s: ControlPlaneSummary | None) -> str:
    return "" if s is None else "red" if s.ready < s.quorum else "yellow" if s.unavailable else "green"


def _class(s: ControlPlaneSummary) -> str:
    return f"{s.machine_class}, generation {s.generation}" if s.generation else s.machine_class


COLUMNS: tuple[Column[ControlPlaneListed], ...] = (
    Column("NAME", lambda c: c.name),
    Column("DESIRED", _own(lambda s: s.replicas), drop=4),
    Column("CURRENT", _own(lambda s: s.machines), drop=3),
    Column("READY", _own(lambda s: s.ready), style=lambda c: _quorum(c.summary)),
    Column("UPDATED", _own(lambda s: s.updated)),
    Column("UNAVAILABLE", _own(lambda s: s.unavailable), drop=6),
    Column("STATE", _own(lambda s: s.state), drop=2),
    Column("PHASE", lambda c: c.phase, style=lambda c: phase_style(c.phase)),
    Column("REASON", lambda c: c.reason, drop=1),
    Column(AGE, lambda c: c.created, drop=5),
    Column("STRATEGY", _own(lambda s: s.strategy), wide=True),
    Column("QUORUM", _own(lambda s: s.quorum), wide=True),
    Column("REVISION", _own(lambda s: s.revision), wide=True),
    Column("CLASS", _own(_class), wide=True),
)
"""OpenShift's columns (`oc get controlplanemachineset`), and ours."""


def listing(client: HostlerClient, names: Sequence[str], all_clusters: bool) -> Listing[ControlPlaneListed]:
    return fleets.listing(client, CONTROL_PLANE, COLUMNS, _manifest, names, all_clusters)


def _manifest(state: ControlPlaneState, summary: ControlPlaneSummary | None) -> Json:
    from starter.sdk.control_plane.results import control_plane_manifest

    return control_plane_manifest(state, summary)


async def deletion_foretold(client: HostlerClient, key: EntityKey) -> str | list[str]:
    """What --dry-run says."""
    from starter.sdk.results import since
    from starter.sdk.spelling import counted

    cluster, name = key
    found = await client.control_planes.describe(name, cluster=cluster)  # a mistyped name is reported here too
    if not found.running:
        return f"is already gone{since(found.ended)}"
    count = found.summary.machines if found.summary else found.machines
    return [
        "deletion (dry run)",
        f"  {counted(count)} of it stay{'s' * (count == 1)} as they are, with VM and Node, and belong to no set: none",
        "  is replaced any longer. To look after them again, apply the manifest again",
    ]
