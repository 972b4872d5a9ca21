"""What stands for the images of docker-compose.yml: the same programs at the same places, on this machine's libraries.

Versions are not taken from the images' tags: `versions()` tells what runs, and a test holds Temporal's to the file.
"""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from paths import ROOT

from stack.dockerfile import Build
from stack.layers import HOST, Image, layer
from stack.programs import TEMPORAL, UI, program, sources

TEMPORAL_USER = "1000:1000"

POSTGRESQL = r"""#!/bin/bash
# What the official image's entry point does with these variables, in short.
set -euo pipefail
if [ "$(id -u)" = 0 ]; then
    install -d -o postgres -g postgres -m 0700 "$PGDATA"
    install -d -o postgres -g postgres -m 2775 /var/run/postgresql
    chown postgres "$(dirname "$PGDATA")"
    exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-local=trust \
        --auth-host=scram-sha-256 --no-sync >/dev/null
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    pg_ctl -o "-c listen_addresses=''" -w start >/dev/null
    createdb --username="$POSTGRES_USER" "${POSTGRES_DB:-$POSTGRES_USER}"
    pg_ctl -m fast -w stop >/dev/null
fi
exec "$@"
"""
NETCAT = """#!/usr/bin/python3
import socket, sys
socket.create_connection((sys.argv[2], int(sys.argv[3])), 3)
"""


def image(reference: str) -> Image:
    """What stands for an image. Raises LookupError for one that is not known here."""
    name, _, tag = reference.rpartition(":")
    if name not in IMAGES:
        raise LookupError(f"{reference}: only {', '.join(IMAGES)} are known here")
    return IMAGES[name](tag)


def _pinned(version: str, tag: str) -> None:
    if version != f"v{tag}":
        raise LookupError(f"docker-compose.yml has {tag}, and go.mod in tests/stack builds {version}")


def _script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def _program(path: Path, source: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, path)
    path.chmod(0o755)


def _busybox(folder: Path) -> None:
    """What the images of Alpine have: a shell that knows pipefail, and netcat."""
    (folder / "usr/bin").mkdir(parents=True, exist_ok=True)
    (folder / "usr/bin/sh").symlink_to("bash")
    _script(folder / "usr/local/bin/nc", NETCAT)


def _server(tag: str) -> Image:
    _pinned(TEMPORAL.version, tag)

    def make(folder: Path) -> None:
        _busybox(folder)
        _program(folder / "usr/local/bin/temporal-server", program(TEMPORAL, "temporal-server"))
        _program(folder / "etc/temporal/entrypoint.sh", sources(TEMPORAL) / "docker/scripts/sh/entrypoint.sh")

    built = layer(f"temporalio/server {tag}", make)
    return Image([built, HOST], command=["/etc/temporal/entrypoint.sh"], user=TEMPORAL_USER, workdir="/etc/temporal")


def _admin_tools(tag: str) -> Image:
    _pinned(TEMPORAL.version, tag)

    def make(folder: Path) -> None:
        _busybox(folder)
        _program(folder / "usr/local/bin/temporal-sql-tool", program(TEMPORAL, "temporal-sql-tool"))
        _program(folder / "usr/local/bin/temporal", Path(sys.executable).with_name("temporal"))
        shutil.copytree(sources(TEMPORAL) / "schema", folder / "etc/temporal/schema")

    return Image([layer(f"temporalio/admin-tools {tag}", make), HOST], user=TEMPORAL_USER)


def _ui(tag: str) -> Image:
    _pinned(UI.version, tag)

    def make(folder: Path) -> None:
        home = folder / "home/ui-server"
        _program(home / "ui-server", program(UI, "ui-server"))
        _program(home / "start-ui-server.sh", sources(UI) / "docker/start-ui-server.sh")
        (home / "config").mkdir()
        shutil.copyfile(sources(UI) / "config/docker.yaml", home / "config/docker.yaml")

    built = layer(f"temporalio/ui {tag}", make)
    return Image([built, HOST], ["./start-ui-server.sh"], user=TEMPORAL_USER, workdir="/home/ui-server")


def _postgres(tag: str) -> Image:
    newest = max(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: int(p.parts[-3]), default=None)
    if newest is None:
        raise LookupError("there is no PostgreSQL here: apt-get install postgresql")

    def make(folder: Path) -> None:
        _script(folder / "usr/local/bin/docker-entrypoint.sh", POSTGRESQL)

    path = f"{newest.parent}:/usr/local/bin:/usr/bin:/bin"
    built = layer(f"postgres {POSTGRESQL}", make)
    command = ["postgres", "-c", "listen_addresses=*"]
    return Image(
        [built, HOST], ["docker-entrypoint.sh"], command, environment={"PATH": path}, stop_signal=signal.SIGINT
    )


def _hostler(_: str) -> Image:
    return Build(ROOT).image()


IMAGES: dict[str, Callable[[str], Image]] = {
    "hostler": _hostler,
    "postgres": _postgres,
    "temporalio/admin-tools": _admin_tools,
    "temporalio/server": _server,
    "temporalio/ui": _ui,
}
