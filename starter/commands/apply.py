"""hostler apply"""

from __future__ import annotations

from typing import Annotated

import typer

from starter.commands.blocks import command
from starter.commands.common import Asking, ForceConflictsOption, ValidateOption, validate_of


@command
def apply(
    *,
    files: Annotated[
        list[str], typer.Option("-f", "--filename", help="A file, a directory, or - for standard input; repeatable.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would happen, compared with what exists now; send nothing.")
    ] = False,
    validate: ValidateOption = "strict",
    force_conflicts: ForceConflictsOption = False,
    here: Asking,
) -> None:
    """Create or change pools, a control plane, machines, their classes and Secrets from manifests.

    Everything is validated before anything is sent, the names of fields too (--validate). Secrets go to the settings'
    source of secrets, never to Temporal. A changed class reaches every pool and machine that uses it, a few at a time:
    `hostler describe class NAME` shows the progress; the pools that it rolls are listed first. `hostler diff` (or
    --dry-run) shows beforehand what is updated in place, what needs a new VM, and each step of each pool.
    """
    from functools import partial

    from starter.commands.files import read
    from starter.outlet import warn
    from starter.output import Busy
    from starter.sdk import parallel
    from starter.sdk.apply.diff import differences
    from starter.sdk.apply.worker_pool_diff import zone_lines
    from starter.sdk.client import HostlerClient
    from starter.sdk.pools.rehearsal import warnings

    how = validate_of(validate)
    loaded = read(files, how)
    for warning in loaded.warnings:
        warn(warning)

    async def body(client: HostlerClient) -> None:
        async with Busy("comparing with what exists") as busy:
            plan = await client.plan(
                *loaded.manifests, cluster=here.cluster, validate=how, force_conflicts=force_conflicts
            )
            for warning in plan.warnings:
                warn(warning)
            if dry_run:
                changed = {(d.kind, d.name): d.lines() for d in await differences(client, plan)}
                for step in plan.steps:
                    head, *fields = changed.get((step.kind, step.name), [str(step.told())])
                    busy.say(f"{head} (dry run)", *fields)
                plan.judge()
                return
            workers = [step.worker_pool for step in plan.worker_pools if step.worker_pool is not None]
            for of_zones in workers:
                for line in await zone_lines(of_zones, client.pools, plan):
                    busy.say(f"workerpool/{of_zones.name} {line}")
            for step in plan.classes:
                for owner in (o for o in step.owners if o.grave):  # before anything is done: a person may still stop it
                    busy.say(f"machineclass/{step.name} {owner}")
            said = {(w.cluster, zone.name) for w in workers for zone in w.expansion.zones}
            told = [s.pool for s in plan.pools if s.pool is not None and s.pool.state is not None and s.run]
            changed_pools = [pool for pool in told if (pool.cluster, pool.name) not in said]
            calls = [partial(warnings, client.pools, p.name, p.question, cluster=p.cluster) for p in changed_pools]
            for of, lines in zip(changed_pools, await parallel.each(calls), strict=True):
                for line in lines:
                    busy.say(f"machinedeployment/{of.name} {line}")
            busy.text = "waiting for a worker's answer; what is not accepted within 5 s is recorded for later"
            async for applied in plan.execute():
                busy.say(str(applied))

    here.run(body, anywhere=True)
