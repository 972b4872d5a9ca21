"""hostler describe mc|kubeletconfig|controllerconfig: what is in it, whom it is for, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from starter.commands.page import next_steps

if TYPE_CHECKING:
    from starter.sdk.machine_config.description import ConfigDescription

SOME = 20
"""Files, units and fields that have a line of their own."""
LONG = 100
"""Characters of one value."""
PLAIN = ("clusterDNSIP", "platform", "osImageURL", "baseOSExtensionsContainerImage")
"""Fields of a ControllerConfig whose values are shown; others may hold credentials, and are named."""


def page(found: ConfigDescription, now: datetime) -> list[str]:
    """The whole answer, as lines."""
    from resources.machine_config.keys import CONTROLLER_CONFIG, KUBELET_CONFIG, MACHINE_CONFIG
    from starter.output import fields

    about = {MACHINE_CONFIG: _machine_config, KUBELET_CONFIG: _kubelet_config, CONTROLLER_CONFIG: _controller_config}
    pairs = [*_head(found, now), *about[found.kind](found)]
    return [*fields(pairs), *_conditions(found, now), *_commands(found)]


def _head(found: ConfigDescription, now: datetime) -> list[tuple[str, str]]:
    from resources.base import read_time
    from starter.output import moment

    meta = found.whole["metadata"]
    labels = "\n".join(f"{key}={value}" for key, value in sorted((meta.get("labels") or {}).items()))
    return [
        ("Name", found.name),
        ("Cluster", found.cluster),
        ("Kind", found.kind.kind),
        ("Labels", labels),
        ("Created", moment(read_time(meta.get("creationTimestamp")), now)),
        ("Being deleted", moment(read_time(meta.get("deletionTimestamp")), now)),
    ]


def _machine_config(found: ConfigDescription) -> list[tuple[str, str]]:
    from planners.machine_config.objects import is_rendered
    from resources.machine_config.keys import GENERATED_BY
    from starter.sdk.machine_config.description import few, maker_of

    spec, maker = found.whole.get("spec") or {}, maker_of(found.whole)
    config = spec.get("config") or {}
    version = (found.whole["metadata"].get("annotations") or {}).get(GENERATED_BY, "")
    by = f"Hostler{f' {version}' if version else ''}, of {maker}" if maker else "a person"
    if is_rendered(found.whole):
        whose = [
            ("Config of", f"pool {', '.join(found.pools)}" if found.pools else "no pool any more"),
            ("Nodes that have it", few(found.having) or "none"),
            ("Nodes to get it", few(found.getting)),
        ]
    else:
        whose = [("Selected by", f"pool {', '.join(found.pools)}" if found.pools else "no pool: it has no effect")]
    storage, systemd, passwd = (config.get(part) or {} for part in ("storage", "systemd", "passwd"))
    return [
        ("Made by", by),
        *whose,
        ("Ignition", str((config.get("ignition") or {}).get("version") or "")),
        ("Files", _lines(str(f.get("path")) for f in storage.get("files") or ())),
        ("Units", _lines(_unit(u) for u in systemd.get("units") or ())),
        ("Users", few([str(u.get("name")) for u in passwd.get("users") or ()])),
        ("Kernel arguments", " ".join(map(str, spec.get("kernelArguments") or ()))),
        ("Kernel type", str(spec.get("kernelType") or "")),
        ("Extensions", ", ".join(map(str, spec.get("extensions") or ()))),
        ("FIPS", "yes" if spec.get("fips") else ""),
        ("OS image", str(spec.get("osImageURL") or "")),
    ]


def _unit(unit: Mapping[str, Any]) -> str:
    drop_ins = [str(d.get("name")) for d in unit.get("dropins") or ()]
    enabled = unit.get("enabled")
    words = [
        *([] if enabled is None else ["enabled" if enabled else "disabled"]),
        *(["masked"] if unit.get("mask") else []),
        *drop_ins,
    ]
    return str(unit.get("name")) + (f" ({', '.join(words)})" if words else "")


def _kubelet_config(found: ConfigDescription) -> list[tuple[str, str]]:
    spec = found.whole.get("spec") or {}
    given = spec.get("kubeletConfig") or {}
    return [
        ("For", f"pool {', '.join(found.pools)}" if found.pools else "no pool: it has no effect"),
        ("Made of it", "\n".join(found.made)),
        ("Log level", str(spec.get("logLevel", ""))),
        ("Reserves by size", "yes" if spec.get("autoSizingReserved") else ""),
        ("Fields", _lines(f"{key}: {_short(value)}" for key, value in sorted(given.items()))),
    ]


def _controller_config(found: ConfigDescription) -> list[tuple[str, str]]:
    from resources.machine_config.keys import CONTROLLER

    spec = found.whole.get("spec") or {}
    counts = "yes" if found.name == CONTROLLER else f"no: only the one named {CONTROLLER} does"
    return [
        ("Counts", counts),
        *((key, str(spec[key])) for key in PLAIN if spec.get(key)),
        ("Images", _lines(f"{key}: {value}" for key, value in sorted((spec.get("images") or {}).items()))),
        ("Other fields", ", ".join(sorted(spec.keys() - {*PLAIN, "images"}))),
        ("Made of it", _lines(found.made)),
    ]


def _conditions(found: ConfigDescription, now: datetime) -> list[str]:
    """What became of it, the newest last."""
    from resources.base import read_time
    from starter.output import Table, relative

    conditions = (found.whole.get("status") or {}).get("conditions") or []
    rows = [
        (
            *(str(c.get(key) or "") for key in ("type", "status", "reason")),
            relative(read_time(c.get("lastTransitionTime")), now),
            str(c.get("message") or ""),
        )
        for c in conditions
    ]
    heads = ("TYPE", "STATUS", "REASON", "SINCE", "MESSAGE")
    return ["", "Conditions:", *(f"  {line}" for line in Table(heads).lines(rows))] if rows else []


def _commands(found: ConfigDescription) -> list[str]:
    """Commands to go on with, ready to be copied."""
    from resources.machine_config.keys import CONTROLLER_CONFIG, MACHINE_CONFIG
    from starter.commands.kinds import SHORT

    word, where = SHORT.get(found.kind.singular, found.kind.singular), f"--cluster {found.cluster}"
    shown = [(f"hostler get {word} {found.name} -o yaml {where}", "see all of it")]
    shown += [(f"hostler rollout status mcp/{pool} {where}", "how far its nodes are") for pool in found.pools[:1]]
    if found.kind == MACHINE_CONFIG and found.pools and found.getting:
        shown.append((f"hostler describe mcp {found.pools[0]} {where}", "which node waits for what"))
    if found.kind != CONTROLLER_CONFIG:
        shown.append((f"hostler delete {word} {found.name} --dry-run {where}", "what its deletion would mean"))
    return next_steps(shown)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONG else f"{text[: LONG - 1]}…"


def _lines(found: Iterable[str]) -> str:
    every = list(found)
    more = [f"and {len(every) - SOME} more"] if len(every) > SOME else []
    return "\n".join([*every[:SOME], *more])
