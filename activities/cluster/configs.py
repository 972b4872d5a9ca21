"""Rendering: the objects of a cluster's machine configs become what the templates, the pools and people ask for.

What is to be done is decided by `planners/machine_config/reconcile.py`, which is asked until it wants nothing. It is
asked here and not by a workflow: a rendered config may be over a megabyte, and none is ever in a payload.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from importlib.metadata import version

from temporalio import activity

from activities.base import Activities
from activities.boundary import progress
from activities.clock import ServerClock
from activities.kube.client import Kube, KubeError, Object, segment
from activities.kube.events import tell_as
from activities.kube.looks import PAGE, every_node, pages
from planners.machine_config.picture import (
    ConfigChange,
    ConfigChanges,
    ConfigEvent,
    Picture,
    RenderOptions,
    RenderTrouble,
)
from planners.machine_config.reconcile import plan
from resources.base import few
from resources.calls.machine_config import ConfigTrouble, PoolBrief, SyncInput, SyncOutput
from resources.errors import ErrorClass
from resources.machine_config.keys import (
    API,
    CONTROLLER_CONFIG,
    DIALECTS,
    HISTORIC_CURRENT,
    HISTORIC_DESIRED,
    HISTORIC_TARGET,
    KUBELET_CONFIG,
    MACHINE_CONFIG,
    MACHINE_CONFIG_POOL,
    ConfigKind,
)
from resources.machine_config.settings import MachineConfigSettings
from resources.machine_config.templates import TemplatesError, folder, shipped
from resources.settings import Settings, SettingsError

CONFIGS_PAGE = "20"
"""MachineConfigs in one answer: each may be over a megabyte."""
ROUNDS = 40
"""How often the plan is asked in one call, so that somebody who always writes against us holds no worker for ever."""
LATER = timedelta(seconds=30)
"""When it is tried again after so many rounds."""
NAMING = (
    *(key for d in DIALECTS.values() for key in (d.current, d.desired)),
    *(HISTORIC_CURRENT, HISTORIC_DESIRED, HISTORIC_TARGET),
)
"""Annotations of Nodes that name a rendered config."""


class ConfigRenderActivities(Activities):
    role = "cluster"

    @activity.defn
    async def sync_configs(self, input: SyncInput) -> SyncOutput:
        """Makes, changes and deletes objects until nothing more is wanted. What the API server refuses is a trouble of
        that object, and holds up only what depends on it. Raises KubeError, SettingsError."""
        kube = await self.deps.clusters.get(input.cluster)
        given = self.deps.machine_configs(input.cluster)
        return await Rendering(kube, options(given), templates(self.deps.settings, given)).run()


def options(given: MachineConfigSettings) -> RenderOptions:
    return RenderOptions(
        worker_first=given.worker_first,
        feature_gates=given.feature_gates,
        keep_rendered=given.keep_rendered,
        version=version("hostler"),
    )


def templates(settings: Settings, given: MachineConfigSettings) -> Mapping[str, str]:
    """Raises SettingsError where there is no such folder, or it cannot be read."""
    try:
        return _shipped() if given.templates is None else folder(settings.path(given.templates))
    except TemplatesError as e:
        raise SettingsError(f"machineConfigs.templates: {e}") from None


_shipped = functools.cache(shipped)


@dataclass
class Rendering:
    kube: Kube
    options: RenderOptions
    templates: Mapping[str, str]
    clock: ServerClock = field(default_factory=ServerClock)
    written: list[str] = field(default_factory=list)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    """Why an object could not be written, by kind and name: it is not tried again in this call."""
    named: frozenset[str] | None = None
    """What Nodes name, once it was read: only where something would be collected otherwise."""

    async def run(self) -> SyncOutput:
        picture, wanted = Picture(), ConfigChanges()
        for count in range(ROUNDS):
            picture = await self._look()
            wanted = plan(picture, self.options, self.clock.now())
            todo = [change for change in wanted.changes if _about(change.kind, change.name) not in self.refused]
            if not todo and self.named is None and self._would_collect(picture):
                self.named = await self._named()
                continue
            if not todo:
                return self._output(picture, wanted.troubles)
            progress(f"round {count + 1}: {len(todo)} objects to write, {len(self.written)} written")
            if await self._write(todo):
                await self._tell(picture, wanted.events)
        return self._output(picture, wanted.troubles).model_copy(update={"again": LATER})

    async def _look(self) -> Picture:
        return Picture(
            configs=await self._list(MACHINE_CONFIG, CONFIGS_PAGE),
            pools=await self._list(MACHINE_CONFIG_POOL),
            kubelet_configs=await self._list(KUBELET_CONFIG),
            controller_configs=await self._list(CONTROLLER_CONFIG),
            templates=self.templates,
            named=self.named,
        )

    async def _list(self, kind: ConfigKind, limit: str = PAGE) -> list[Object]:
        found: list[Object] = []
        async for page in pages(self.kube, _path(kind), limit):
            # The items of a list need not say what they are.
            found += [{"apiVersion": API, "kind": kind.kind, **item} for item in page["items"]]
        return found

    def _would_collect(self, picture: Picture) -> bool:
        """Whether anything would be deleted if no Node named anything: then all Nodes are read."""
        found = plan(replace(picture, named=frozenset()), self.options, self.clock.now())
        return any(change.verb == "delete" for change in found.changes)

    async def _named(self) -> frozenset[str]:
        annotations = [node["metadata"].get("annotations") or {} async for node in every_node(self.kube)]
        return frozenset(a[key] for a in annotations for key in NAMING if a.get(key))

    # -- writing ------------------------------------------------------------------------------------------------------

    async def _write(self, todo: Iterable[ConfigChange]) -> bool:
        """Makes the changes in their order. False where somebody else was faster: then all is read again, and what is
        left of the batch is decided anew."""
        for change in todo:
            about = _about(change.kind, change.name)
            try:
                await self._make(change)
            except KubeError as e:
                if e.error_class in (ErrorClass.CONFLICT, ErrorClass.NOT_FOUND):
                    return False
                if e.error_class is not ErrorClass.INVALID and e.status != 413:
                    raise
                self.refused[about] = f"the API server refuses it: {e.message}"
                continue
            self.written.append(f"{'/'.join(about)}: {change.words}")
        return True

    async def _make(self, change: ConfigChange) -> None:
        path = f"{_path(change.kind)}/{segment(change.name)}"
        if change.verb == "create":
            await self.kube.create(_path(change.kind), dict(change.body))
        elif change.verb == "update":
            status = f"/{change.subresource}" if change.subresource else ""
            await self.kube.merge_patch(path + status, change.patch)
        else:
            preconditions = {"uid": change.uid, "resourceVersion": change.resource_version}
            await self.kube.delete(path, {"preconditions": preconditions})

    async def _tell(self, picture: Picture, events: Iterable[ConfigEvent]) -> None:
        now = self.clock.now()
        there = {
            _about(kind, found["metadata"]["name"]): found
            for kind, objects in (
                (MACHINE_CONFIG, picture.configs),
                (MACHINE_CONFIG_POOL, picture.pools),
                (KUBELET_CONFIG, picture.kubelet_configs),
                (CONTROLLER_CONFIG, picture.controller_configs),
            )
            for found in objects
        }
        for event in events:
            if found := there.get(_about(event.kind, event.name)):
                await tell_as(self.kube, dict(found), now, event.reason, event.message, warning=event.warning)

    def _output(self, picture: Picture, troubles: Iterable[RenderTrouble]) -> SyncOutput:
        found = [
            ConfigTrouble(about="/".join(_about(t.kind, t.name)), reason=t.reason, message=t.message) for t in troubles
        ]
        found += [
            ConfigTrouble(about="/".join(about), reason="Refused", message=why) for about, why in self.refused.items()
        ]
        return SyncOutput(
            pools=[_brief(dict(pool)) for pool in picture.pools][:1000],
            written=few(self.written),
            troubles=found[:1000],
        )


def _brief(pool: Object) -> PoolBrief:
    metadata, spec = pool["metadata"], pool.get("spec") or {}
    return PoolBrief(
        name=metadata["name"],
        uid=metadata["uid"],
        target=(spec.get("configuration") or {}).get("name") or "",
        paused=bool(spec.get("paused")),
        generation=metadata.get("generation") or 0,
    )


def _path(kind: ConfigKind) -> str:
    return f"/apis/{API}/{kind.plural}"


def _about(kind: ConfigKind, name: str) -> tuple[str, str]:
    return kind.kind, name
