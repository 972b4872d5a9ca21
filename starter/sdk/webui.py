"""What Temporal's web UI can be told of Hostler: views of what is not well, and columns with phase and reason.

The server stores neither: the UI keeps columns and saved views in the browser, by namespace (temporalio/ui,
configurable-table-columns.ts and saved-queries.ts). So a view is a link, and `script` is for a browser's console.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from urllib.parse import quote, urlencode

from resources import attributes
from starter.sdk.live import running

COLUMNS = ("Status", "Workflow ID", attributes.PHASE.name, attributes.REASON.name, attributes.POOL.name, "Start")
NOT_WELL = ("Failed", "Failed:Preserved", "CrashLoopBackOff", "Unknown", "Unknown:Preserved")
"""Phases of a machine that somebody may want to look at."""

WAITING = ("ClusterWorkflow", "MachineDeploymentWorkflow", "ControlPlaneWorkflow", "MachineConfigPoolWorkflow")
"""Whatever has nodes or machines and may wait for a person; and the cluster, which is what they wait for where its API
server does not answer."""


@dataclass(frozen=True)
class SavedView:
    id: str
    name: str
    query: str


def _among(attribute: str, values: Iterable[str]) -> str:
    named = ", ".join(f"'{value}'" for value in values)
    return f"{attribute} IN ({named})"


VIEWS = (
    SavedView(
        "hostler-machines-not-well",
        "Hostler: machines not well",
        f"{running('MachineWorkflow')} AND {_among(attributes.PHASE.name, NOT_WELL)}",
    ),
    SavedView(
        "hostler-pools-that-wait",
        "Hostler: clusters and pools that wait",
        f"{_among('WorkflowType', WAITING)} AND ExecutionStatus='Running' AND {attributes.REASON.name} IS NOT NULL",
    ),
)


def view_link(ui: str, namespace: str, view: SavedView) -> str:
    """The address of a view: the list of workflows with its query."""
    return f"{ui.rstrip('/')}/namespaces/{quote(namespace, safe='')}/workflows?{urlencode({'query': view.query})}"


def script(namespace: str) -> str:
    """JavaScript for the console of a browser that shows the web UI. It sets the columns of a namespace, and saves the
    views beside those of others."""
    columns = json.dumps([{"label": label} for label in COLUMNS])
    views = json.dumps([asdict(view) for view in VIEWS])
    return f"""\
(() => {{
  const namespace = {json.dumps(namespace)};
  const views = {views};
  const change = (key, make) => {{
    const all = JSON.parse(localStorage.getItem(key) ?? "{{}}");
    localStorage.setItem(key, JSON.stringify({{ ...all, [namespace]: make(all[namespace] ?? []) }}));
  }};
  change("namespace-workflow-table-columns", () => {columns});
  change("saved-workflow-queries", (saved) => [
    ...saved.filter((other) => !views.some((view) => view.id === other.id)),
    ...views,
  ]);
  location.reload();
}})();"""
