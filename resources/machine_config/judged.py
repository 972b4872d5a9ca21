"""What a person should not write in a manifest of machine configs, though the API server would keep it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from resources.apimachinery import label_value, qualified_name
from resources.base import NAME_MOST
from resources.machine_config.keys import CONTROLLER, RENDERED_PREFIX
from resources.machine_config.objects import (
    ControllerConfig,
    KubeletConfig,
    KubeletConfigSpec,
    MachineConfig,
    MachineConfigPool,
    MachineConfigPoolSpec,
    MachineConfigSpec,
)
from resources.selectors import LabelSelector

ConfigMistakes = Iterator[tuple[str, str]]

POOL_MOST = NAME_MOST - len(RENDERED_PREFIX) - 33
"""The longest name of a pool, so that its rendered configs' names (`rendered-<pool>-<32 characters>`) are names too."""
KERNELS = ("", "default", "realtime", "64k-pages")
_PERCENT = re.compile(r"(100|[1-9]?[0-9])%")
LOG_LEVELS = range(11)


def config_mistakes(model: type[BaseModel], name: str, spec: Any) -> ConfigMistakes:
    """The paths of fields that are wrong, and what to write instead. `spec`: None where it cannot be read."""
    if issubclass(model, MachineConfig):
        yield from _machine_config(name, spec)
    elif issubclass(model, MachineConfigPool):
        yield from _pool(name, spec)
    elif issubclass(model, KubeletConfig) and spec is not None:
        yield from _kubelet_config(spec)
    elif issubclass(model, ControllerConfig) and name and name != CONTROLLER:
        yield "metadata.name", f"the only ControllerConfig that counts is {CONTROLLER}: give it that name"


def _machine_config(name: str, spec: MachineConfigSpec | None) -> ConfigMistakes:
    if name.startswith(RENDERED_PREFIX):
        yield (
            "metadata.name",
            f"names that begin with {RENDERED_PREFIX} are those of Hostler's own: choose another",
        )
    if spec is not None and spec.kernel_type not in KERNELS:
        yield "spec.kernelType", f"not a known kernel; write {', '.join(KERNELS[1:-1])} or {KERNELS[-1]}"


def _pool(name: str, spec: MachineConfigPoolSpec | None) -> ConfigMistakes:
    if len(name) > POOL_MOST:
        words = f"longer than {POOL_MOST} characters, so that its rendered configs could not be named: shorten it"
        yield "metadata.name", words
    if spec is None:
        return
    if len(chosen := spec.chosen_by) > 1:
        words = f"{' and '.join(chosen)} both say which machines are the pool's: keep one of them"
        yield f"spec.{chosen[1]}", words
    for field, selector in (
        ("machineConfigSelector", spec.machine_config_selector),
        ("machineSelector", spec.machine_selector),
        ("nodeSelector", spec.node_selector),
    ):
        yield from _selector(selector, f"spec.{field}")
    yield from _amount(spec.max_unavailable)


def _amount(value: Any) -> ConfigMistakes:
    """OpenShift refuses the same when it is too late: in the pool's status."""
    if value is None or (isinstance(value, int) and value >= 0):
        return
    if not (isinstance(value, str) and _PERCENT.fullmatch(value)):
        yield "spec.maxUnavailable", "neither a count nor a percentage; write it like 2 or 20%"


def _kubelet_config(spec: KubeletConfigSpec) -> ConfigMistakes:
    yield from _selector(spec.machine_config_pool_selector, "spec.machineConfigPoolSelector")
    if spec.tls_security_profile is not None:
        yield "spec.tlsSecurityProfile", "not supported: set tlsCipherSuites and tlsMinVersion under kubeletConfig"
    if spec.log_level is not None and spec.log_level not in LOG_LEVELS:
        yield "spec.logLevel", f"{spec.log_level} is no level; write 0 to {LOG_LEVELS[-1]}"


def _selector(selector: LabelSelector | None, path: str) -> ConfigMistakes:
    if selector is None:
        return
    if not selector.match_labels and not selector.match_expressions:
        yield path, "an empty selector selects nothing here: name labels, or leave it out"
    for key, value in selector.match_labels.items():
        if wrong := qualified_name(key):
            yield f"{path}.matchLabels", wrong
        if wrong := label_value(value):
            yield f"{path}.matchLabels.{key}", wrong
    for n, one in enumerate(selector.match_expressions):
        if bool(one.values) != (one.operator in ("In", "NotIn")):
            yield f"{path}.matchExpressions[{n}].values", f"{one.operator} takes {_values(one.operator)}"


def _values(operator: str) -> str:
    return "at least one value" if operator in ("In", "NotIn") else "none"
