"""Rendering without a cluster: what the manifests of machine configs come to, by the same pure functions that a worker
asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Any

from planners.machine_config.picture import Picture, RenderOptions
from planners.machine_config.rehearsal import settled, stored
from resources.machine_config.keys import (
    CONTROLLER_CONFIG,
    KUBELET_CONFIG,
    MACHINE_CONFIG,
    MACHINE_CONFIG_POOL,
    ConfigKind,
)
from resources.machine_config.objects import ConfigObject, MachineConfigPool
from resources.machine_config.settings import MachineConfigSettings
from starter.sdk.errors import NotFound, Refused
from starter.sdk.results import Json
from starter.sdk.spelling import did_you_mean


@dataclass(frozen=True)
class RenderedPool:
    """What one pool comes to."""

    pool: MachineConfigPool
    rendered: Json
    """The rendered MachineConfig."""
    sources: tuple[str, ...]
    """The MachineConfigs that it was made of, in their order."""
    made: tuple[Json, ...]
    """The MachineConfigs that the templates and KubeletConfigs came to."""
    troubles: tuple[str, ...] = ()
    """What could not be rendered besides."""


def render(
    pool: str,
    manifests: Sequence[ConfigObject],
    templates: Mapping[str, str],
    options: RenderOptions,
    now: datetime,
) -> RenderedPool:
    """Renders a pool. Raises NotFound for one that is in none of the manifests, Refused with all that stands against
    it."""
    picture = _picture(manifests, templates, now)
    names = [str(p["metadata"]["name"]) for p in picture.pools]
    if pool not in names:
        there = f"; there are {', '.join(sorted(names))}" if names else ": add its MachineConfigPool (-f)"
        raise NotFound(f"no MachineConfigPool {pool} is in these files{did_you_mean(pool, names) or there}")
    found = settled(picture, options, now)
    told = [t for t in found.troubles if t.kind != MACHINE_CONFIG_POOL or t.name == pool]  # others are not asked for
    troubles = [f"{t.kind.kind} {t.name}: {t.reason}: {t.message}" for t in told]
    of = MachineConfigPool.of_dict(next(p for p in found.picture.pools if p["metadata"]["name"] == pool))
    target = of.spec.configuration.name
    rendered = next((c for c in found.picture.configs if c["metadata"]["name"] == target), None)
    if rendered is None:
        paused = ["it is paused: nothing is rendered for it"] if of.spec.paused else []
        raise Refused("\n".join([f"{MACHINE_CONFIG_POOL.kind} {pool} is not rendered", *paused, *troubles]))
    given = {str(m.name) for m in manifests}
    others = [c for c in found.picture.configs if c["metadata"]["name"] not in given]
    made = tuple(_plain(c) for c in others if not str(c["metadata"]["name"]).startswith("rendered-"))
    sources = tuple(source.name for source in of.spec.configuration.source)
    return RenderedPool(of, _plain(rendered), sources, made, tuple(troubles))


def options_of(given: MachineConfigSettings | None) -> RenderOptions:
    """How a worker with these settings renders."""
    if given is None:
        return RenderOptions(version=version("hostler"))
    return RenderOptions(given.worker_first, given.feature_gates, given.keep_rendered, version("hostler"))


def _picture(manifests: Sequence[ConfigObject], templates: Mapping[str, str], now: datetime) -> Picture:
    """A cluster that has these objects and no Nodes."""

    def of(kind: ConfigKind) -> tuple[Json, ...]:
        return tuple(stored(m.to_dict(), now) for m in manifests if kind == m.KIND)

    return Picture(
        configs=of(MACHINE_CONFIG),
        pools=of(MACHINE_CONFIG_POOL),
        kubelet_configs=of(KUBELET_CONFIG),
        controller_configs=of(CONTROLLER_CONFIG),
        templates=templates,
    )


def _plain(config: Mapping[str, Any]) -> Json:
    """A MachineConfig as one would write it: without what only an API server knows."""
    meta = {k: v for k, v in config["metadata"].items() if k in ("name", "labels", "annotations") and v}
    return {"apiVersion": config["apiVersion"], "kind": config["kind"], "metadata": meta, "spec": config["spec"]}
