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

from resources.clouds import Simulation, simulations
from resources.settings import ROLES
from starter.commands.blocks import Block, command
from starter.commands.common import Installing, span
from starter.outlet import say

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient

UP_PANEL = "Ports on 127.0.0.1 (0: any free port)"


class SpeedOption(StrEnum):
    DEMO = "demo"
    FAST = "fast"


RoleOption = StrEnum("Role", {role.upper(): role for role in ROLES})  # type: ignore[misc]  # its members are ROLES, once


ProviderOption = StrEnum("Provider", {name.upper(): name for name in simulations()})  # type: ignore[misc]  # likewise


def _serves(name: str, simulation: Simulation) -> str:
    return f"The simulated {simulation.service.upper()} (--provider {name})."


def _cloud_ports() -> Callable[..., dict[str, int]]:
    """One option for each cloud that can be simulated; the block makes of them the ports of those that --provider has,
    by their names. Raises BadParameter for a port of another one."""
    clouds = {f"{simulation.service}_port": (name, simulation) for name, simulation in simulations().items()}

    def ports(ctx: typer.Context, **given: int) -> dict[str, int]:
        wanted = {one.value for one in ctx.params["provider"]}
        for option in given:
            name, source = clouds[option][0], ctx.get_parameter_source(option)
            if name not in wanted and source is not None and source.name != "DEFAULT":
                words = f"--{option.replace('_', '-')} is of a cloud that is not simulated: add --provider {name}"
                raise typer.BadParameter(f"{words}, or leave it out")
        return {clouds[option][0]: port for option, port in given.items() if clouds[option][0] in wanted}

    context, _ = inspect.signature(ports).parameters.values()
    options = [
        inspect.Parameter(
            option,
            inspect.Parameter.KEYWORD_ONLY,
            default=simulation.port,
            annotation=Annotated[int, typer.Option(help=_serves(name, simulation), rich_help_panel=UP_PANEL)],
        )
        for option, (name, simulation) in clouds.items()
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
    provider: Annotated[
        list[ProviderOption],
        typer.Option(help="The cloud whose machines are looked after; repeatable, for several at once."),
    ] = [ProviderOption(name) for name in simulations()][:1],
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
    """Run Temporal's dev server, simulated clouds and a simulated cluster, and a worker, until Ctrl-C.

    The state stays in --dir: the next `hostler up` continues where this one stopped. A worker that dies is restarted.
    """
    from starter.local.ports import Ports
    from starter.local.stack import Options
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
def setup(
    *,
    here: Installing,
    create: Annotated[
        bool, typer.Option("--create-namespace", help="Create the namespace if it does not exist.")
    ] = False,
    retention: Annotated[
        str, typer.Option(help="With --create-namespace: how long histories of closed workflows stay.")
    ] = "168h",
    web_ui: Annotated[
        bool,
        typer.Option(
            "--web-ui",
            help="Print a script for the browser's console, to run on a page of Temporal's web UI: it adds columns for "
            "phase and reason, and saves views of what is not well.",
        ),
    ] = False,
) -> None:
    """Register Hostler's search attributes with Temporal's namespace. Safe to repeat."""
    kept = span(retention)

    async def register(hostler: HostlerClient) -> None:
        from starter.sdk import webui
        from starter.sdk.errors import translated
        from starter.sdk.setup import create_namespace, setup

        with translated():
            if create and kept is not None:
                created = await create_namespace(hostler.temporal, kept)
                say(f"namespace/{hostler.temporal.namespace} {'created' if created else 'unchanged'}")
            registered = await setup(hostler.temporal)
        namespace, ui = hostler.temporal.namespace, hostler.settings.temporal.ui
        lines = [f"searchattribute/{name} unchanged" for name in registered.present]
        lines += [f"searchattribute/{name} created" for name in registered.added]
        lines += [f"{view.name}: {webui.view_link(ui, namespace, view)}" for view in webui.VIEWS] if ui else []
        say(*lines, f"namespace {namespace} is ready for Hostler", err=web_ui)
        if web_ui:
            say(*webui.script(namespace).split("\n"))

    here.run(register)
