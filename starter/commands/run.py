"""`hostler up`, `hostler worker`, `hostler setup`: what runs, and what that needs."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from resources.clouds import simulations
from resources.settings import ROLES
from starter.commands.blocks import Block, command
from starter.commands.common import Installing
from starter.outlet import say

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient

UP_PANEL = "Ports on 127.0.0.1 (0: any free port)"


class SpeedOption(StrEnum):
    DEMO = "demo"
    FAST = "fast"


RoleOption = StrEnum("Role", {role.upper(): role for role in ROLES})  # type: ignore[misc]  # its members are ROLES, once


def _cloud_ports() -> Callable[..., dict[str, int]]:
    """One option for each cloud that can be simulated; the block makes of them the ports by the clouds' names."""
    clouds = {f"{simulation.service}_port": (name, simulation) for name, simulation in simulations().items()}

    def ports(ctx: typer.Context, **given: int) -> dict[str, int]:
        return {clouds[option][0]: port for option, port in given.items()}

    context, _ = inspect.signature(ports).parameters.values()
    options = [
        inspect.Parameter(
            option,
            inspect.Parameter.KEYWORD_ONLY,
            default=simulation.port,
            annotation=Annotated[
                int, typer.Option(help=f"The simulated {simulation.service.upper()}.", rich_help_panel=UP_PANEL)
            ],
        )
        for option, (_, simulation) in clouds.items()
    ]
    ports.__signature__ = inspect.Signature([context, *options])  # type: ignore[attr-defined]
    return ports


@command
def up(
    *,
    directory: Annotated[Path, typer.Option("--dir", help="Directory for state, settings and logs.")] = Path(
        ".hostler"
    ),
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the state of earlier runs in --dir.")] = False,
    speed: Annotated[
        SpeedOption, typer.Option(help="Speed of the simulated VMs: demo (to watch), or fast (for tests).")
    ] = SpeedOption.DEMO,
    temporal_address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Use this Temporal server instead of starting one.", show_default=False),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Use this cluster; needs --no-simulator.", show_default=False)
    ] = None,
    simulator: Annotated[
        bool, typer.Option("--simulator/--no-simulator", help="Without it, machines are created in the real cloud.")
    ] = True,
    port: Annotated[int, typer.Option(help="Temporal.", rich_help_panel=UP_PANEL)] = 7233,
    ui_port: Annotated[int, typer.Option(help="Temporal's web UI.", rich_help_panel=UP_PANEL)] = 8233,
    kube_port: Annotated[int, typer.Option(help="The simulated Kubernetes API.", rich_help_panel=UP_PANEL)] = 7643,
    clouds: Annotated[dict[str, int], Block(_cloud_ports())],
    admin_port: Annotated[int, typer.Option(help="The simulator's admin API.", rich_help_panel=UP_PANEL)] = 7645,
    health_port: Annotated[int, typer.Option(help="The worker's health.", rich_help_panel=UP_PANEL)] = 8081,
    metrics_port: Annotated[int, typer.Option(help="The worker's metrics.", rich_help_panel=UP_PANEL)] = 9464,
) -> None:
    """Run Temporal's dev server, a simulated cloud and cluster, and a worker, until Ctrl-C.

    The state stays in --dir: the next `hostler up` continues where this one stopped. A worker that dies is restarted.
    """
    from starter.local.stack import Options, Ports
    from starter.local.up import run_stack

    options = Options(
        directory=directory,
        fresh=fresh,
        temporal_address=temporal_address,
        kubeconfig=kubeconfig,
        simulator=simulator,
        speed=speed.value,
        ports=Ports(
            temporal=port,
            ui=ui_port,
            kube=kube_port,
            clouds=clouds,
            admin=admin_port,
            health=health_port,
            metrics=metrics_port,
        ),
    )
    asyncio.run(run_stack(options))


@command
def worker(
    *,
    here: Installing,
    role: Annotated[
        list[RoleOption] | None,
        typer.Option(help="The worker's role; repeatable. Default: the roles in the settings.", show_default=False),
    ] = None,
) -> None:
    """Run a worker in the foreground. This process becomes `python -m worker`."""
    file = here.settings.file  # a wrong one is reported here, in one line
    argv = [sys.executable, "-P", "-m", "worker"]
    argv += ["--settings", str(file)] if file else []
    for one in role or ():
        argv += ["--role", one.value]
    os.execv(sys.executable, argv)


@command
def setup(here: Installing) -> None:
    """Register Hostler's search attributes with Temporal's namespace. Safe to repeat."""

    async def register(hostler: HostlerClient) -> None:
        from starter.sdk.errors import translated
        from starter.sdk.setup import setup

        with translated():
            registered = await setup(hostler.temporal)
        for name in registered.present:
            say(f"searchattribute/{name} unchanged")
        for name in registered.added:
            say(f"searchattribute/{name} created")
        say(f"namespace {hostler.temporal.namespace} is ready for Hostler")

    here.run(register)
