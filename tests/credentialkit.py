"""Kubeconfigs whose credentials rotate, and a plugin that gives them."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from kube_wire import KubeTarget

VERSION = "client.authentication.k8s.io/v1"

PLUGIN = """\
import json, os, pathlib, sys
here = pathlib.Path(sys.argv[1])
with (here / "asked").open("a") as asked:
    asked.write(os.environ["KUBERNETES_EXEC_INFO"] + "\\n")
exec(compile((here / "does").read_text(), "does", "exec"))
"""


def write_kubeconfig(file: Path, kube: KubeTarget, user: dict[str, Any], **cluster: Any) -> Path:
    config = yaml.safe_load(kube.kubeconfig())
    config["users"][0]["user"] = user
    config["clusters"][0]["cluster"] |= cluster
    file.write_text(yaml.safe_dump(config))
    return file


class Plugin:
    """A credential plugin as a program; what it does can be changed while it is in use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._script = folder / "plugin.py"
        self._script.write_text(PLUGIN)

    def user(self, **more: Any) -> dict[str, Any]:
        arguments = [str(self._script), str(self.folder)]
        # Without what a Python of a test environment imports at its start: a plugin that is slow to begin is no test.
        program = {"command": sys.executable, "args": ["-I", "-S", *arguments], "interactiveMode": "Never"}
        return {"exec": {"apiVersion": VERSION, **program, **more}}

    def does(self, code: str) -> None:
        (self.folder / "does").write_text(code)

    def gives(self, expires: datetime | None = None, version: str = VERSION, **status: str) -> None:
        if expires is not None:
            status["expirationTimestamp"] = expires.isoformat().replace("+00:00", "Z")
        answer = {"apiVersion": version, "kind": "ExecCredential", "status": status}
        self.does(f"print({json.dumps(answer)!r})")

    @property
    def asked(self) -> list[dict[str, Any]]:
        """What it was told at each run."""
        file = self.folder / "asked"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
