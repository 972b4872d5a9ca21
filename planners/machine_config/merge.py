"""Merges the MachineConfigs of a pool into one spec.

The order is that of the names, purely (seed 004); where `worker_first` is set, those with the role worker come first,
as upstream has done since 2023, so that what is meant for a pool beats what is meant for all workers whatever its
name. The first is the base and the others are appended, later ones winning (upstream: MergeMachineConfigs).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planners.machine_config.ignition import EMPTY, IgnitionError, read
from planners.machine_config.ignition_merge import merged
from planners.machine_config.objects import Obj, is_generated, name_of, role_of, spec_of

EXTENSIONS = (
    "ipsec",
    "kerberos",
    "kernel-devel",
    "sandboxed-containers",
    "sysstat",
    "two-node-ha",
    "usbguard",
)
KERNELS = ("", "default", "realtime", "64k-pages")


class MergeError(ValueError):
    """A MachineConfig cannot be merged; the message names it, and the field."""

    def __init__(self, config: str, words: str) -> None:
        super().__init__(f"MachineConfig {config}: {words}")
        self.config = config


def in_order(configs: Iterable[Obj], worker_first: bool = False) -> list[Obj]:
    """Sorts them by name; by role before that, if `worker_first`."""
    return sorted(configs, key=lambda c: (worker_first and role_of(c) != "worker", name_of(c)))


def merge(configs: Iterable[Obj], defaults: Mapping[str, Any], worker_first: bool = False) -> dict[str, Any]:
    """The spec of the rendered config. `defaults`: the spec of the ControllerConfig, which names the images where no
    MachineConfig of a person does. Raises MergeError."""
    chosen = in_order(configs, worker_first)
    ignition: dict[str, Any] = {}
    for config in chosen:
        mine = checked(config)
        ignition = merged(ignition, mine) if ignition else mine
    specs = [spec_of(c) for c in chosen]
    spec: dict[str, Any] = {
        "config": _overwriting(ignition or dict(EMPTY)),
        "extensions": [e for s in specs for e in s.get("extensions") or ()],
        "fips": any(s.get("fips") is True for s in specs),
        "kernelArguments": [a for s in specs for a in s.get("kernelArguments") or ()],
        "kernelType": _last(specs, "kernelType", nothing=("", "default")) or "default",
    }
    if "kernel-devel" in spec["extensions"] and spec["kernelType"] != "default":
        guilty = [name_of(c) for c in chosen if "kernel-devel" in (spec_of(c).get("extensions") or ())]
        words = f"spec.extensions: kernel-devel is not there for the kernel {spec['kernelType']}; leave one of them out"
        raise MergeError(guilty[-1], words)
    people = [spec_of(c) for c in chosen if not is_generated(c)]
    for key in ("osImageURL", "baseOSExtensionsContainerImage"):
        spec[key] = _last(people, key) or defaults.get(key) or ""
    return spec


def checked(config: Obj) -> dict[str, Any]:
    """The Ignition config of a MachineConfig, as version 3.5. Raises MergeError for whatever is wrong with its spec."""
    spec, name = spec_of(config), name_of(config)
    for key in ("kernelArguments", "extensions"):
        listed = spec.get(key) or []
        if not isinstance(listed, list) or not all(isinstance(t, str) and t for t in listed):
            raise MergeError(name, f"spec.{key}: a list of texts is needed")
    if (kernel := spec.get("kernelType") or "") not in KERNELS:
        raise MergeError(name, f"spec.kernelType: {kernel!r} is not supported; write {', '.join(KERNELS[1:])}")
    if strange := [e for e in spec.get("extensions") or () if e not in EXTENSIONS]:
        raise MergeError(name, f"spec.extensions: {strange[0]!r} is not supported; there are {', '.join(EXTENSIONS)}")
    try:
        return read(spec.get("config"))
    except IgnitionError as e:
        raise MergeError(name, f"spec.config: {e}") from None


def _last(specs: Sequence[Mapping[str, Any]], key: str, nothing: tuple[str, ...] = ("",)) -> str:
    return next((str(s[key]) for s in reversed(specs) if (s.get(key) or "") not in nothing), "")


def _overwriting(config: dict[str, Any]) -> dict[str, Any]:
    """Every file with contents overwrites what is there, unless it says that it does not. One without contents may not
    say so (Ignition: ErrOverwriteAndNilSource)."""
    files = config.get("storage", {}).get("files")
    if not files:
        return config
    overwriting = [
        {**f, "overwrite": True} if "overwrite" not in f and "source" in f.get("contents", {}) else f for f in files
    ]
    return {**config, "storage": {**config["storage"], "files": overwriting}}
