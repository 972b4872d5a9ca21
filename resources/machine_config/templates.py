"""Reads the templates of machine configs: those that come with Hostler, or a folder of the operator's own."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

SHIPPED = "templates"
"""The package whose folders are the templates."""
FILES_MOST = 5000
BYTES_MOST = 8 << 20
"""The most bytes of all templates together; upstream has 217 files of 1 MiB."""


class TemplatesError(ValueError):
    """The folder of templates cannot be read; the message says which file, and why."""


def shipped() -> dict[str, str]:
    """The templates that come with Hostler: text by path, such as `master/00-master/_base/files/x.yaml`."""
    return _read(resources.files(SHIPPED))


def folder(path: Path) -> dict[str, str]:
    """The templates in a folder. Raises TemplatesError."""
    if not path.is_dir():
        raise TemplatesError(f"{path}: there is no such folder; name one at machineConfigs.templates, or leave it out")
    return _read(path)


def _read(root: Traversable) -> dict[str, str]:
    found: dict[str, str] = {}
    size = 0
    for path, file in _files(root, ""):
        try:
            found[path] = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise TemplatesError(f"{path}: it cannot be read as text: {e}") from None
        size += len(found[path])
        if len(found) > FILES_MOST or size > BYTES_MOST:
            raise TemplatesError(f"{path}: with it there are more than {FILES_MOST} templates, or {BYTES_MOST} bytes")
    return found


def _files(below: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    """The files in folders; what lies beside the roles' folders is about them (a README), and hidden ones are an
    editor's, or a mounted ConfigMap's."""
    for entry in sorted(below.iterdir(), key=lambda e: e.name):
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{entry.name}/")
        elif prefix:
            yield f"{prefix}{entry.name}", entry
