"""Prints docs/runbook.md: an entry for each reason, in the words of resources/reasons/.

    python tools/runbook.py > docs/runbook.md

tests/unit/test_reasons.py holds the file to it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator

from resources.reasons import GROUPS, Kind, Reason, filled

WIDTH = 120
WOKEN = """\
# Runbook

## What woke you?

You have a machine's name and a reason, from an alert, from `hostler get machines`, from the web UI or from a Node's
Events: below is an entry for each reason. You have an [alert](metrics.md#alerts):
"""
ALERTS: dict[str, tuple[str, ...]] = {
    "HostlerMachinesFailed": ("CreationTimeout", "HealthTimeout", "VMGone", "StaleNode"),
    "HostlerNotAuthorized": ("NotAuthorized", "CredentialsMissing", "WrongAccount"),
    "HostlerHotUpdatesFail": ("UpdateFailed",),
    "HostlerClassNotEverywhere": ("UpdateFailed", "UserFailed", "UserSilent"),
    "HostlerClassParked": ("InternalError",),
    "HostlerMachinesParked": ("InternalError",),
    "HostlerRolloutStopped": ("ProgressDeadlineExceeded", "NewMachinesNeverJoin", "NewMachinesFail"),
    "HostlerTooManyUnhealthy": ("TooManyUnhealthy",),
    "HostlerMachinesNeverJoin": ("MachinesNeverJoin", "MachinesDieYoung"),
    "HostlerPoolParked": ("InternalError",),
    "HostlerControlPlaneBelowQuorum": ("NoReadyMachines", "BelowQuorum"),
    "HostlerControlPlaneDegraded": (
        "NoReadyMachines",
        "UnmanagedNodes",
        "ExcessIndexes",
        "ExcessUpdatedReplicas",
        "FailedReplacement",
    ),
    "HostlerControlPlaneHeld": ("BelowQuorum",),
    "HostlerControlPlaneParked": ("InternalError",),
    "HostlerPreservationEnds": ("PreservationEnds", "Preserved"),
    "HostlerPreserveSlotsExhausted": ("FailedPreserved",),
    "HostlerDrainBlocked": ("Draining",),
    "HostlerDeadlinesNear": ("NodeNotSeen", "NodeNotReady", "Draining"),
    "HostlerDriverThrottled": ("Throttled",),
    "HostlerDriverCallsFail": ("ProviderError", "ProviderUnavailable"),
    "HostlerCallsFail": ("APIUnreachable", "ActivityFailed"),
    "HostlerQueueNotServed": (),
    "HostlerWorkerStuck": (),
    "HostlerNobodyCounts": (),
}
"""Reasons to begin with; none: `hostler doctor` has the words."""
SEEN = """\
You have only seen something:
"""
SYMPTOMS: dict[str, tuple[str, ...]] = {
    "A new machine gets no VM": (
        "OutOfCapacity",
        "QuotaExceeded",
        "NotAuthorized",
        "CredentialsMissing",
        "InvalidSpec",
    ),
    "Its VM runs, and no node joins": ("NodeNotSeen", "VMStopped", "DuplicateNode", "StaleNode"),
    "Its node is there and gets no work": ("NodeNotReady", "StartupTaint", "PostStartUpdate", "ReadyTaint"),
    "A machine is Unknown": ("NodeNotReady", "NodeUnhealthy", "NodeMissing", "VMNotRunning", "CannotConfirm"),
    "An ill machine is not replaced": ("RepairPermit", "TooManyUnhealthy", "RepairBudget", "FailedPreserved"),
    "A machine does not go": (
        "Draining",
        "PreDrainHook",
        "HeldByOwner",
        "PreTerminateHook",
        "DeletingVM",
        "Forgetting",
    ),
    "A rollout is stuck": (
        "NewMachinesNotReady",
        "Canary",
        "WaitsForVMsToGo",
        "ProgressDeadlineExceeded",
        "RolloutPaused",
    ),
    "A changed tag does not arrive": ("UpdateFailed", "UpdateNotSupported", "Outdated"),
    "A machine config does not arrive": (
        "ConfigNodesDegraded",
        "ConfigNodesSilent",
        "ConfigPoolPaused",
        "ConfigRolloutStalled",
        "RenderDegraded",
    ),
    "Nobody polls, or a page of the web UI stays empty": (),
    "Nothing happens in a whole cluster": ("APIUnreachable", "APIRefused", "ClusterPaused", "Unreachable"),
}
HEAD = """\
## How to look

If you only have a feeling:

```sh
hostler doctor                       # what waits for a person, and what is wrong: workers, API servers, Secrets, rights
hostler tree                         # cluster, pools, revisions and machines, and the first thing wrong with each
hostler get machines                 # phase and reason of each
hostler describe machine NAME        # what it waits for, since when, until when, and what can be done
hostler events machine NAME          # how it came to this; without machine NAME: all of the cluster
hostler describe cluster CLUSTER     # whether its API server and its clouds answer
```

Three things always hold. Nothing is destroyed on old news: while an API does not answer, no machine is Failed. A
machine never has two VMs. What is deleted is followed until the cloud confirms that it is gone.

In each entry: **See** says how to look closer; **By itself**, what Hostler does, and when it tries next; **Do**, what
you can do, in the words of describe; **Worry**, when it is no longer normal. Times are the defaults. NAME is the
machine and CLUSTER its cluster; `--cluster CLUSTER` is not needed where it is the one in your settings.

This page is made by `tools/runbook.py` from `resources/reasons/`: edit the words there, then `make runbook`.
"""
INDEX = """\
Everything that a machine or a pool waits for, why a machine Failed, and the conditions that it shows:
"""
APPENDIX = """\
## Appendix: what only happens

These stand in a journal, in a Node's Events, or in what `hostler events machine NAME` tells. Nothing waits because of
them. Where only a meaning is given, there is nothing to do.
"""


def main() -> None:
    sys.stdout.write(runbook())


def runbook() -> str:
    """The whole page."""
    woken = {heading: _of(heading, happenings=False) for heading in GROUPS}
    happened = {heading: _of(heading, happenings=True) for heading in GROUPS}
    parts = [WOKEN, *_first(ALERTS), "", SEEN, *_first(SYMPTOMS), "", INDEX, *_index(woken), ""]
    warnings = [name for found in happened.values() for name, reason in found.items() if reason.warning]
    appendix = "What only happens is in the [appendix](#appendix-what-only-happens)"
    parts += [wrapped(f"{appendix}; warnings among it: {_links(warnings)}."), "", HEAD]
    for heading, found in woken.items():
        if found:
            parts += [f"## {heading}", "", wrapped(_text(GROUPS[heading].about)), "", *_entries(found)]
    parts += [APPENDIX, *_index(happened), ""]
    for heading, found in happened.items():
        if found:
            about = "" if woken[heading] else f": {_text(GROUPS[heading].about)}"
            parts += [wrapped(f"**{heading}**{about}"), "", *_entries(found)]
    return "\n".join(parts).rstrip() + "\n"


def _of(heading: str, happenings: bool) -> dict[str, Reason]:
    reasons = GROUPS[heading].reasons
    return {name: r for name, r in reasons.items() if (r.kind == Kind.HAPPENING) is happenings}


def _index(by_heading: dict[str, dict[str, Reason]]) -> Iterator[str]:
    for heading, found in by_heading.items():
        if found:
            yield wrapped(f"- **{heading}**: {_links(found)}", indent="  ")


def _first(where: dict[str, tuple[str, ...]]) -> Iterator[str]:
    for what, names in where.items():
        yield wrapped(f"- **{what}**: {_links(names) or '`hostler doctor`'}", indent="  ")


def _links(names: Iterable[str]) -> str:
    return ", ".join(f"[{name}](#{name.lower()})" for name in names)


def _entries(found: dict[str, Reason]) -> Iterator[str]:
    for name, reason in found.items():
        yield from (f"### {name}", "", wrapped(_text(reason.meaning)), "")
        do = "" if reason.do == "Nothing." else reason.step
        parts = {"See": reason.see, "By itself": reason.by_itself, "Do": do, "Worry": reason.worry}
        lines = [wrapped(f"- **{what}:** {_text(said)}", indent="  ") for what, said in parts.items() if said]
        yield from [*lines, ""] if lines else []
        for paragraph in _text(reason.more).splitlines():
            yield wrapped(paragraph, indent="   " if paragraph[:1].isdigit() else "")
        if reason.more:
            yield ""


def _text(text: str) -> str:
    return filled(text, "CLUSTER", "NAME")


def wrapped(text: str, indent: str = "") -> str:
    """Wraps into lines of at most WIDTH characters, the first as it is and the others indented. Code is never broken,
    so that a command can be copied."""
    lines, line = [], ""
    for word in re.findall(r"(?:[^\s`]|`[^`]*`)+(?: [-+*](?= ))?", text):  # no line begins like a list item
        if line and len(line) + 1 + len(word) > WIDTH:
            lines, line = [*lines, line], indent + word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])


if __name__ == "__main__":
    main()
