"""Resets of every entity, at its tasks and at the boundaries of its runs: what was made is found again.

`HOSTLER_FAULTS=all` takes more places of each run.
"""

from __future__ import annotations
