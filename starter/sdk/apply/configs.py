"""The custom resources of machine configs of one run of `apply`: they go to the cluster's own API, and nowhere else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from resources.machine_config.objects import ConfigObject, ControllerConfig, KubeletConfig, MachineConfig
from starter.sdk.clusters import Clusters
from starter.sdk.errors import Refused
from starter.sdk.results import Applied, Verb
from starter.sdk.starts import start_machine_configs

if TYPE_CHECKING:
    from starter.sdk.machine_config.objects import Comparison, ConfigObjects

ORDER = (ControllerConfig, MachineConfig, KubeletConfig)
"""What pools are rendered from comes before the pools."""
WORKFLOW_KIND = "machineconfigs"


@dataclass(frozen=True)
class ConfigToApply:
    """A custom resource, or the workflow that renders a cluster's, and what is done with it."""

    kind: str
    name: str
    verb: Verb
    lines: tuple[str, ...] = ()
    """What changes in it."""
    run: Callable[[], Awaitable[Applied]] | None = None


@dataclass
class ConfigPlanner:
    """Reads custom resources and judges their manifests."""

    clusters: Clusters
    force: bool = False
    """Whether fields that others have are taken over."""

    async def plan(self, cluster: str, manifests: Sequence[ConfigObject]) -> list[ConfigToApply]:
        """What is done in one cluster, in this order."""
        from starter.sdk.machine_config.objects import config_objects  # the Kubernetes client takes a second to import

        found = sorted(manifests, key=lambda m: ORDER.index(type(m)) if type(m) in ORDER else len(ORDER))
        async with config_objects(self.clusters.settings, cluster) as objects:
            compared = await self._compared(objects, found)
        plans = [
            ConfigToApply(
                m.KIND.singular,
                m.name,
                found.verb,
                tuple(found.lines),
                None if found.owned else partial(self._send, cluster, m, found.verb),
            )
            for m, found in compared
        ]
        if self.unattended(cluster) or await self.clusters.renders_configs(cluster):
            return plans
        return [*plans, ConfigToApply(WORKFLOW_KIND, cluster, Verb.CREATED, run=partial(self._start, cluster))]

    def unattended(self, cluster: str) -> str:
        """Why nobody will look after a cluster's machine configs; "" where somebody does."""
        found = self.clusters.settings.clusters.get(cluster)
        if found is not None and found.machine_configs.enabled:
            return ""
        return (
            f"cluster {cluster}: nothing renders its machine configs: set clusters.{cluster}.machineConfigs.enabled in "
            "the settings of its workers, and here"
        )

    async def _compared(
        self, objects: ConfigObjects, manifests: Sequence[ConfigObject]
    ) -> list[tuple[ConfigObject, Comparison]]:
        """What is done with each. Raises Refused with every conflict."""
        done, refused = [], []
        for manifest in manifests:
            try:
                done.append((manifest, await objects.compare(manifest, self.force)))
            except Refused as e:
                refused.append(str(e))
        if refused:
            raise Refused("\n".join(refused))
        return done

    async def _send(self, cluster: str, manifest: ConfigObject, verb: Verb) -> Applied:
        from starter.sdk.machine_config.objects import config_objects

        async with config_objects(self.clusters.settings, cluster) as objects:
            await objects.write(manifest, self.force)
        return Applied(manifest.KIND.singular, manifest.name, verb)

    async def _start(self, cluster: str) -> Applied:
        await start_machine_configs(self.clusters.temporal, self.clusters.settings, cluster)
        return Applied(WORKFLOW_KIND, cluster, Verb.CREATED)
