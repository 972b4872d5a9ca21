"""The doctor's question about builds: which workflows are pinned to one that no worker runs.

Where a deployment has a name, Temporal keeps each workflow on the build that it began with (docs/production.md,
Upgrading). One whose build nobody runs stands still, and its task queue looks served all the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.client import Client
from temporalio.common import SearchAttributeKey

from starter.doctor.findings import Finding, problem
from starter.sdk.errors import translated

VERSION = SearchAttributeKey.for_keyword("TemporalWorkerDeploymentVersion")
"""The server's own: `<deployment>:<build>`."""
MOST = 10
"""Builds that are named one by one."""
SOME = 5
_PLAIN = re.compile(r"[^'\"\\\s]+")
"""What a query may carry."""


def version_of(poller: PollerInfo) -> str:
    """The version that a worker runs; "" for one that is not versioned."""
    ours = poller.deployment_options
    return f"{ours.deployment_name}:{ours.build_id}" if ours.deployment_name and ours.build_id else ""


async def examine(temporal: Client, queue: str, run: Collection[str]) -> list[Finding]:
    """What is pinned to other versions than those that are run, by version. Raises HostlerError."""
    known = {version for version in run if _PLAIN.fullmatch(version)}
    found: list[Finding] = []
    with translated():
        while len(found) < MOST:
            others = ", ".join(f"'{version}'" for version in sorted(known))
            query = f"TaskQueue='{queue}' AND ExecutionStatus='Running' AND TemporalWorkflowVersioningBehavior='Pinned'"
            query += f" AND TemporalWorkerDeploymentVersion NOT IN ({others})" if others else ""
            first = [e async for e in temporal.list_workflows(query, limit=1)]
            version = first[0].typed_search_attributes.get(VERSION) if first else None
            if not version or version in known or not _PLAIN.fullmatch(version):
                break
            found.append(await _pinned(temporal, queue, version))
            known.add(version)
    return found


async def _pinned(temporal: Client, queue: str, version: str) -> Finding:
    theirs = f"TemporalWorkerDeploymentVersion='{version}' AND ExecutionStatus='Running'"
    query = f"TaskQueue='{queue}' AND TemporalWorkflowVersioningBehavior='Pinned' AND {theirs}"
    count = (await temporal.count_workflows(query)).count
    ids = sorted([e.id async for e in temporal.list_workflows(query, limit=SOME)])
    names = ", ".join(ids) + (", …" if count > len(ids) else "")
    deployment, _, build = version.rpartition(":")
    return problem(
        "workflows",
        f"{count} {'is' if count == 1 else 'are'} pinned to build {build} of {deployment}, which no worker runs, and "
        f"{'makes' if count == 1 else 'make'} no progress: {names}",
        f"run a worker of that build (worker.buildId: {build}); then hostler renew all -A moves them to the current. "
        "Where that build cannot be run any more, move them without it: temporal workflow update-options --query "
        f'"{theirs}" --versioning-override-behavior auto_upgrade (docs/production.md, Upgrading)',
    )
