"""Root file systems as layers, and processes in them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paths import ROOT, TESTS

CACHE = ROOT / ".cache" / "stack"
HOST = Path("/")
"""The lowest layer of what is not built from a Dockerfile: this machine's programs and libraries."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    """What a container is made of, apart from what the compose file says."""

    layers: Sequence[Path]
    """The uppermost first."""
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    user: str = "0:0"
    environment: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    healthcheck: Mapping[str, Any] | None = None
    stop_signal: signal.Signals = signal.SIGTERM


@dataclass(frozen=True)
class Inside:
    """A process and the root that it sees. `scratch` is a folder for what it writes; it is made, and may be kept."""

    layers: Sequence[Path]
    argv: Sequence[str]
    scratch: Path
    environment: Mapping[str, str]
    user: str = "0:0"
    workdir: str = "/"
    hostname: str = "container"
    binds: Sequence[tuple[Path, str, bool]] = ()
    """Source here, place there, whether it may be written."""
    tmpfs: Sequence[str] = ()
    read_only: bool = False
    no_new_privileges: bool = False

    @property
    def upper(self) -> Path:
        return self.scratch / "upper"

    def command(self) -> list[str]:
        """The command that runs it, and ends with all its children when its own process or its parent is killed."""
        for folder in (self.upper, self.scratch / "work", self.scratch / "root"):
            folder.mkdir(parents=True, exist_ok=True)
        layers = list(self.layers)
        if layers[-1] == HOST:  # all others are folders in it, which overlay refuses
            for each in reversed(layers[:-1]):
                subprocess.run(["cp", "--archive", f"{each}/.", str(self.upper)], check=True)
            layers = [HOST]
        spec = {
            "layers": [str(layer) for layer in layers],
            "upper": str(self.upper),
            "work": str(self.scratch / "work"),
            "root": str(self.scratch / "root"),
            "argv": list(self.argv),
            "environment": {"PATH": PATH, **self.environment},
            "user": self.user,
            "workdir": self.workdir,
            "hostname": self.hostname,
            "binds": [[str(source), target, writable] for source, target, writable in self.binds],
            "tmpfs": list(self.tmpfs),
            "read_only": self.read_only,
            "no_new_privileges": self.no_new_privileges,
        }
        file = self.scratch / "spec.json"
        file.write_text(json.dumps(spec))
        new = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child=KILL"]
        return ["setpriv", "--pdeathsig", "KILL", *new, sys.executable, str(TESTS / "stack" / "enter.py"), str(file)]


def layer(key: str, make: Any) -> Path:
    """The layer of this key; `make(folder)` fills one that is not there yet."""
    folder = CACHE / "layers" / hashlib.sha256(key.encode()).hexdigest()[:16]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="unfinished-") as unfinished:
            content = Path(unfinished) / "content"
            content.mkdir()
            make(content)
            content.rename(folder)  # a layer with its final name is whole
    return folder


def run(inside: Inside) -> None:
    """Runs it to its end. Raises CalledProcessError."""
    subprocess.run(inside.command(), check=True)


# What a step of a build needs of this machine to install packages: names, certificates, and pip's settings.
NETWORK = [
    (Path(file), file, False)
    for file in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/etc/pip.conf")
    if Path(file).exists()
]
FROM_HERE = {
    name: value
    for name, value in os.environ.items()
    if name.upper().startswith(("PIP_", "SSL_CERT", "REQUESTS_CA", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"))
}


def debian(release: str) -> Path:
    """A minimal Debian with its Python, as the images `python:*-slim-<release>` are."""

    def make(folder: Path) -> None:
        argv = [
            "debootstrap",
            "--variant=minbase",
            "--include=python3,python3-venv,ca-certificates",
            release,
            str(folder),
        ]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        (folder / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        shutil.rmtree(folder / "var/cache/apt", ignore_errors=True)

    return layer(f"debian {release}", make)
