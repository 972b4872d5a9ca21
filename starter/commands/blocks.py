"""Blocks of options that commands of one kind share.

A command's parameter annotated `Annotated[T, Block(function)]` stands for the options that are the function's
parameters, in its place among the others; the command gets what the function makes of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, get_args

import typer


@dataclass(frozen=True)
class Block:
    make: Callable[..., Any]
    """Its first parameter is the context, the others are options."""

    @property
    def options(self) -> list[inspect.Parameter]:
        _, *options = inspect.signature(self.make, eval_str=True).parameters.values()
        return options


def command(function: Callable[..., None]) -> Callable[..., None]:
    """The command as typer takes it: with the options of its blocks, and a context."""
    blocks: dict[str, Block] = {}
    options: list[inspect.Parameter] = []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        block = next((a for a in get_args(parameter.annotation) if isinstance(a, Block)), None)
        if block is not None:
            blocks[parameter.name] = block
        options += [parameter] if block is None else block.options

    @wraps(function)
    def run(ctx: typer.Context, **given: Any) -> None:
        made = {name: b.make(ctx, **{o.name: given.pop(o.name) for o in b.options}) for name, b in blocks.items()}
        function(**given, **made)

    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    every = [context, *(o.replace(kind=inspect.Parameter.KEYWORD_ONLY) for o in options)]
    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    return run
