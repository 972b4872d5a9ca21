"""Wrong usage, in the one form of all errors."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from starter.usage import explain_usage

app = typer.Typer()


@app.command()
def add(operation: str, times: int = typer.Option(1, min=1)) -> None:
    """Takes an argument without a placeholder of its own."""


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "error: OPERATION is missing"),
        (["RunInstances", "--times", "x"], "error: --times: input should be a valid integer"),
        (["RunInstances", "--time", "1"], "error: no such option: --time; did you mean --times?"),
    ],
)
def test_it_names_what_people_type(args: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    raised = CliRunner().invoke(app, args, standalone_mode=False).exception
    assert raised is not None
    assert explain_usage(raised) == 2  # type: ignore[arg-type]
    assert capsys.readouterr().err.startswith(words)
