"""The words of `hostler get` for how something is to be shown: kubectl's `-o`, `--sort-by`, `-L` and their friends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path as File
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from starter.commands.blocks import Block
from starter.outlet import Colour, choose_colour
from starter.sdk.spelling import did_you_mean

if TYPE_CHECKING:
    from starter.sdk.results import Json
    from starter.templates import Path

T = TypeVar("T")

LABELS = "LABELS"
"""The column of --show-labels."""
GO = {"template": "go-template", "templatefile": "go-template-file"}
"""kubectl's other names of Go templates."""


class Shape(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    TEMPLATE = "jsonpath"
    COLUMNS = "custom-columns"


PLAIN = (Shape.TABLE, Shape.WIDE, Shape.JSON, Shape.YAML, Shape.NAME)
WORDS = (
    *PLAIN,
    *("jsonpath=", "jsonpath-file=", "jsonpath-as-json=", "go-template=", "go-template-file="),
    *("custom-columns=", "custom-columns-file="),
)


@dataclass(frozen=True)
class Form:
    """What `-o` asks for."""

    shape: Shape = Shape.TABLE
    render: Callable[[Any], str] = str
    """For a template."""
    columns: Sequence[tuple[str, Path]] = ()
    """For custom columns."""

    @property
    def rows(self) -> bool:
        """Whether it has a line for each thing, which may change under -w."""
        return self.shape in (Shape.TABLE, Shape.WIDE, Shape.NAME)


def form_of(text: str) -> Form:
    """The form that `-o TEXT` names. Raises a usage error."""
    word, equals, argument = text.removeprefix("=").partition("=")  # kubectl takes `-o=json` too
    if word in PLAIN and not equals:
        return Form(Shape(word))
    word = GO.get(word, word)
    if f"{word}=" not in WORDS:
        hint = did_you_mean(word, [w.rstrip("=") for w in WORDS])
        raise typer.BadParameter(f"-o {word!r} is no output format; it takes {', '.join(WORDS)}{hint}")
    if not argument:
        example = "NAME:.metadata.name" if word.startswith("custom") else "'{.metadata.name}'"
        example = "'{{.metadata.name}}'" if word == "go-template" else example
        what = "FILE" if word.endswith("-file") else example
        raise typer.BadParameter(f"-o {word} needs its argument: -o {word}={what}")
    from starter import templates

    try:
        if word.endswith("-file"):
            argument = _read(argument)
        if word.startswith("go-template"):
            from starter import gotemplates

            return Form(Shape.TEMPLATE, gotemplates.read(argument))
        if word == "custom-columns":
            return Form(Shape.COLUMNS, columns=templates.custom_columns(argument))
        if word == "custom-columns-file":
            return Form(Shape.COLUMNS, columns=templates.custom_columns_file(argument))
        made = templates.Template(argument)
        return Form(Shape.TEMPLATE, made.render_json if word == "jsonpath-as-json" else made.render)
    except templates.TemplateError as e:
        raise typer.BadParameter(f"-o {word}: {e}") from None


def _read(file: str) -> str:
    try:
        return File(file).read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "not a text"
        raise typer.BadParameter(f"{file} cannot be read: {why}") from None


# -- how ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Manner:
    """How often, in which order and with which labels."""

    watch: bool = False
    headers: bool = True
    sort_by: Path | None = None
    show_labels: bool = False
    label_columns: Sequence[str] = field(default=())

    @property
    def needs_objects(self) -> bool:
        """Whether a table needs what only the objects say."""
        return bool(self.sort_by or self.show_labels or self.label_columns)

    @property
    def label_names(self) -> list[tuple[str, str]]:
        """Keys of the cells for labels, and their headers as kubectl writes them: the key's last part."""
        every = [(LABELS, LABELS)] if self.show_labels else []
        return [(f"-L {key}", key.rpartition("/")[2].upper()) for key in self.label_columns] + every

    def label_cells(self, thing: Json) -> dict[str, str]:
        labels = thing.get("metadata", {}).get("labels") or {}
        cells = {f"-L {key}": labels.get(key, "") for key in self.label_columns}
        if self.show_labels:
            cells[LABELS] = ",".join(f"{k}={v}" for k, v in sorted(labels.items()))
        return cells

    def sorted(self, things: list[T], thing_of: Callable[[T], Json]) -> list[T]:
        """The things in the order that is asked for. Raises Refused where none of them has the field."""
        if self.sort_by is None:
            return things
        from starter.sdk.errors import Refused
        from starter.templates import TemplateError, sort_keys

        try:
            keys = sort_keys(self.sort_by, [thing_of(thing) for thing in things])
        except TemplateError as e:
            raise Refused(f"--sort-by: {e}") from None
        return [thing for _, thing in sorted(zip(keys, things, strict=True), key=lambda pair: pair[0])]


def _manner(
    ctx: typer.Context,
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="Keep watching and print changes, until Ctrl-C.")
    ] = False,
    sort_by: Annotated[
        str | None,
        typer.Option(
            "--sort-by", metavar="PATH", help="Order by a field: .metadata.creationTimestamp.", show_default=False
        ),
    ] = None,
    label_columns: Annotated[
        list[str] | None,
        typer.Option("-L", "--label-columns", metavar="KEY", help="A column for this label; repeatable."),
    ] = None,
    show_labels: Annotated[bool, typer.Option("--show-labels", help="A column with all labels.")] = False,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Only the rows.")] = False,
) -> Manner:
    keys = [key for given in label_columns or [] for key in given.split(",") if key]
    return Manner(watch, not no_headers, _path(sort_by), show_labels, keys)


def _path(text: str | None) -> Path | None:
    if text is None:
        return None
    from starter.templates import TemplateError, relaxed

    try:
        return relaxed(text)
    except TemplateError as e:
        raise typer.BadParameter(f"--sort-by: {e}") from None


ShownOption = Annotated[Manner, Block(_manner)]


ColourOption = Annotated[
    Colour | None,
    typer.Option("--color", help="Colours; default: as `hostler --help` says.", show_default=False),
]


def coloured(colour: Colour | None) -> None:
    """Takes the option; where it is not given, that before the command counts."""
    if colour is not None:
        choose_colour(colour)


def forms(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The completion of -o."""
    return [(word, "") for word in WORDS if word.startswith(incomplete)]


OutputOption = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="FORMAT",
        help="table, wide, json, yaml, name, jsonpath='{…}', jsonpath-file=FILE, go-template='{{…}}', "
        "go-template-file=FILE, custom-columns=NAME:.path,… or "
        "custom-columns-file=FILE, as kubectl's.",
        autocompletion=forms,
    ),
]
