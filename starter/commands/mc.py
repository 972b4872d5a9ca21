"""`hostler mc …`: what machine configs come to, and what two of them have differently."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from starter.commands.blocks import command
from starter.commands.common import Reading, Session, ValidateOption, validate_of
from starter.commands.forms import Shape
from starter.outlet import say, say_text, warn

if TYPE_CHECKING:
    from resources.machine_config.settings import MachineConfigSettings
    from resources.manifests import Loaded
    from starter.sdk.machine_config.rendering import RenderedPool

app = typer.Typer(
    help="Render machine configs without a cluster, and compare two of them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
SHAPES = (Shape.YAML, Shape.JSON, Shape.NAME)
FILES = (".yaml", ".yml", ".json")


@app.command()
@command
def render(
    *,
    pool: Annotated[str, typer.Option("--pool", help="The MachineConfigPool to render.")],
    files: Annotated[
        list[str], typer.Option("-f", "--filename", help="A file, a directory, or - for standard input; repeatable.")
    ],
    output: Annotated[
        Shape,
        typer.Option("-o", "--output", help="yaml or json: the rendered MachineConfig; name: what it is made of."),
    ] = Shape.YAML,
    templates: Annotated[
        Path | None,
        typer.Option(
            "--templates", help="A folder of templates, instead of the settings', or of those that come with Hostler."
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also the MachineConfigs that templates and KubeletConfigs come to.")
    ] = False,
    validate: ValidateOption = "strict",
    here: Reading,
) -> None:
    """Render a pool from manifests alone: pools, MachineConfigs, KubeletConfigs and the ControllerConfig. Nothing is
    asked and nothing is sent.

    The cluster's settings (clusters.<name>.machineConfigs) count where there are some. Without a ControllerConfig the
    templates are left out. Exit code 1 where the pool cannot be rendered; why is said for each object.
    """
    from datetime import UTC, datetime

    from starter.commands.files import read
    from starter.sdk.machine_config.rendering import options_of
    from starter.sdk.machine_config.rendering import render as rendered

    if output not in SHAPES:
        raise typer.BadParameter(f"-o takes {', '.join(SHAPES)}")
    loaded = read(files, validate_of(validate))
    for warning in loaded.warnings:
        warn(warning)
    given = _settings(here)
    folder = templates or (here.settings.path(given.templates) if given is not None and given.templates else None)
    found = rendered(pool, loaded.configs, _templates(loaded, folder), options_of(given), datetime.now(UTC))
    for trouble in found.troubles:
        warn(trouble)
    _show(found, output, everything)


def _templates(loaded: Loaded, folder: Path | None) -> Mapping[str, str]:
    """Text by path. Raises Refused for a folder that cannot be read."""
    from resources.machine_config import templates
    from starter.sdk.errors import Refused

    if not any(m.kind == "ControllerConfig" for m in loaded.configs):
        warn("no ControllerConfig is in these files: the templates are left out")
        return {}
    try:
        return templates.folder(folder) if folder is not None else templates.shipped()
    except templates.TemplatesError as e:
        raise Refused(str(e)) from None


def _settings(here: Session) -> MachineConfigSettings | None:
    """Those of the cluster; None where the settings do not name it."""
    cluster = here.settings.clusters.get(here.cluster or here.settings.default_cluster)
    if cluster is None and here.cluster:
        here.settings.cluster(here.cluster)  # raises, with the known names
    return cluster.machine_configs if cluster is not None else None


def _show(found: RenderedPool, shape: Shape, everything: bool) -> None:
    from starter.output import dump

    if shape is Shape.NAME:
        say(*found.sources)
        return
    shown = [*(found.made if everything else ()), found.rendered]
    say_text(dump(shown, shape, single=len(shown) == 1))


@app.command()
@command
def diff(
    *,
    before: Annotated[str, typer.Argument(metavar="A", help="A MachineConfig of the cluster, or a file with one.")],
    after: Annotated[str, typer.Argument(metavar="B", help="The other one.")],
    here: Reading,
) -> None:
    """Show what two MachineConfigs have differently: files line by line, units, kernel arguments and the rest.

    Exit code as diff's: 0 where they are the same, 1 where they are not.
    """
    import asyncio

    from starter.sdk.machine_config.difference import differences

    async def body() -> list[str]:
        first, second = await _spec(here, before), await _spec(here, after)
        return differences(first, second)

    if found := asyncio.run(body()):
        say(f"--- {before}", f"+++ {after}", *found)
        raise typer.Exit(1)


async def _spec(here: Session, word: str) -> Mapping[str, Any]:
    """The spec of the MachineConfig in a file, or of the one with this name in the cluster."""
    from resources.machine_config.keys import MACHINE_CONFIG
    from starter.sdk.machine_config.objects import config_objects

    if "/" in word or word == "-" or word.endswith(FILES):
        return _of_file(word)
    async with config_objects(here.settings, here.cluster or here.settings.default_cluster) as objects:
        found: Mapping[str, Any] = (await objects.get(MACHINE_CONFIG, word)).get("spec") or {}
        return found


def _of_file(path: str) -> Mapping[str, Any]:
    """A file may hold a rendered config too, which nobody may apply: it is not judged."""
    from resources.documents import DocumentError, documents
    from starter.commands.files import texts
    from starter.sdk.errors import Refused

    try:
        found = [d for text, _ in texts([path]) for d in documents(text) if isinstance(d, dict)]
    except DocumentError as e:
        raise Refused(f"{path}{e}") from None
    configs = [d for d in found if d.get("kind") == "MachineConfig"]
    if len(configs) != 1:
        raise Refused(f"{path}: there must be one MachineConfig in it, and there are {len(configs)}")
    return configs[0].get("spec") or {}
