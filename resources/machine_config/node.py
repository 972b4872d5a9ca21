"""What the planners know of a Node: names of configs, never what is in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator

from resources.base import KEY_MOST, NAME_MOST, TEXT_MOST, Instant, Key, Labels, Name, Said, Word, cut, read_time
from resources.fleet.member import Flag
from resources.machine_config.keys import (
    DIALECTS,
    DRAIN_VERB,
    HISTORIC_CURRENT,
    HISTORIC_DESIRED,
    HISTORIC_TARGET,
    UNCORDON_VERB,
    UPDATE_TAINT,
    Dialect,
    DialectName,
)
from resources.names import MACHINE_NAME_LABEL, ZONE_LABEL
from resources.redact import hide_secrets

OS_LABEL = "kubernetes.io/os"
_HEALTHY = {"Ready": "True", "DiskPressure": "False", "NetworkUnavailable": "False"}
"""Conditions of a node that may take work, as upstream judges it (layered_node_state.go); an absent one is fine."""


class DaemonState(StrEnum):
    """What the daemon of a Node says it is doing; seed 004's three words, and those that today's daemon has besides."""

    UNKNOWN = ""
    """It has said nothing, or a word that we do not know."""
    DONE = "done"
    WORKING = "working"
    DEGRADED = "degraded"
    UNRECONCILABLE = "unreconcilable"
    """It cannot get from its config to the desired one."""
    REBOOTING = "rebooting"

    @classmethod
    def read(cls, text: str) -> DaemonState:
        """Reads it in any case: the seed writes `done`, today's daemon `Done`."""
        return _STATES.get(text.strip().lower(), cls.UNKNOWN)

    @property
    def failed(self) -> bool:
        """Whether it cannot continue on its own."""
        return self in (DaemonState.DEGRADED, DaemonState.UNRECONCILABLE)


Marked = Annotated[str, AfterValidator(partial(cut, most=NAME_MOST + 40))]
"""A config's name, with or without a verb, as an annotation says it: anybody may write one of any length. Cuts."""
_STATES = {str(state): state for state in DaemonState}


class ConfigNode(NamedTuple):
    """A Node as machine configs see it; a tuple, so that thousands travel in one payload."""

    name: Name
    labels: Labels
    """Those of its labels that the pools' selectors name."""
    uid: Key = ""
    created: Instant | None = None
    zone: Word = ""
    ready: Flag = False
    """Whether the kubelet reports NodeReady, as the seed counts."""
    ailing: Word = ""
    """The first condition that keeps it from taking work (Ready, DiskPressure, NetworkUnavailable), as upstream judges
    candidates: one without conditions has none."""
    unschedulable: Flag = False
    deleting: Flag = False
    windows: Flag = False
    current: Marked = ""
    """The rendered config that it has."""
    desired: Marked = ""
    """The rendered config that it is to have."""
    state: DaemonState = DaemonState.UNKNOWN
    reason: Said = ""
    """Why it is degraded, in the daemon's words."""
    desired_drain: Marked = ""
    last_drain: Marked = ""
    tainted: Flag = False
    """Whether it has the taint UpdateInProgress."""
    machine: Name = ""
    """The machine of ours behind it; "": none."""
    dialect: DialectName = DialectName.SEED
    """The keys in which its daemon is answered."""

    @property
    def asks(self) -> tuple[str, str]:
        """What its daemon asks for and has not got: `drain` or `uncordon`, and for which config; else two ""."""
        if not self.desired_drain or self.desired_drain == self.last_drain:
            return "", ""
        verb, _, config = self.desired_drain.partition("-")
        return (verb, config) if verb in (DRAIN_VERB, UNCORDON_VERB) and config else ("", "")


def dialect_of(annotations: Mapping[str, str], preferred: Dialect) -> Dialect:
    """The keys in which a Node's daemon is answered: those in which it says what it has; where it has said nothing yet,
    or says it in several, the preferred ones."""
    others = [d for d in DIALECTS.values() if d.name != preferred.name]
    speaks = [d for d in (preferred, *others) if annotations.get(d.current)]
    return speaks[0] if speaks else preferred


def config_node(
    node: Mapping[str, Any], preferred: Dialect, keys: Collection[str] = (), machine: str | None = None
) -> ConfigNode:
    """The facts of a Node, as the API server writes it.

    `keys`: the labels that are kept. `machine`: the machine of ours behind it; None: the one that its label names."""
    meta, spec = node["metadata"], node.get("spec") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    conditions = {c.get("type"): c.get("status", "") for c in (node.get("status") or {}).get("conditions") or ()}
    dialect = dialect_of(annotations, preferred)
    current = (annotations.get(dialect.current) or annotations.get(HISTORIC_CURRENT, ""))[:NAME_MOST]
    desired = (annotations.get(dialect.desired) or annotations.get(HISTORIC_DESIRED, ""))[:NAME_MOST]
    return ConfigNode(
        name=meta["name"],
        uid=meta.get("uid", ""),
        created=read_time(meta.get("creationTimestamp")),
        zone=labels.get(ZONE_LABEL, ""),
        labels={k: labels[k] for k in sorted(keys) if k in labels},
        ready=conditions.get("Ready") == "True",
        ailing=next((c for c, status in _HEALTHY.items() if conditions.get(c, status) != status), ""),
        unschedulable=bool(spec.get("unschedulable")),
        deleting="deletionTimestamp" in meta,
        windows=labels.get(OS_LABEL) == "windows",
        current=current,
        desired=desired,
        state=_state(annotations, dialect, current, desired),
        # A kubelet writes its own annotations, of up to 256 KiB: whatever it says must be decoded, and stay small.
        reason=cut(hide_secrets(annotations.get(dialect.reason, "")[:TEXT_MOST])),
        desired_drain=annotations.get(dialect.desired_drain, "")[:KEY_MOST],
        last_drain=annotations.get(dialect.last_drain, "")[:KEY_MOST],
        tainted=any(t.get("key") == UPDATE_TAINT for t in spec.get("taints") or ()),
        machine=labels.get(MACHINE_NAME_LABEL, "") if machine is None else machine,
        dialect=dialect.name,
    )


def _state(annotations: Mapping[str, str], dialect: Dialect, current: str, desired: str) -> DaemonState:
    """What the daemon says; for a node with the historic keys alone, what they come to (seed 004, UpdateController)."""
    said = annotations.get(dialect.state)
    if said is not None or HISTORIC_CURRENT not in annotations or annotations.get(dialect.current):
        return DaemonState.read(said or "")
    if current == desired:
        return DaemonState.DONE
    target = annotations.get(HISTORIC_TARGET)
    return DaemonState.WORKING if target and target == desired else DaemonState.UNKNOWN
