"""Files and folders that only their owner may read: what Temporal keeps, logs and settings reveal a lot about a
cluster."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

UMASK = 0o077
"""For child processes that make files of their own."""


def make_folder(path: Path) -> None:
    """Makes the folder. One that is there already stays as it is: it may be anybody's."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def open_private(path: Path, mode: str) -> IO[Any]:
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


def make_private(paths: Iterable[Path]) -> None:
    """Makes existing files private: an earlier version made them readable for everybody."""
    for path in paths:
        if path.exists() and not path.is_symlink():
            path.chmod(0o700 if path.is_dir() else 0o600)
