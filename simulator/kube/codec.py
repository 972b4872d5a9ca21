"""What an object goes through when a real server reads it into Go types: times are parsed, empty fields vanish.

Only for built-in kinds; custom objects are stored as they are sent.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from resources.words import kube_time
from simulator.kube.errors import bad_request
from simulator.kube.objects import Obj, parse_time
from simulator.kube.resources import Resource

_TIMES = {
    "creationTimestamp",
    "deletionTimestamp",
    "finishedAt",
    "firstTimestamp",
    "lastHeartbeatTime",
    "lastProbeTime",
    "lastTimestamp",
    "lastTransitionTime",
    "lastUpdateTime",
    "startTime",
    "startedAt",
    "timeAdded",
}
_MICRO_TIMES = {"acquireTime", "eventTime", "lastObservedTime", "renewTime"}
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d\.\d{6}(?:[Zz]|[+-]\d\d:\d\d)")
_MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"
_OMITTED_WHEN_EMPTY = {"allocatable", "annotations", "capacity", "data", "labels", "matchLabels", "nodeSelector"}
_OMITTED_WHEN_FALSE = {"hostIPC", "hostNetwork", "hostPID", "immutable", "unschedulable"}
_FREE_FORM = {"annotations", "labels", "data", "binaryData", "stringData", "matchLabels", "openAPIV3Schema"}
"""Maps whose keys are the user's: a label named `startTime` is no time."""


def decode(resource: Resource, obj: Obj) -> Obj:
    """The object as the server keeps it. Raises 400 for a time that cannot be parsed."""
    if resource.custom is not None:
        return obj
    decoded: Obj = _decode(resource, obj)
    return decoded


def _decode(resource: Resource, value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(resource, v) for v in value]
    if not isinstance(value, dict):
        return value
    decoded: Obj = {}
    for name, part in value.items():
        if part is None or part == [] or (part == {} and name in _OMITTED_WHEN_EMPTY):
            continue
        if part is False and name in _OMITTED_WHEN_FALSE:
            continue
        if name in _TIMES:
            decoded[name] = _time(resource, part)
        elif name in _MICRO_TIMES:
            decoded[name] = _micro_time(resource, part)
        else:
            decoded[name] = part if name in _FREE_FORM else _decode(resource, part)
    return decoded


def _unreadable(resource: Resource, why: str) -> Exception:
    return bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: parsing time {why}'
    )


def _time(resource: Resource, text: Any) -> str:
    try:
        return kube_time(parse_time(text))
    except (TypeError, ValueError):
        raise _unreadable(resource, f'"{text}" as "2006-01-02T15:04:05Z07:00": cannot parse') from None


def _micro_time(resource: Resource, text: Any) -> str:
    """A MicroTime has exactly six decimals, always: a real server refuses one without (clients that drop `.000000`)."""
    if not isinstance(text, str) or not _MICRO_TIME.fullmatch(text):
        rest = text[19:] if isinstance(text, str) else text
        raise _unreadable(resource, f'"{text}" as "{_MICRO_LAYOUT}": cannot parse "{rest}" as ".000000"')
    return micro_time(parse_time(text))


def micro_time(moment: datetime) -> str:
    """A moment as `metav1.MicroTime` is written."""
    whole = kube_time(moment).removesuffix("Z")
    return f"{whole}.{moment.microsecond:06d}Z"
