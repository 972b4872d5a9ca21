"""The one way from Hostler to a terminal, a pipe or a file: here, whatever strangers have sent in is safe to look at.

Consoles, kubelets, API servers and people who give a reason decide what messages contain. What would act on a terminal
is written as an escape (resources/visible.py). Separate lines are separate arguments: a newline within one comes from a
stranger who would like to write a line of ours. Nothing else in this folder prints;
tests/component/test_outlet.py ensures that. What rich draws goes through starter/screen.py.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any

import typer

from resources.visible import visible, visible_lines


def say(*lines: str, err: bool = False, keep: str = "") -> None:
    """Prints each of `lines` as one line, on standard output or (`err`) standard error.

    `keep`: characters that the layout itself is made of, in lines whose other parts are visible already.
    """
    if lines:
        typer.echo("\n".join(visible(line, keep) for line in lines), err=err)


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


def say_text(text: str) -> None:
    """Prints a text whose lines are its own layout, like those of YAML and JSON: a stranger's newline is an escape in
    it."""
    say(*text.split("\n"))


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
