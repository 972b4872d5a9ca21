"""The activities of a control plane's guard of etcd: a look at its members, and one change at a time.

What is to be done is decided by planners/control_plane/etcd.py. A change is made only while a fresh look finds what was
decided on, so that a repetition after a lost answer, or one that comes late, does nothing.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from temporalio import activity

from activities.base import Activities
from activities.boundary import NotYet
from activities.kube.etcd import Etcd, EtcdError, connected
from activities.kube.etcdlook import EtcdSeen, control_plane_nodes, endpoints, look
from resources.control_plane.etcd import EtcdAct, EtcdChange, EtcdLook, EtcdView
from resources.errors import ErrorClass
from resources.settings import EtcdSettings, SettingsError


class EtcdActivities(Activities):
    role = "cluster"

    @activity.defn
    async def look_at_etcd(self, input: EtcdLook) -> EtcdView:
        """A poller: it answers when there is something else to see than last time, or when it is to answer at once.

        An etcd that does not answer is something to see, too. Raises SettingsError, KubeError."""
        view = (await self._look(input.cluster, input.seen)).view
        if view.like(input.seen) and not input.at_once:
            raise NotYet(f"{len(view.voters)} members of etcd vote, and nothing has changed", input.interval)
        return view

    @activity.defn
    async def change_etcd(self, input: EtcdChange) -> EtcdView:
        """Makes the change, and looks again. If something else is found than it was decided on, it only says so.

        Raises SettingsError, KubeError, EtcdError."""
        found = await self._look(input.cluster, input.seen)
        if not found.view.like(input.seen):
            return found.view
        async with self._connected(input.cluster) as etcd:
            try:
                await _make(etcd, found, input)
            except EtcdError as e:
                if e.error_class is not ErrorClass.NOT_FOUND:  # somebody else was faster
                    raise
        return (await self._look(input.cluster, found.view)).view

    async def _look(self, cluster: str, seen: EtcdView | None) -> EtcdSeen:
        nodes = await control_plane_nodes(await self.deps.clusters.get(cluster))
        settings = self._settings(cluster)
        async with self._connected(cluster) as etcd:
            return await look(etcd, settings.endpoints or endpoints(nodes), nodes, seen)

    def _connected(self, cluster: str) -> AbstractAsyncContextManager[Etcd]:
        return connected(self._settings(cluster), self.deps.settings.path)

    def _settings(self, cluster: str) -> EtcdSettings:
        settings = self.deps.settings.cluster(cluster).etcd
        if settings is None:
            raise SettingsError(
                f"the guard of etcd is on, and the settings of this worker with the role cluster have no "
                f"clusters.{cluster}.etcd: it needs certificate, key and authority"
            )
        return settings


# -- changing ---------------------------------------------------------------------------------------------------------


async def _make(etcd: Etcd, found: EtcdSeen, change: EtcdChange) -> None:
    """Asks the leader, who alone can move its office; for a removal it is the one that commits it."""
    leader = next((m.id for m in found.view.members if m.leader and m.healthy), None)
    if leader is None:
        raise EtcdError("etcd has no leader that answers")
    if change.act is EtcdAct.MOVE_LEADER:
        await etcd.move_leader(found.urls[leader], change.member)
    else:
        await etcd.remove(found.urls[leader], change.member)
