"""What a class tells about itself and the machines that use it."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

CLASS: dict[str, Reason] = {
    "UsersUpdated": Reason(
        Kind.HAPPENING,
        "Every machine of the class is done with its newest generation, as far as it can be without a new VM.",
    ),
    "UserFailed": Reason(
        Kind.HAPPENING,
        "A machine could not take the class's newest generation; the message says which and why.",
        do=(
            "Do what the machine's own reason asks for: `hostler describe {machine}`. The update is tried again on "
            "its own."
        ),
        warning=True,
    ),
    "UserSilent": Reason(
        Kind.HAPPENING,
        "A machine was told of the newest generation and said nothing for two minutes, so it is told again.",
        do=(
            "Check whether it stands still (`hostler describe {machine}`), or whether too few workers poll: `hostler "
            "doctor`."
        ),
        warning=True,
    ),
    "TellingFailed": Reason(
        Kind.HAPPENING,
        "Temporal did not take the messages that tell the machines of the class of a change.",
        do="Nothing: they are told again after two minutes. If it comes again: `hostler doctor`.",
        warning=True,
    ),
    "UsersNotFound": Reason(
        Kind.HAPPENING,
        "Machines that named the class before its workflow began could not be looked for.",
        do="Nothing: the next run looks again. The machines know their class and report on their own.",
        warning=True,
    ),
    "GenerationRaised": Reason(
        Kind.HAPPENING,
        "A machine has a newer generation, from a former class of this name, so the class counts on from there.",
        do=(
            "Nothing: each machine is told the class as it is now. Find out who ended the former workflow from outside."
        ),
        warning=True,
    ),
}
