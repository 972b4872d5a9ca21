"""The rendered config of one pool: which MachineConfigs are merged, what it is called, and why there is none.

Source: seed 004 (RenderController), upstream's pkg/controller/render. A paused pool is not rendered, as the seed says;
upstream renders it all the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planners.machine_config.merge import MergeError, in_order, merge
from planners.machine_config.objects import (
    ConfigSelectorError,
    Obj,
    annotations_of,
    is_deleting,
    is_generated,
    is_rendered,
    name_of,
    owner_reference,
    selected,
    selector_at,
    selects_all,
    spec_of,
)
from planners.machine_config.picture import RenderOptions
from planners.machine_config.reconcilable import guilty, irreconcilable
from resources.machine_config.keys import (
    API,
    GENERATED_BY,
    MACHINE_CONFIG,
    MACHINE_CONFIG_POOL,
    OS_IMAGE_OVERRIDDEN,
    ROLE_LABEL,
    rendered_name,
)

SIZE_MOST = 1536 * 1024
"""Bytes of one object that etcd takes."""
SIZE_WARNING = SIZE_MOST * 8 // 10
POOL_NAME_MOST = 253 - len(rendered_name("", "0" * 32))
_SALT = "hostler/machine-config/1\n"
"""Changed with the meaning of a spec, so that no name ever stands for two contents."""


@dataclass(frozen=True)
class RenderRefused:
    """Why a pool is not rendered, for its condition RenderDegraded."""

    reason: str
    message: str


@dataclass(frozen=True)
class Rendered:
    """The rendered config of a pool."""

    config: dict[str, Any]
    """The MachineConfig."""
    source: tuple[str, ...]
    """The MachineConfigs that it was merged of, in that order."""
    warning: str = ""

    @property
    def name(self) -> str:
        return name_of(self.config)


def sources_of(pool: Obj, configs: Sequence[Obj]) -> list[Obj]:
    """The MachineConfigs that a pool selects, without rendered ones and those that are going. Raises
    ConfigSelectorError."""
    found = selected(selector_at(pool, "machineConfigSelector"), configs)
    return [c for c in found if not is_rendered(c) and not is_deleting(c)]


def render(
    pool: Obj, configs: Sequence[Obj], defaults: Mapping[str, Any], options: RenderOptions
) -> Rendered | RenderRefused:
    """The pool's rendered config. `defaults`: the spec of the ControllerConfig."""
    name = name_of(pool)
    try:
        chosen = sources_of(pool, configs)
        if refused := _unfit(pool, chosen, options):
            return refused
        spec = merge(chosen, defaults, options.worker_first)
    except ConfigSelectorError as e:
        return RenderRefused("InvalidSelector", f"Pool {name} cannot be rendered: {e}")
    except MergeError as e:
        return RenderRefused("InvalidMachineConfig", f"Pool {name} cannot be rendered: {e}")
    made = _config(pool, spec, any(spec_of(c).get("osImageURL") for c in chosen if not is_generated(c)), options)
    if refused := _unreachable(pool, configs, chosen, made, options):
        return refused
    size = len(json.dumps(made, separators=(",", ":"), ensure_ascii=False).encode())
    if size > SIZE_MOST:
        return RenderRefused(
            "TooLarge",
            f"Pool {name} cannot be rendered: merged it has {size} bytes, and etcd takes {SIZE_MOST}; take contents "
            f"out of its MachineConfigs, of which {_largest(chosen)} is the largest",
        )
    warning = ""
    if size > SIZE_WARNING:
        warning = f"It has {size} of at most {SIZE_MOST} bytes; the largest part is {_largest(chosen)}"
    return Rendered(made, tuple(name_of(c) for c in in_order(chosen, options.worker_first)), warning)


def _unfit(pool: Obj, chosen: Sequence[Obj], options: RenderOptions) -> RenderRefused | None:
    """Why what the pool selects is not merged at all."""
    name, selector = name_of(pool), selector_at(pool, "machineConfigSelector")
    if selects_all(selector):
        words = "spec.machineConfigSelector is {}, which would select every MachineConfig"
        return RenderRefused("SelectingAll", f"Pool {name} is not rendered: {words}; {_to_select(name)}")
    if len(name) > POOL_NAME_MOST:
        return RenderRefused("NameTooLong", f"Pool {name[:60]}… has a name of more than {POOL_NAME_MOST} characters")
    if not chosen:
        words = "spec.machineConfigSelector is missing" if selector is None else "no MachineConfig matches its selector"
        return RenderRefused("NoMachineConfigs", f"Pool {name} is not rendered: {words}; {_to_select(name)}")
    made_by = {name_of(c): annotations_of(c)[GENERATED_BY] for c in chosen if is_generated(c)}
    for config, version in made_by.items():
        if version != options.version:
            words = (
                f"MachineConfig {config} was made by version {version} of a controller, and this is {options.version}"
            )
            return RenderRefused(
                "OtherVersion", f"Pool {name} is not rendered: {words}; delete it if nobody makes it again"
            )
    return None


def _to_select(pool: str) -> str:
    return f"write `matchLabels: {{{ROLE_LABEL}: {pool}}}`, or another label that MachineConfigs have"


def _config(pool: Obj, spec: dict[str, Any], overridden: bool, options: RenderOptions) -> dict[str, Any]:
    """The same content always has the same name; metadata is not hashed."""
    canonical = json.dumps(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(f"{_SALT}{canonical}".encode()).hexdigest()[:32]
    annotations = {GENERATED_BY: options.version, **({OS_IMAGE_OVERRIDDEN: "true"} if overridden else {})}
    return {
        "apiVersion": API,
        "kind": MACHINE_CONFIG.kind,
        "metadata": {
            "name": rendered_name(name_of(pool), digest),
            "annotations": annotations,
            "ownerReferences": [owner_reference(pool, MACHINE_CONFIG_POOL)],
        },
        "spec": spec,
    }


def _unreachable(
    pool: Obj, configs: Sequence[Obj], chosen: Sequence[Obj], made: Obj, options: RenderOptions
) -> RenderRefused | None:
    """Why no node can get from the config that it is to have now to the new one. Without the present one nothing can be
    compared, and a person who deleted it is not locked out (OCPBUGS-38733)."""
    target = (spec_of(pool).get("configuration") or {}).get("name")
    present = next((c for c in configs if name_of(c) == target), None)
    if not target or present is None or target == name_of(made):
        return None
    found = irreconcilable(spec_of(present), spec_of(made))
    if not found:
        return None
    field, words = found[0]
    by = guilty(field, in_order(chosen, options.worker_first))
    said = f"; see MachineConfig {by}" if by else ""
    at = "spec.fips" if field == "fips" else f"spec.config.{field}"
    return RenderRefused(
        "Irreconcilable",
        f"Pool {name_of(pool)} keeps {target}: a machine that runs cannot follow the change of {at} ({words}){said}. "
        "Take the change back, or replace the machines",
    )


def _largest(configs: Sequence[Obj]) -> str:
    return max((len(json.dumps(spec_of(c))), name_of(c)) for c in configs)[1]
