"""What can be said of a worker pool's parts that depend on the cloud, before it is applied."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from resources.clouds.workers import WorkerPlug
from resources.judged import Judged, judge_document, known_provider, lines_of


def judge_worker_pool(document: dict[str, Any], where: str, judged: Judged) -> None:
    """A WorkerPool's `providerConfig` and `infrastructure`."""
    spec = document.get("spec")
    if not isinstance(spec, dict) or (plug := _plug(spec, where, judged)) is None:
        return  # the model says so
    _judge("spec.providerConfig", plug.config, spec.get("providerConfig"), where, judged)
    _judge("spec.infrastructure", plug.infrastructure, spec.get("infrastructure"), where, judged)


def judge_infrastructure(document: dict[str, Any], where: str, judged: Judged) -> None:
    """An Infrastructure's `spec`."""
    if (plug := _plug(document, where, judged)) is not None:
        _judge("spec", plug.infrastructure, document.get("spec"), where, judged)


def _plug(holder: dict[str, Any], where: str, judged: Judged) -> WorkerPlug | None:
    provider = known_provider(holder.get("provider"), where, judged)
    if provider is not None and provider.workers is None:
        words = "has no worker pools; apply a MachineDeployment for each zone"
        judged.errors += lines_of(where, [f"provider {provider.name} {words}"])
    return None if provider is None else provider.workers


def _judge(path: str, model: type[BaseModel], given: Any, where: str, judged: Judged) -> None:
    if isinstance(given, dict):
        judge_document(model, given, f"{path}.", where, judged)
