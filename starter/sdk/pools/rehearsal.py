"""What a pool's rehearsal says about preserved machines, for who asks something of the pool or of one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resources.pool.intents import PoolQuestion
from starter.sdk.errors import HostlerError
from starter.sdk.fleet.rehearsal import deletes

if TYPE_CHECKING:
    from starter.sdk.pools.shelf import Pools


async def warnings(pools: Pools, name: str, question: PoolQuestion, *, cluster: str | None = None) -> list[str]:
    """What one should know before it is done; nothing where the pool does not answer."""
    try:
        return deletes(await pools.rehearse(name, question, cluster=cluster))
    except HostlerError:
        return []


async def but(pools: Pools, machine: str, name: str, *, cluster: str) -> str:
    """What is stronger now than a preservation of this machine of pool `name`; "" if nothing is."""
    try:
        found = await pools.rehearse(name, PoolQuestion(keep=[machine]), cluster=cluster)
    except HostlerError:
        return ""
    if found.refused or not (found.preserved or found.overrides):
        return ""
    pause = f"`hostler rollout pause {name} --cluster {cluster}` holds it"
    if machine in found.preserved:
        steps = [s.message for plan in found.plans for s in plan if machine in s.message]
        return f"but pool {name} deletes it all the same ({steps[0] if steps else 'its rollout'}); {pause}"
    return f"but while the rollout of pool {name} runs, a machine that fails is replaced, and not preserved; {pause}"
