"""What the images hold that are not ours: built with Go from pinned modules (`go.mod` beside this file), once, into
.cache/stack. `python -m stack.build` builds them all.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from apiserver.build import Module, go_build
from paths import TESTS

from stack.layers import CACHE

FOLDER = TESTS / "stack"
TEMPORAL = Module(
    FOLDER / "temporal",
    "go.temporal.io/server",
    {
        "temporal-server": "go.temporal.io/server/cmd/server",
        "temporal-sql-tool": "go.temporal.io/server/cmd/tools/sql",
    },
)
UI = Module(
    FOLDER / "ui", "github.com/temporalio/ui-server/v2", {"ui-server": "github.com/temporalio/ui-server/v2/cmd/server"}
)
COMPOSE = Module(
    FOLDER / "compose", "github.com/docker/compose/v5", {"docker-compose": "github.com/docker/compose/v5/cmd"}
)


def program(module: Module, name: str) -> Path:
    """The program of the version that the module's go.mod pins; built when it is not there."""
    target = CACHE / "programs" / f"{name}-{module.version}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        go_build(module, name, target)
    return target


def sources(module: Module) -> Path:
    """The module's own files, where Go keeps them."""
    argv = ["go", "list", "-m", "-f", "{{.Dir}}", module.path]
    return Path(subprocess.run(argv, cwd=module.folder, check=True, capture_output=True, text=True).stdout.strip())
