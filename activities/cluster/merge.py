"""Three-way merge of a node template onto a living Node: what we applied last, what is wanted now, what is there.

What others own is never touched; a taint that somebody else removed is never added again (field case P39).
"""

from __future__ import annotations

from typing import Any

from resources.machine.manifest import NodeTemplate, Taint
from resources.names import PRESERVE_ANNOTATION


def merge_map(live: dict[str, str], last: dict[str, str], wanted: dict[str, str]) -> dict[str, str | None]:
    """The merge patch for labels or annotations: changed keys, and None for keys that we applied and no longer want."""
    patch: dict[str, str | None] = {k: v for k, v in wanted.items() if live.get(k) != v}
    patch.update({k: None for k in last if k not in wanted and k in live})
    return patch


def merge_taints(live: list[dict[str, Any]], last: list[Taint], wanted: list[Taint]) -> list[dict[str, Any]] | None:
    """The whole new list (it is atomic at the API server); None when nothing differs. A taint's identity is its key and
    effect."""
    known = {(t.key, t.effect) for t in last}
    want = {(t.key, t.effect): t for t in wanted}
    there = {(t.get("key"), t.get("effect")) for t in live}
    result = []
    for taint in live:
        identity = (taint.get("key"), taint.get("effect"))
        if identity in known and identity not in want:
            continue
        keep = dict(taint)
        if identity in want:
            keep.pop("value", None)
            if want[identity].value is not None:
                keep["value"] = want[identity].value
        result.append(keep)
    for identity, taint_wanted in want.items():
        if identity not in there and identity not in known:
            result.append(taint_wanted.model_dump(exclude_none=True, include={"key", "value", "effect"}))
    return result if result != live else None


def merge_request(live: str | None, given: str | None, wanted: str | None) -> str | None:
    """The value of the annotation `preserve` that should stand there. In a template it is a request, and is made once:
    when it has been fulfilled, withdrawn or answered by a person with another value, no edit of the template makes it
    again. Another value in the template is another request."""
    answered = live not in (None, given)
    return live if wanted == given or answered else wanted


def template_patch(
    node: dict[str, Any], last: NodeTemplate | None, wanted: NodeTemplate, given: str = ""
) -> dict[str, Any]:
    """The merge patch that brings a Node to its template; empty when it is there. Taints carry the resourceVersion.

    `given`: the request to preserve that the template has made before, also on a former Node object.
    """
    before = last or NodeTemplate()
    metadata = node["metadata"]
    patch: dict[str, Any] = {}
    labels = merge_map(metadata.get("labels") or {}, before.metadata.labels, wanted.metadata.labels)
    there = metadata.get("annotations") or {}
    annotations = merge_map(there, before.metadata.annotations, wanted.metadata.annotations)
    annotations.pop(PRESERVE_ANNOTATION, None)
    former = given or before.metadata.annotations.get(PRESERVE_ANNOTATION)
    live = there.get(PRESERVE_ANNOTATION)
    request = merge_request(live, former, wanted.metadata.annotations.get(PRESERVE_ANNOTATION))
    if request != live:
        annotations[PRESERVE_ANNOTATION] = request
    if labels:
        patch.setdefault("metadata", {})["labels"] = labels
    if annotations:
        patch.setdefault("metadata", {})["annotations"] = annotations
    taints = merge_taints((node.get("spec") or {}).get("taints") or [], before.spec.taints, wanted.spec.taints)
    if taints is not None:
        patch["spec"] = {"taints": taints}
        patch.setdefault("metadata", {})["resourceVersion"] = metadata["resourceVersion"]
    return patch
