"""The recorded histories."""

from __future__ import annotations

import json
from pathlib import Path

from paths import TESTS
from temporalio.client import WorkflowHistory

HISTORIES = sorted((TESTS / "histories").glob("*.json"))


def load(file: Path) -> WorkflowHistory:
    content = json.loads(file.read_text())
    return WorkflowHistory.from_json(content.pop("workflowId"), content)
