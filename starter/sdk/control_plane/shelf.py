"""Control planes as HostlerClient sees them: one for each cluster, always of one name, as OpenShift has it.

found = await hostler.control_planes.summary("cluster", cluster="prod")
await hostler.control_planes.wait("cluster", "rolled-out", cluster="prod")
"""

from __future__ import annotations

from resources.control_plane.state import ControlPlaneState
from resources.control_plane.summary import ControlPlaneQuestion, ControlPlaneSummary
from resources.intents import Intent
from resources.owner import CONTROL_PLANE
from resources.pool.intents import UndoIntent
from starter.sdk.control_plane import recorded
from starter.sdk.control_plane.results import ControlPlaneDescription, judge, where
from starter.sdk.errors import NotFound
from starter.sdk.fleet.shelf import FleetShelf
from starter.sdk.fleet.waiting import RolloutVerdict
from starter.sdk.results import Sent


class ControlPlanes(FleetShelf[ControlPlaneState, ControlPlaneSummary, ControlPlaneQuestion]):
    """`HostlerClient.control_planes`. Where `cluster` is not given, it is the client's own; `HostlerClient.apply` takes
    the manifest. Every intent raises NotFound where the cluster has none (any longer), and Refused with its own
    words."""

    noun, plural, workflow, kind = CONTROL_PLANE.word, "controlplanes", CONTROL_PLANE.workflow, CONTROL_PLANE
    model, numbers, question = ControlPlaneState, ControlPlaneSummary, ControlPlaneQuestion
    id_of = staticmethod(CONTROL_PLANE.id)

    async def unknown(self, name: str, cluster: str | None = None) -> NotFound:
        here = self.connection.where(cluster)
        if name != CONTROL_PLANE.only:
            return NotFound(
                f"controlplane {name!r}: a cluster has one control plane, whose name is always {CONTROL_PLANE.only}: "
                "write controlplane alone, and --cluster NAME for that of another cluster"
            )
        return NotFound(
            f"cluster {here!r} has no control plane that Hostler knows: apply a ControlPlaneMachineSet (`hostler "
            f"controlplane generate --cluster {here}` writes one for machines that exist); `hostler get controlplanes "
            "-A` lists those of other clusters"
        )

    async def undo(self, name: str, to: int | None = None, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Goes back to a former revision; without one, to that before the newest."""
        return await self.tell(name, "undo", UndoIntent(**self.connection.by(reason), to=to), cluster=cluster)

    async def delete(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Asks for its end; its machines stay, and belong to nobody. One that is gone already is no error."""
        return await self._end(name, Intent(**self.connection.by(reason)), cluster)

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _recorded(self, workflow_id: str, run_id: str) -> ControlPlaneState:
        return await recorded.read(self.temporal, workflow_id, run_id)

    def judge(self, found: ControlPlaneDescription) -> RolloutVerdict:
        return judge(found)

    def where(self, found: ControlPlaneDescription) -> str:
        return where(found)
