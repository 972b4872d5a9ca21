"""What a machine needs to know of its Node: the projection that the watch signals, and its digest."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from resources.base import read_time
from resources.canonical import lasting
from resources.machine.facts import NodeFacts
from resources.names import (
    INSTANCE_NOT_READY_TAINT,
    MARKED_ANNOTATION,
    PRESERVE_ANNOTATION,
    PRIORITY_ANNOTATION,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_BY_PRESERVATION,
    STARTUP_TAINTS,
)

HEALTHY_WHEN_FALSE = "False"
ANNOTATIONS = (MARKED_ANNOTATION, PRIORITY_ANNOTATION, PRESERVE_ANNOTATION)
"""The annotations that a machine reads; a change of any other is no news."""


def project(node: dict[str, Any], epoch: int, seq: int, twins: Iterable[str] = ()) -> NodeFacts:
    """The facts of one Node object as JSON. Heartbeat times are not among them: they would be a change every time.

    Kubelets and people write to a Node what they like. Long words, long lists and absurd times are cut; raises what
    `MALFORMED` names where an identity (name, uid, providerID) is invalid.
    """
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    ready = conditions.get("Ready", {})
    taints = {t.get("key") for t in spec.get("taints") or ()}
    annotations = metadata.get("annotations") or {}
    return NodeFacts(
        epoch=epoch,
        seq=seq,
        exists=True,
        name=metadata["name"],
        provider_id=spec.get("providerID") or "",
        uid=metadata.get("uid", ""),
        created=_created(metadata),
        ready=ready.get("status") == "True",
        conditions={
            kind: c["status"]
            for kind, c in sorted(conditions.items())
            if kind != "Ready" and c["status"] != HEALTHY_WHEN_FALSE
        },
        reason="" if ready.get("status") == "True" else _reason(ready),
        not_ready_taint=INSTANCE_NOT_READY_TAINT in taints,
        startup_taints=sorted(taints.intersection(STARTUP_TAINTS)),
        unschedulable=bool(spec.get("unschedulable")),
        deleting=bool(metadata.get("deletionTimestamp")),
        addresses=sorted({a["address"] for a in status.get("addresses") or () if a.get("address")}),
        annotations=_annotations(annotations),
        twins=sorted(twins),
    )


def _created(metadata: dict[str, Any]) -> datetime:
    created = read_time(metadata["creationTimestamp"])
    if created is None:
        raise ValueError("its creationTimestamp is not a time")
    return created


def _annotations(there: dict[str, str]) -> dict[str, str]:
    """The annotations that count. scale-down-disabled is among them only where a preservation is concerned, so that a
    rollout's marks are no news; "" where it was removed from a Node that is preserved."""
    read = {k: there[k] for k in ANNOTATIONS if k in there}
    if SCALE_DOWN_DISABLED_BY_PRESERVATION in there:
        read[SCALE_DOWN_DISABLED] = there.get(SCALE_DOWN_DISABLED, "")
    elif PRESERVE_ANNOTATION in there and SCALE_DOWN_DISABLED in there:
        read[SCALE_DOWN_DISABLED] = there[SCALE_DOWN_DISABLED]
    return read


def _reason(ready: dict[str, Any]) -> str:
    if not ready:
        return "the kubelet has not reported yet"
    reason = ready.get("reason", f"Ready is {ready.get('status', 'absent')}")
    return f"{reason}: {ready.get('message', '')}".rstrip(" .:")


ALWAYS = {
    *("exists", "name", "provider_id", "uid", "created", "ready", "conditions", "reason", "startup_taints"),
    *("deleting", "addresses"),
}
"""The fields that have been in the digest from the beginning."""
NEVER = {"epoch", "seq", "unschedulable", "not_ready_taint"}


def digest(facts: NodeFacts) -> str:
    """8 bytes in base64. The digest leaves out what Hostler itself writes on a Node (the cordon, the removal of the
    ready taint), and numbers in the kubelet's words ("PLEG was last seen active 3m5s ago"), which move with every
    report. A field that is seldom set counts only when it is: so the digest is the same as before that field existed,
    and an upgrade tells nobody the same again."""
    words = facts.model_copy(update={"reason": re.sub(r"[\d.]+", "", facts.reason)})
    return base64.b64encode(hashlib.sha256(lasting(words, ALWAYS, NEVER).encode()).digest()[:8]).decode()
