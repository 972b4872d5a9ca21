"""What a class tells of itself and of the machines that use it."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

CLASS: dict[str, Reason] = {
    "UsersUpdated": Reason(
        Kind.HAPPENING,
        "Every machine of the class is done with its newest generation, as far as it can be without a new VM.",
        "Nothing.",
    ),
    "UserFailed": Reason(
        Kind.HAPPENING,
        "A machine could not take the class's newest generation; the message says which and why.",
        "Do what the machine's own reason asks for: `hostler describe {machine}`. It is tried again by itself.",
        warning=True,
    ),
    "UserSilent": Reason(
        Kind.HAPPENING,
        "A machine was told of the newest generation and said nothing for two minutes, so it is told again.",
        "See whether it stands still (`hostler describe {machine}`), or a worker polls too little: `hostler doctor`.",
        warning=True,
    ),
    "TellingFailed": Reason(
        Kind.HAPPENING,
        "The machines of the class could not be told of a change, because Temporal did not take it.",
        "Nothing: they are told again after two minutes. If it comes again: `hostler doctor`.",
        warning=True,
    ),
    "UsersNotFound": Reason(
        Kind.HAPPENING,
        "Machines that named the class before its workflow began could not be looked for.",
        "Nothing: it is looked again in the next run. The machines know their class and report by themselves.",
        warning=True,
    ),
    "GenerationRaised": Reason(
        Kind.HAPPENING,
        "A machine has a newer generation, of a former class of this name, so the class counts on from there.",
        "Nothing: each machine is told the class as it is now. Find out who ended the former workflow from outside.",
        warning=True,
    ),
}
"""In the journal of a class: `hostler describe class NAME`."""
