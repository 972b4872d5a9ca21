"""hostler explain"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import candidates
from starter.outlet import say

if TYPE_CHECKING:
    from starter.commands.explaining import Explained, Field


def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="KIND[.FIELD...]",
            help="machine, class, pool, workerpool, controlplane, secret or settings; machineclass.providerSpec.ami.",
            autocompletion=candidates.fields,
        ),
    ],
    recursive: Annotated[
        bool, typer.Option("--recursive", help="List all fields below it, without descriptions.")
    ] = False,
    provider: Annotated[
        str | None,
        typer.Option(
            "--provider",
            help="The provider whose fields are meant, as in providerSpec; needed if there are several.",
            show_default=False,
            autocompletion=candidates.providers,
        ),
    ] = None,
) -> None:
    """Explain the fields of manifests and of the settings file.

    For a field of a provider spec, a pool or a worker pool it says what a change does to a running machine: hot, hash,
    post-start, pool or none.
    """
    from starter.commands import explaining

    found = explaining.explain(what, provider)
    lines = [*_head(found), *(_tree(found) if recursive else _fields(found))]
    say(*"\n".join(lines).rstrip().split("\n"), keep="\t")


def _head(found: Explained) -> list[str]:
    from starter.output import fields

    field = found.field
    provider = found.provider if field.of_cloud else ""
    pairs = [("KIND", found.kind), ("VERSION", found.version), ("PROVIDER", provider)]
    if field.path:
        pairs += [("FIELD", f"{field.path} <{field.type_name}>"), ("REQUIRED", "yes" if field.required else "")]
        pairs += [("DEFAULT", field.default), ("CONSTRAINTS", "; ".join(field.constraints))]
        pairs += [("EFFECT", _effect(field))]
    lines = fields(pairs)
    if field.description:
        lines += ["", "DESCRIPTION:", *_wrapped(field.description, 4)]
    return lines


def _effect(field: Field) -> str:
    """One effect in words; where there are several, that they differ."""
    from starter.commands.explaining import effect_words

    if len(field.effects) == 1:
        return f"{field.effects[0]}: {effect_words(field.effects[0])}"
    return f"{', '.join(field.effects)}: see the fields" if field.effects else ""


def _fields(found: Explained) -> list[str]:
    """The fields as kubectl explain shows them: a line for each field, its words below it."""
    if not found.fields:
        return []
    lines = ["", "FIELDS:"]
    for field in found.fields:
        lines.append(_line(field, 2))
        said = [f"Default {field.default}."] if field.default else []
        said += [f"{c[0].upper()}{c[1:]}." for c in field.constraints]
        said += [f"Effect: {', '.join(field.effects)}."] if field.effects else []
        lines += [*_wrapped(" ".join([field.description, *said]).strip(), 4), ""]
    return lines


def _tree(found: Explained) -> list[str]:
    """Every field below it, deeper ones indented further."""
    from starter.commands.explaining import fields_of

    def lines(field: Field, indent: int) -> list[str]:
        effect = f" {field.effects[0]}" if len(field.effects) == 1 and field.model is None else ""
        below = [line for f in fields_of(field, found.provider) for line in lines(f, indent + 2)]
        return [f"{_line(field, indent)}{effect}", *below]

    return ["", "FIELDS:", *(line for field in found.fields for line in lines(field, 2))]


def _line(field: Field, indent: int) -> str:
    return f"{' ' * indent}{field.name}\t<{field.type_name}>{' -required-' if field.required else ''}"


def _wrapped(text: str, indent: int) -> list[str]:
    import textwrap

    margin = " " * indent
    return textwrap.wrap(text, 100, initial_indent=margin, subsequent_indent=margin, break_long_words=False)
