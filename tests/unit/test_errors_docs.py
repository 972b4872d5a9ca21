"""What the pages of Azure and Google Cloud say of error codes is what the tables of drivers and planners have."""

from __future__ import annotations

import importlib
import re
from datetime import timedelta

import pytest
from paths import ROOT

from planners.waits import GROWING, REASON, WAIT
from resources.base import format_duration
from resources.errors import ErrorClass

ROW = re.compile(r"^\| (\w+) \| (.*?) \| \[(\w+)\]\(runbook\.md#\w+\)(.*?) \|$", re.MULTILINE)
WORDS = re.compile(r"`(\w+)`(?: about a (quota))?")


@pytest.mark.parametrize("cloud", ["azure", "gcp"])
def test_each_class_with_its_codes_its_reason_and_its_wait(cloud: str) -> None:
    classify = importlib.import_module(f"drivers.{cloud}.failures").classify
    rows = ROW.findall((ROOT / "docs" / f"{cloud}.md").read_text().partition("\n## Errors\n")[2])
    assert sorted(row[0] for row in rows) == sorted(map(str, ErrorClass))
    for name, examples, reason, wait in rows:
        cls = ErrorClass(name)
        said = WORDS.findall(examples)
        codes = {code: classify(code, f"exceeding the {about}" if about else "") for code, about in said}
        assert set(codes.values()) <= {cls}, codes
        assert codes or cls is ErrorClass.UNKNOWN
        assert reason == REASON[cls]
        assert ("growing from" in wait) is (cls in GROWING)
        assert wait.endswith(_words(WAIT[cls])), wait


def _words(wait: timedelta) -> str:
    found = re.fullmatch(r"(\d+)(m|s)", format_duration(wait))
    assert found is not None
    return f"{found[1]} {'min' if found[2] == 'm' else 's'}"
