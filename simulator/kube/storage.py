"""Rules of PersistentVolumes, their claims and VolumeAttachments.

Upstream: pkg/registry/core/persistentvolume, persistentvolumeclaim, pkg/registry/storage/volumeattachment, and the
admission plugin StorageObjectInUseProtection. Binding, provisioning and attaching are done by controllers.
"""

from __future__ import annotations

from simulator.kube.errors import FieldErrors
from simulator.kube.objects import Obj, dig
from simulator.kube.validation import subdomain_problem

VOLUME_PROTECTION = "kubernetes.io/pv-protection"
CLAIM_PROTECTION = "kubernetes.io/pvc-protection"

_NO_SOURCES = {
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
}
"""Fields of a PersistentVolume's spec; every other one is a source."""


def volume(obj: Obj, old: Obj | None, errors: FieldErrors) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    sources = {k: v for k, v in spec.items() if k not in _NO_SOURCES}
    if old is None:
        obj["status"] = {"phase": "Pending"}
        _protect(obj, VOLUME_PROTECTION)
    elif sources != {k: v for k, v in old["spec"].items() if k not in _NO_SOURCES}:
        errors.forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation")
    if not spec.get("accessModes"):
        errors.required("spec.accessModes")
    if not dig(spec, "capacity.storage"):
        errors.required("spec.capacity")
    if not sources:
        errors.required("spec", "must specify a volume type")
    if len(sources) > 1:
        errors.forbidden(f"spec.{sorted(sources)[1]}", "may not specify more than 1 volume type")


def claim(obj: Obj, old: Obj | None, errors: FieldErrors) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    if old is None:
        obj["status"] = {"phase": "Pending"}
        _protect(obj, CLAIM_PROTECTION)
    elif _fixed(spec, old["spec"]) != _fixed(old["spec"], old["spec"]):
        why = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        errors.forbidden("spec", why)
    if not spec.get("accessModes"):
        errors.required("spec.accessModes", "at least 1 access mode is required")
    if not dig(spec, "resources.requests.storage"):
        errors.required("spec.resources[storage]")


def _fixed(spec: Obj, old: Obj) -> Obj:
    """What must stay: all but the size, and a volume's name once there is one (its binder writes it)."""
    free = {"resources"} if old.get("volumeName") else {"resources", "volumeName"}
    return {k: v for k, v in spec.items() if k not in free}


def attachment(obj: Obj, old: Obj | None, errors: FieldErrors) -> None:
    spec = obj.setdefault("spec", {})
    obj.setdefault("status", {}).setdefault("attached", False)  # not an optional field: a server sends it
    if old is not None and spec != old["spec"]:
        errors.invalid("spec", spec, "field is immutable")
    if not spec.get("attacher"):
        errors.required("spec.attacher")
    if problem := subdomain_problem(spec.get("nodeName") or ""):
        errors.invalid("spec.nodeName", spec.get("nodeName") or "", problem)
    source = spec.get("source") or {}
    if not any(source.get(s) for s in ("persistentVolumeName", "inlineVolumeSpec")):
        errors.required("spec.source", "must specify one of inlineVolumeSpec and persistentVolumeName")


def _protect(obj: Obj, finalizer: str) -> None:
    finalizers = obj["metadata"].setdefault("finalizers", [])
    if finalizer not in finalizers:
        finalizers.append(finalizer)
