"""hostler apply"""

from __future__ import annotations

from typing import Annotated

import typer

from starter.commands.blocks import command
from starter.commands.common import Asking


@command
def apply(
    *,
    files: Annotated[
        list[str], typer.Option("-f", "--filename", help="A file, a directory, or - for standard input; repeatable.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would happen, compared with what exists now; send nothing.")
    ] = False,
    here: Asking,
) -> None:
    """Create or change pools, machines, their classes and Secrets from manifests.

    Everything is validated before anything is sent. Secrets go to the settings' source of secrets, never to Temporal. A
    changed class reaches every pool and machine that uses it, a few at a time: `hostler describe class NAME` shows the
    progress; the pools that it rolls are listed first. `hostler diff` (or --dry-run) shows beforehand what is updated
    in place, what needs a new VM, and what each pool would do, step by step.
    """
    from starter.commands.files import every, read
    from starter.outlet import warn
    from starter.output import Busy
    from starter.sdk.apply.diff import differences
    from starter.sdk.client import HostlerClient

    loaded = read(files)
    for warning in loaded.warnings:
        warn(warning)

    async def body(client: HostlerClient) -> None:
        async with Busy("comparing with what exists") as busy:
            plan = await client.plan(*every(loaded), cluster=here.cluster)
            if dry_run:
                changed = {(d.kind, d.name): d.lines() for d in await differences(client, plan)}
                for step in plan.steps:
                    head, *fields = changed.get((step.kind, step.name), [str(step.told())])
                    busy.say(f"{head} (dry run)", *fields)
                plan.judge()
                return
            for step in plan.classes:
                for pool in (p for p in step.pools if p.grave):  # before anything is done: a person may still stop it
                    busy.say(f"machineclass/{step.name} {pool}")
            busy.text = "waiting for a worker's answer; what is not accepted within 5 s is recorded for later"
            async for applied in plan.execute():
                busy.say(str(applied))

    here.run(body)
