"""Wrong usage, in the one form of all errors: what is wrong in a line, then what to do."""

from __future__ import annotations

from typing import Any

from typer.exceptions import TyperException

from resources.visible import visible
from starter.outlet import complain, say
from starter.sdk.spelling import did_you_mean

NOISE = ("Value error, ", "Invalid value: ")
"""What pydantic and typer put before our own words."""


def explain_usage(error: TyperException) -> int:
    """Prints the error and the command that helps, and returns the exit code."""
    context: Any = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":  # a group alone: its help is the answer
        say(*error.format_message().split("\n"), err=True)
        return error.exit_code
    complain(visible(_words(error), keep="\n"))
    if context is not None:
        say(f"See '{context.command_path} --help' for usage.", err=True)
    return error.exit_code


def _words(error: TyperException) -> str:
    message = error.message
    for noise in NOISE:
        message = message.removeprefix(noise)
    parameter: Any = getattr(error, "param", None)
    if parameter is not None:
        missing = type(error).__name__ == "MissingParameter"
        return f"{_name(parameter)} is missing" if missing else f"{_name(parameter)}: {_within(message)}"
    if (option := getattr(error, "option_name", "")) and type(error).__name__ == "NoSuchOption":
        context: Any = error.ctx  # type: ignore[attr-defined]
        known = [name for p in context.command.params for name in p.opts if name.startswith("--")]
        return f"no such option: {option}{did_you_mean(option, known)}"
    return _within(message)


def _name(parameter: Any) -> str:
    """The parameter as people type it: an option's long name, an argument's placeholder."""
    if parameter.param_type_name == "option":
        return str(max(parameter.opts, key=len))
    return str(parameter.metavar or parameter.name.upper())


def _within(message: str) -> str:
    """The message as it stands after a colon."""
    found = message if message[1:2].isupper() else message[:1].lower() + message[1:]
    ended = found if found.endswith("...") else found.removesuffix(".")
    return ended.replace(". Did you mean", "; did you mean")
