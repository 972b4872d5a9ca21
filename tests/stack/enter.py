"""The first process of a service: `python enter.py SPEC.json`, in new mount, process-id and host-name namespaces.

It makes the root file system of layers, mounts what the service has, becomes its user and then its command. Standard
library only: it runs under any Python of the host.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

PR_SET_NO_NEW_PRIVS = 38


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def enter(spec: dict[str, Any]) -> None:
    mount("--make-rprivate", "/")
    root = Path(spec["root"])
    layers = ":".join(spec["layers"])
    mount(
        "-t",
        "overlay",
        "overlay",
        "-o",
        f"lowerdir={layers},upperdir={spec['upper']},workdir={spec['work']}",
        root.as_posix(),
    )
    for source, target, writable in spec["binds"]:
        place = root / target.lstrip("/")
        _like_the_image(Path(source), place)
        if Path(source).is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        mount("--bind", source, str(place))
        if not writable:
            mount("-o", "remount,ro,bind", str(place))
    for target in spec["tmpfs"]:
        (root / target.lstrip("/")).mkdir(parents=True, exist_ok=True)
        mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(root / target.lstrip("/")))
    mount("--rbind", "/dev", str(root / "dev"))
    mount("-t", "proc", "proc", str(root / "proc"))
    if spec["read_only"]:
        mount("-o", "remount,ro,bind", str(root))
    socket.sethostname(spec["hostname"])
    os.chroot(root)
    os.chdir(spec["workdir"])
    _become(spec["user"])
    if spec["no_new_privileges"]:
        ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.umask(0o022)
    os.execvpe(spec["argv"][0], spec["argv"], spec["environment"])


def _like_the_image(volume: Path, place: Path) -> None:
    """A new volume takes owner and mode of the folder that the image has in its place, as Docker does."""
    if volume.is_dir() and place.is_dir() and not any(volume.iterdir()) and volume.stat().st_uid == 0:
        there = place.stat()
        os.chown(volume, there.st_uid, there.st_gid)
        volume.chmod(there.st_mode & 0o7777)


def _become(user: str) -> None:
    uid, _, gid = user.partition(":")
    if int(uid) == 0:
        return
    os.setgroups([])
    os.setgid(int(gid or uid))
    os.setuid(int(uid))


if __name__ == "__main__":
    enter(json.loads(Path(sys.argv[1]).read_text()))
