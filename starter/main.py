"""The `hostler` command. Commands are loaded by name when they run, so that `--help` takes no time."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from typer.exceptions import Abort, Exit, TyperException
from typer.main import get_command

from starter.commands.common import AsOption, ClusterOption, Globals, with_values
from starter.outlet import Colour, choose_colour, complain, leave, say, say_trace, speak_for_libraries
from starter.usage import explain_usage

DEBUG = "HOSTLER_DEBUG"
INTERRUPTED = 130
EPILOG = (
    "Exit codes: 0 done; 1 refused or failed; 2 wrong usage; 3 Temporal (or the cluster's API) cannot be reached; "
    "124 not in time. HOSTLER_DEBUG=1 shows where an error comes from."
)


class Kubectls(typer.core.TyperCommand):
    """A command whose options may come without a value where kubectl's may."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_values(args))


@dataclass(frozen=True)
class Lazy:
    """A command (or a group of them) that is imported when it runs."""

    module: str
    name: str
    help: str
    group: bool = False
    hidden: bool = False

    def load(self) -> Any:
        """The command, made from its function; or a group's `app`."""
        found = getattr(importlib.import_module(f"starter.commands.{self.module}"), self.name)
        if self.group:
            return get_command(found)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(cls=Kubectls, epilog=EPILOG, hidden=self.hidden)(found)
        return get_command(alone)


COMMANDS = {
    "up": Lazy("run", "up", "Run everything here, with a simulated cloud and cluster."),
    "apply": Lazy("apply", "apply", "Create or change pools, machines, their classes and Secrets."),
    "diff": Lazy("diff", "diff", "Show what apply would change and replace."),
    "update-class": Lazy("update_class", "update_class", "Change the class of a machine."),
    "get": Lazy("get", "get", "List machines, pools, rollouts, classes, nodes and more."),
    "describe": Lazy("describe", "describe", "Show all about a machine, pool, class or cluster."),
    "tree": Lazy("tree", "tree", "Show a cluster, its pools and machines as a tree; follow it."),
    "events": Lazy("events", "events", "Show the events of a machine, pool, class or cluster."),
    "wait": Lazy("wait", "wait", "Wait until machines, pools or the control plane reach a state."),
    "renew": Lazy("delete", "renew", "Let machines continue with the newest code and try again."),
    "delete": Lazy("delete", "delete", "Delete machines, pools, classes or a cluster's watch."),
    "recreate": Lazy(
        "recreate",
        "recreate",
        "Replace machines by new ones of the same name.",
    ),
    "preserve": Lazy("preserve", "preserve", "Keep machines for inspection, now or when they fail."),
    "release": Lazy("preserve", "release", "End the preservation of machines early."),
    "extend": Lazy("preserve", "extend", "Change the end of a preservation."),
    "hook": Lazy("hook", "app", "Hold up a machine's drain, or the deletion of its VM.", group=True),
    "scale": Lazy("scale", "scale", "Change how many machines a pool or worker pool has."),
    "hibernate": Lazy("pools", "hibernate", "Delete all machines of a pool for now."),
    "wake": Lazy("pools", "wake", "Create the machines of a hibernated pool again."),
    "rollout": Lazy("rollout", "app", "Follow and control the rollouts of pools and of the control plane.", group=True),
    "controlplane": Lazy("control_plane", "app", "Write a control plane's manifest from its machines.", group=True),
    "mc": Lazy("mc", "app", "Render machine configs without a cluster, and compare them.", group=True),
    "pause": Lazy("clusters", "pause", "Stop everything voluntary in a cluster."),
    "resume": Lazy("clusters", "resume", "Resume a paused cluster."),
    "freeze": Lazy("freeze", "freeze", "Let no rollout and no hot update begin for a while."),
    "unfreeze": Lazy("freeze", "unfreeze", "End a freeze."),
    "adopt": Lazy("adopt", "adopt", "Give a machine that lost its workflow a new one."),
    "explain": Lazy("explain", "explain", "Explain the fields of manifests and settings."),
    "doctor": Lazy("doctor", "doctor", "Say what waits for a person, and what is wrong."),
    "worker": Lazy("run", "worker", "Run a worker."),
    "setup": Lazy("run", "setup", "Prepare Temporal: register the search attributes."),
    "simulator": Lazy("simulator", "app", "Faults, calls and knobs of the simulator.", group=True),
    "completion": Lazy("completion", "completion", "Print the completion script of a shell."),
    "__complete": Lazy("completion", "complete", "For the completion scripts.", hidden=True),
}


class LazyGroup(typer.core.TyperGroup):
    """A group that knows its commands by name and one line of help; every error of theirs becomes one line and an exit
    code."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for name, lazy in COMMANDS.items():
            self.add_command(typer.core.TyperCommand(name, help=lazy.help, hidden=lazy.hidden), name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, COMMANDS[name].load() if name in COMMANDS else command, rest

    def main(self, *args: Any, **options: Any) -> Any:
        if options.get("standalone_mode") is False:
            return super().main(*args, **options)
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except TyperException as e:
            code = explain_usage(e)
        except Abort:
            complain("aborted")
            code = 1
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (TyperException, Exit, Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            raise Exit(INTERRUPTED) from None
        except Exception as e:
            raise Exit(explain(e)) from None


def explain(error: Exception) -> int:
    """Prints the error in one line (one for each thing that is wrong) and returns the exit code."""
    from resources.manifests import ManifestError
    from resources.settings import SettingsError
    from starter.sdk.errors import HostlerError

    if os.environ.get(DEBUG):
        say_trace(error)
    text = str(error)
    if not isinstance(error, HostlerError | ManifestError | SettingsError):
        text = f"{type(error).__name__}: {text} (an error in Hostler itself; {DEBUG}=1 shows where)"
    complain(text)
    return error.exit_code if isinstance(error, HostlerError) else 1


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help needs no rich, whose import alone takes half of the time
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        say(f"hostler {version('hostler')}")
        raise typer.Exit


@app.callback(epilog=EPILOG)
def root(
    ctx: typer.Context,
    settings: Annotated[
        Path | None,
        typer.Option(
            "--settings",
            help="Settings file; default: $HOSTLER_SETTINGS, .hostler/settings.yaml, then ~/.config/hostler.",
        ),
    ] = None,
    cluster: ClusterOption = None,
    requested_by: AsOption = None,
    colour: Annotated[
        Colour,
        typer.Option(
            "--color",
            help="Colours: auto (on a terminal, unless NO_COLOR or CLICOLOR=0 is set; with CLICOLOR_FORCE=1 also "
            "elsewhere), always or never.",
        ),
    ] = Colour.AUTO,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Looks after the hosts of a Kubernetes cluster: every machine is one durable Temporal workflow."""
    ctx.obj = Globals(settings, cluster, requested_by)
    choose_colour(colour)
    if settings is not None:
        os.environ["HOSTLER_SETTINGS"] = str(settings)  # commands that run child processes pass it on


def main() -> None:
    gc.set_threshold(100_000)  # nearly all that a command makes are modules, which stay
    speak_for_libraries()
    code = 0
    try:
        app()
    except SystemExit as e:
        code = int(e.code or 0)
    leave(code)


if __name__ == "__main__":
    main()
