"""Where things are."""

from __future__ import annotations

from pathlib import Path

KITS = Path(__file__).parent
TESTS = KITS.parent
ROOT = TESTS.parent
