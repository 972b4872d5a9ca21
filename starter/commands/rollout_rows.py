"""`hostler get rollouts`: those under way, and those that have ended while Temporal keeps them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starter.commands.rows import AGE, OF, Form, Row, print_objects, print_rows

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient
    from starter.sdk.pools.results import RolloutListed

COLUMNS = ("POOL", "REVISION", "PHASE", "UPDATED", "OLD", "REASON", AGE)
WIDE = (*COLUMNS, "LOST", "TOOK", "MESSAGE")


async def show_rollouts(client: HostlerClient, names: list[str], form: Form, watch: bool, all_clusters: bool) -> None:
    """Shows the rollouts of these pools, or of all if none is named."""

    async def found() -> list[RolloutListed]:
        if not names:
            return await client.pools.rollouts(all_clusters=all_clusters)
        return [r for name in names for r in await client.pools.rollouts(name, all_clusters=all_clusters)]

    if form in (Form.JSON, Form.YAML):
        await print_objects([_object(r) for r in await found()], form, single=False)
        return

    async def rows() -> list[Row]:
        return [_row(r, all_clusters) for r in await found()]

    columns = WIDE if form is Form.WIDE else COLUMNS
    where = "" if all_clusters else f" in cluster {client.cluster}"
    nothing = f"No rollouts found{where}: no pool has replaced a machine recently."
    await print_rows((OF, *columns) if all_clusters else columns, "PHASE", rows, form, watch, nothing)


def _row(r: RolloutListed, all_clusters: bool) -> Row:
    from starter.output import age

    now, told = datetime.now(UTC), r.result or r.state
    cells = {OF: r.cluster, "POOL": r.pool, "REVISION": str(r.revision), "PHASE": r.phase, "REASON": r.reason}
    cells |= {AGE: age(now - r.began), "TOOK": age(r.ended - r.began) if r.ended else ""}
    cells |= dict.fromkeys(("UPDATED", "OLD", "LOST", "MESSAGE"), "")
    if told is not None:
        c = told.counts
        cells |= {"UPDATED": f"{c.updated}/{c.replicas}", "OLD": str(c.old), "LOST": str(c.lost)}
    if r.result is not None:
        cells["MESSAGE"] = r.result.message
    elif r.state is not None:
        cells["MESSAGE"] = "; ".join(w.message for w in r.state.waits)
    key = ("rollout", r.cluster) if all_clusters else ("rollout",)
    return Row((*key, r.pool, str(r.revision)), cells)


def _object(r: RolloutListed) -> dict[str, Any]:
    """The rollout in Kubernetes' form, for programs; it is no manifest: a rollout comes from a pool's."""
    status: dict[str, Any] = {"phase": r.phase, "reason": r.reason, "began": r.began.isoformat()}
    if r.ended is not None:
        status["ended"] = r.ended.isoformat()
    if (told := r.result or r.state) is not None:
        kept = {"counts", "steps", "steps_dropped", "waits", "stops_at", "message", "gate", "former"}
        status |= told.model_dump(mode="json", by_alias=True, include=kept, exclude_none=True)
    return {
        "apiVersion": "hostler.io/v1",
        "kind": "Rollout",
        "metadata": {"name": f"{r.pool}-{r.revision}", "cluster": r.cluster},
        "spec": {"pool": r.pool, "revision": r.revision},
        "status": {k: v for k, v in status.items() if v not in ("", [], None)},
    }
