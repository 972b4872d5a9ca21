"""`hostler get rollouts`: those under way, and those that have ended while Temporal keeps them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from starter.commands.kinds import ROLLOUT
from starter.commands.rows import AGE, Column, Listing, listed, phase_style

if TYPE_CHECKING:
    from resources.pool.rollout import RolloutCounts
    from starter.sdk.client import HostlerClient
    from starter.sdk.pools.results import RolloutListed
    from starter.sdk.results import Json


def _counted(of: Callable[[RolloutCounts], int | str]) -> Callable[[RolloutListed], int | str | None]:
    """What a rollout counts itself: empty where there is no account of it."""

    def value(r: RolloutListed) -> int | str | None:
        told = r.result or r.state
        return of(told.counts) if told else None

    return value


def _message(r: RolloutListed) -> str:
    if r.result is not None:
        return r.result.message
    return "; ".join(w.message for w in r.state.waits) if r.state else ""


def _took(r: RolloutListed) -> str:
    from starter.output import age

    return age(r.ended - r.began) if r.ended else ""


COLUMNS: tuple[Column[RolloutListed], ...] = (
    Column("POOL", lambda r: r.pool),
    Column("REVISION", lambda r: r.revision),
    Column("PHASE", lambda r: r.phase, style=lambda r: phase_style(r.phase)),
    Column("UPDATED", _counted(lambda c: f"{c.updated}/{c.replicas}"), drop=2),
    Column("OLD", _counted(lambda c: c.old), drop=4),
    Column("REASON", lambda r: r.reason, drop=1),
    Column(AGE, lambda r: r.began, drop=3),
    Column("LOST", _counted(lambda c: c.lost), wide=True),
    Column("TOOK", _took, wide=True),
    Column("MESSAGE", _message, wide=True),
)


def listing(client: HostlerClient, names: Sequence[str], all_clusters: bool) -> Listing[RolloutListed]:
    """The rollouts of these pools, or of all if none is named."""

    async def found() -> list[RolloutListed]:
        if not names:
            return await client.pools.rollouts(all_clusters=all_clusters)
        return [r for name in names for r in await client.pools.rollouts(name, all_clusters=all_clusters)]

    def key(r: RolloutListed) -> tuple[str, ...]:
        return (*((ROLLOUT, r.cluster) if all_clusters else (ROLLOUT,)), r.pool, str(r.revision))

    where = "" if all_clusters else f" in cluster {client.cluster}"
    return Listing(
        listed(COLUMNS, all_clusters),
        find=found,
        key=key,
        objects=_objects,
        nothing=f"No rollouts found{where}: no pool has replaced a machine recently.",
    )


async def _objects(found: Sequence[RolloutListed]) -> list[Json | None]:
    return [_object(r) for r in found]


def _object(r: RolloutListed) -> Json:
    """The rollout in Kubernetes' form, for programs; it is no manifest: a rollout comes from a pool's."""
    from starter.sdk.results import timestamp

    status: Json = {"phase": r.phase, "reason": r.reason, "began": timestamp(r.began), "ended": timestamp(r.ended)}
    if (told := r.result or r.state) is not None:
        kept = {"counts", "steps", "steps_dropped", "waits", "stops_at", "message", "gate", "former"}
        status |= told.model_dump(mode="json", by_alias=True, include=kept, exclude_none=True)
    return {
        "apiVersion": "hostler.io/v1",
        "kind": "Rollout",
        "metadata": {
            "name": f"{r.pool}-{r.revision}",
            "cluster": r.cluster,
            "creationTimestamp": timestamp(r.began),
        },
        "spec": {"pool": r.pool, "revision": r.revision},
        "status": {k: v for k, v in status.items() if v not in ("", [], None)},
    }
