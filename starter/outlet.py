"""The one way from Hostler to a terminal, a pipe or a file: here, whatever strangers have sent in is safe to look at.

Consoles, kubelets, API servers and people who give a reason decide what messages contain. What would act on a terminal
is written as an escape (resources/visible.py). Separate lines are separate arguments: a newline within one comes from a
stranger who would like to write a line of ours. Nothing else in this folder prints;
tests/component/test_outlet.py ensures that. What rich draws goes through starter/screen.py.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import traceback
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NoReturn

import typer

from resources.visible import visible, visible_lines

Piece = tuple[str, str]
"""A piece of a line, and its style: one of STYLES, or ""."""
STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
"""The codes of a terminal (SGR) for each."""


def say(*lines: str, err: bool = False, keep: str = "") -> None:
    """Prints each of `lines` as one line, on standard output or (`err`) standard error.

    `keep`: characters that the layout itself is made of, in lines whose other parts are visible already.
    """
    if lines:
        typer.echo("\n".join(visible(line, keep) for line in lines), err=err)


class Colour(StrEnum):
    """When to use colours."""

    AUTO = "auto"
    """As the environment says (`_asked`); where it says nothing, on a terminal that can show them."""
    ALWAYS = "always"
    NEVER = "never"


_colour = Colour.AUTO


def choose_colour(colour: Colour) -> None:
    """Takes the word of `--color`, which is stronger than the environment's."""
    global _colour
    _colour = colour


def colourful() -> bool:
    """Whether lines on standard output have colours."""
    asked = _asked()
    return asked if asked is not None else on_terminal() and os.environ.get("TERM") != "dumb"


def no_colour() -> bool | None:
    """The same for rich, which knows its own terminal: None leaves it to rich."""
    asked = _asked()
    return None if asked is None else not asked


def _asked() -> bool | None:
    """Whether somebody wants colours; None: nobody has said so. --color is stronger than NO_COLOR (no-color.org), which
    is stronger than CLICOLOR_FORCE (bixense.com/clicolors) and rich's word for it, FORCE_COLOR; the weakest is
    CLICOLOR=0. What is empty is not set."""
    if _colour is not Colour.AUTO:
        return _colour is Colour.ALWAYS
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("CLICOLOR_FORCE", "FORCE_COLOR")):
        return True
    return False if os.environ.get("CLICOLOR") == "0" else None


def on_terminal() -> bool:
    """Whether a person reads standard output, and not a program."""
    return sys.stdout.isatty()


def width() -> int | None:
    """Columns of the terminal; None where there is none, and so no limit."""
    return shutil.get_terminal_size().columns if on_terminal() else None


def say_painted(lines: Iterable[Iterable[Piece]]) -> None:
    """Prints lines whose pieces may have a style."""
    colours = colourful()
    shown = ["".join(_painted(visible(text), style if colours else "") for text, style in line) for line in lines]
    if shown:
        typer.echo("\n".join(shown), color=colours)


def _painted(text: str, style: str) -> str:
    """The text in colours; the spaces after it stay as they are."""
    bare = text.rstrip()
    return f"\x1b[{STYLES[style]}m{bare}\x1b[0m{text[len(bare) :]}" if style and bare else text


def warn(message: str) -> None:
    say(f"warning: {message}", err=True)


def complain(text: str) -> None:
    """Prints an error: one line, or one for each thing that is wrong."""
    say(*(f"error: {line}" for line in visible_lines(text)), err=True)


def say_trace(error: BaseException) -> None:
    """Prints the traceback, for developers."""
    say(*visible_lines("".join(traceback.format_exception(error))), err=True)


def say_script(text: str) -> None:
    """Prints a text of our own, byte by byte, that a shell is to read."""
    typer.echo(text, nl=False)


def say_template(text: str) -> None:
    """Prints what a template has made, which ends where the template ends (as kubectl prints it): its newlines and tabs
    are the template's, whoever made it has made each value visible."""
    typer.echo(visible(text, keep="\n\t"), nl=False)


def say_text(text: str) -> None:
    """Prints a text whose lines are its own layout, like those of YAML and JSON: a stranger's newline is an escape in
    it."""
    say(*text.split("\n"))


def leave(code: int) -> NoReturn:
    """Ends the process at once. To free first what it holds would take a fifth of a quick command's time, and
    Temporal's core may crash when it is torn down right after its last call (sdk-python#300)."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # `>&-` closes it
            stream.flush()
    os._exit(code)


class Formatter(logging.Formatter):
    """The format of log lines for people: a record is one line, and what belongs to it, such as a traceback, is
    indented below it."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return "\n".join(f"  {line}" for line in visible_lines(super().formatException(ei)))


def speak_for_libraries() -> None:
    """Prints libraries' warnings, whose bare message Python writes to standard error where no logging is configured."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(Formatter("warning: %(message)s"))
