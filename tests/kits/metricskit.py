"""Prometheus' text format, as far as tests of metrics need it."""

from __future__ import annotations

import re

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse(text: str) -> Samples:
    samples = {}
    for line in text.splitlines():
        if found := re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line):
            name, labels, number = found.groups()
            samples[name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels))] = float(number)
    return samples


def value(samples: Samples, name: str, **labels: str) -> float | None:
    """The value of the only series with these labels (and perhaps others); None when there is none."""
    found = [n for (known, having), n in samples.items() if known == name and set(labels.items()) <= having]
    assert len(found) < 2, f"{name} {labels} is ambiguous: {found}"
    return found[0] if found else None
