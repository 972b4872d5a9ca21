"""hostler scale"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import candidates
from starter.commands.blocks import command
from starter.commands.common import Asking, NamesArgument, ReasonOption, named, target
from starter.commands.kinds import POOL, WORKER_POOL
from starter.commands.pools import DryRunOption, each

if TYPE_CHECKING:
    from resources.pool.intents import PoolQuestion
    from starter.sdk.client import HostlerClient
    from starter.sdk.results import Sent


@command
def scale(
    *,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="pool (machinedeployment, mcd) or workerpool; also pool/NAME.",
            autocompletion=candidates.kinds("pool", WORKER_POOL),
        ),
    ],
    names: NamesArgument = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", min=0, max=5000, help="The number of machines.", show_default=False)
    ] = None,
    current: Annotated[
        int | None,
        typer.Option("--current-replicas", min=0, help="Only if this is the current number.", show_default=False),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="MACHINE", help="This machine goes first; repeatable.", show_default=False),
    ] = None,
    dry_run: DryRunOption = False,
    reason: ReasonOption = "",
    here: Asking,
) -> None:
    """Change how many machines a pool has: scale pool NAME --replicas N; as kubectl, also scale --replicas=N pool/NAME.

    --remove says which machines go first; without fewer replicas, new ones take their place. A rollout in progress
    continues with the new number. The number of a worker pool is distributed over its zones, the first ones first, and
    must be within its minimum and maximum, which only its manifest changes.
    """
    which, given = target(kind, names or [], (POOL, WORKER_POOL))
    given = named(which, given)
    if replicas is None and not remove:
        raise typer.BadParameter("give --replicas N, or --remove MACHINE")
    if remove and (which == WORKER_POOL or len(given) > 1):
        zone = ", the one of a zone: scale pool NAME --remove MACHINE" if which == WORKER_POOL else ""
        raise typer.BadParameter(f"--remove needs exactly one pool{zone}")

    async def body(client: HostlerClient) -> None:
        numbers = dict.fromkeys(given, replicas)
        if which == WORKER_POOL:
            assert replicas is not None
            shares = [await client.worker_pools.shares(name, replicas, current=current) for name in given]
            numbers = {pool: number for share in shares for pool, number in share}
        only_if = current if which == POOL else None

        async def question(client: HostlerClient, pool: str) -> PoolQuestion:
            from resources.pool.intents import PoolQuestion
            from starter.sdk.errors import Refused

            state = await client.pools.get(pool) if only_if is not None and dry_run else None
            if state is not None and only_if != state.spec.replicas:
                raise Refused(
                    f"pool {pool} has {state.spec.replicas} replicas, not {only_if}: nothing would be changed"
                )
            return PoolQuestion(replicas=numbers[pool], remove=remove or [])

        def send(client: HostlerClient, pool: str) -> Awaitable[Sent]:
            return client.pools.scale(pool, numbers[pool], current=only_if, remove=remove, reason=reason)

        await each(client, list(numbers), "scaling", "scaled", send, question, dry_run)

    here.run(body)
