"""A Gardener Shoot, as far as it says something of hosts: each of its workers is a WorkerPool, whose infrastructure is
the Infrastructure manifest of the Shoot's name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from resources.clouds import PROVIDERS
from resources.names import CLUSTER_ANNOTATION, OWN_API_VERSION, UPDATE_CONCURRENCY_ANNOTATION

SHOOT = "Shoot"
API_GROUP = "core.gardener.cloud/"
ANNOTATIONS = (CLUSTER_ANNOTATION, UPDATE_CONCURRENCY_ANNOTATION)
"""Those of a Shoot that are for its worker pools too; the others are Gardener's."""
HERE = "spec.provider.workers"


class NoWorkers(ValueError):
    """The Shoot has nothing to make a worker pool of; the message says where and why."""


def workers_of(shoot: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Each worker as a WorkerPool's document, and where it stands in the Shoot. Raises NoWorkers."""
    metadata, spec = _mapping(shoot, "metadata"), _mapping(shoot, "spec")
    provider = _mapping(spec, "provider", "spec.")
    kind, workers = provider.get("type"), provider.get("workers")
    name = next((p for p in PROVIDERS if p.lower() == str(kind).lower()), None)
    if name is None:
        known = ", ".join(sorted(p.lower() for p in PROVIDERS))
        raise NoWorkers(f"spec.provider.type: {str(kind)[:79]!r} has no driver; there are drivers for {known}")
    if not isinstance(workers, list) or not workers:
        raise NoWorkers(f"{HERE}: there are none, so nothing to apply")
    about = metadata.get("annotations")
    kept = {key: about[key] for key in ANNOTATIONS if key in about} if isinstance(about, dict) else {}
    shared = {"annotations": kept, **({"namespace": metadata["namespace"]} if "namespace" in metadata else {})}
    for n, worker in enumerate(workers):
        if not isinstance(worker, dict):
            raise NoWorkers(f"{HERE}[{n}]: a worker is a mapping, not {type(worker).__name__}")
        settings = {key: value for key, value in worker.items() if key != "name"}
        of_shoot = {"provider": name, "infrastructureRef": {"name": metadata.get("name")}}
        yield (
            {
                "apiVersion": OWN_API_VERSION,
                "kind": "WorkerPool",
                "metadata": {**shared, "name": worker.get("name")},
                "spec": {**settings, **of_shoot, **_maintenance(spec)},
            },
            f"{HERE}[{n}]",
        )


def _maintenance(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The Shoot's maintenance window, which counts for its workers."""
    given = spec.get("maintenance")
    window = given.get("timeWindow") if isinstance(given, dict) else None
    return {"maintenance": {"timeWindow": window}} if window else {}


def _mapping(within: Mapping[str, Any], key: str, path: str = "") -> Mapping[str, Any]:
    found = within.get(key)
    if not isinstance(found, dict):
        raise NoWorkers(f"{path}{key}: missing, or not a mapping")
    return found
