"""MachineConfigs that a controller owns: they are made, and made again whatever a person does to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planners.machine_config.objects import Obj, annotations_of, copied, is_deleting, labels_of, meta, name_of, spec_of
from planners.machine_config.picture import ConfigChange, created, updated
from resources.machine_config.keys import MACHINE_CONFIG


def kept(wanted: Obj, configs: Sequence[Obj]) -> ConfigChange | None:
    """What makes the MachineConfig be as wanted; None where it is. Labels, annotations and owners of others stay."""
    found = next((c for c in configs if name_of(c) == name_of(wanted)), None)
    if found is None:
        return created(MACHINE_CONFIG, wanted, "it is not there")
    if is_deleting(found):  # somebody's finalizer holds it; once it is gone it is made again
        return None
    if differs := _differences(found, wanted):
        return updated(MACHINE_CONFIG, found, _restored(found, wanted), f"its {' and '.join(differs)} differ")
    return None


def _differences(found: Obj, wanted: Obj) -> list[str]:
    differs = []
    if said(spec_of(found)) != said(spec_of(wanted)):
        differs.append("spec")
    if not labels_of(wanted).items() <= labels_of(found).items():
        differs.append("labels")
    if not annotations_of(wanted).items() <= annotations_of(found).items():
        differs.append("annotations")
    if [o for o in _owners(wanted) if o not in _owners(found)]:
        differs.append("owner")
    return differs


def said(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What a spec asks for: an API server may add fields that are empty, or take them out."""
    return {k: v for k, v in spec.items() if v not in (None, "", False, [], {})}


def _owners(obj: Obj) -> list[Mapping[str, Any]]:
    return list(meta(obj).get("ownerReferences") or ())


def _restored(found: Obj, wanted: Obj) -> dict[str, Any]:
    new = copied(found)
    new["spec"] = copied(spec_of(wanted))
    mine = _owners(wanted)
    others = [o for o in _owners(found) if o.get("kind") not in {m["kind"] for m in mine} and not o.get("controller")]
    new["metadata"] = {
        **new["metadata"],
        "labels": {**labels_of(found), **labels_of(wanted)},
        "annotations": {**annotations_of(found), **annotations_of(wanted)},
        "ownerReferences": [*others, *copied({"o": mine})["o"]],
    }
    return new
