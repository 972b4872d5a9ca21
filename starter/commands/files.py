"""Manifests from files, directories and standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from resources.documents import SIZE_MOST
from resources.manifests import AnyManifest, Loaded, ManifestError, load_manifests

SUFFIXES = (".yaml", ".yml", ".json")


def read(sources: Iterable[str]) -> Loaded:
    """Everything in `sources`: files, directories (their *.yaml, *.yml and *.json, not deeper, as kubectl), `-`.

    Raises ManifestError that names the file, and also when there is nothing in them.
    """
    whole = Loaded()
    given = list(sources)
    for text, source in _texts(given):
        part = load_manifests(text, source)
        whole.pools += part.pools
        whole.machines += part.machines
        whole.classes += part.classes
        whole.secrets += part.secrets
        whole.warnings += part.warnings
    if not (whole.machines or whole.pools or whole.classes or whole.secrets):
        raise ManifestError(f"{', '.join(given)}: contains no manifests")
    return whole


def every(loaded: Loaded) -> list[AnyManifest]:
    """All manifests, in the order in which `apply` sends them."""
    return [*loaded.secrets, *loaded.classes, *loaded.pools, *loaded.machines]


def _texts(sources: Iterable[str]) -> Iterator[tuple[str, str]]:
    for source in sources:
        if source == "-":
            yield sys.stdin.read(SIZE_MOST + 1), "standard input"
            continue
        path = Path(source)
        paths = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES) if path.is_dir() else [path]
        if not paths:
            raise ManifestError(f"{source}: no *.yaml, *.yml or *.json in this directory")
        for file in paths:
            try:
                with file.open(encoding="utf-8") as content:
                    yield content.read(SIZE_MOST + 1), str(file)
            except OSError as e:
                raise ManifestError(f"{file}: cannot be read: {e.strerror}") from None
            except UnicodeDecodeError:
                raise ManifestError(f"{file}: not UTF-8 text") from None
