"""Which variables HOSTLER_* are settings: a worker would start without one that is misspelled, and say nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from resources.spelling import did_you_mean

PREFIX = "HOSTLER_"
PLACES = {"SETTINGS", "DEBUG"}
_OTHERS = re.compile(r"(SETTINGS|DEBUG|SECRET_.*)")
"""Hostler's own that are no settings: the file's place, more words on errors, Secrets (activities/secrets.py)."""
_SERVICE = re.compile(r"(SERVICE_HOST|SERVICE_PORT|PORT)|.*_(SERVICE_HOST|SERVICE_PORT|PORT)|.*PORT_[0-9A-Z_]*")
"""What Kubernetes sets in a Pod for a Service whose name begins with `hostler`."""


def strange(variables: Iterable[str], settings: Collection[str]) -> Iterator[str]:
    """Those that are no settings and are meant to be, in words. `settings`: the names of the first level.

    One that resembles no setting and has no `__` is another program's.
    """
    for variable in variables:
        name = variable.removeprefix(PREFIX)
        first, nested, _ = name.partition("__")
        if name == variable or first.lower() in settings or _OTHERS.fullmatch(name) or _SERVICE.fullmatch(name):
            continue
        meant = did_you_mean(first, {s.upper() for s in settings} | PLACES, PREFIX)
        if meant or nested:
            yield f"{variable}: there is no such setting{meant or _few(settings)}"


def _few(settings: Collection[str]) -> str:
    return f"; there are {', '.join(f'{PREFIX}{s.upper()}' for s in sorted(settings))}"
