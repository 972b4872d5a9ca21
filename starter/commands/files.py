"""Manifests from files, directories and standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from resources.documents import SIZE_MOST
from resources.manifests import Loaded, ManifestError, load_manifests
from resources.validation import Validate
from starter.outlet import warn

SUFFIXES = (".yaml", ".yml", ".json")


def read(sources: Iterable[str], validate: Validate = Validate.STRICT) -> Loaded:
    """Everything in `sources`: files, directories (their *.yaml, *.yml and *.json, not deeper, as kubectl), `-`.

    Raises ManifestError with all that is wrong in all of them, by file, and also when there is nothing in them. Where
    something is wrong the warnings are said first, so that one look shows everything that is to be corrected.
    """
    whole, wrong = Loaded(), []
    given = list(sources)
    for text, source in texts(given):
        try:
            part = load_manifests(text, source, validate)
        except ManifestError as e:
            wrong.append(str(e))
            whole.warnings += e.warnings
            continue
        for manifest in part.manifests:
            whole.add(manifest)
        whole.warnings += part.warnings
    if wrong:
        for warning in whole.warnings:
            warn(warning)
        raise ManifestError("\n".join(wrong))
    if not whole.manifests:
        raise ManifestError(f"{', '.join(given)}: contains no manifests")
    return whole


def texts(sources: Iterable[str]) -> Iterator[tuple[str, str]]:
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
