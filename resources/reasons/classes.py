"""What a class tells about itself and the machines that use it."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

CLASS: dict[str, Reason] = {
    "UsersUpdated": Reason(
        Kind.HAPPENING,
        "Every machine of the class has the newest generation, as far as that is possible without a new VM.",
    ),
    "UserFailed": Reason(
        Kind.HAPPENING,
        "A machine could not apply the class's newest generation; the message says which machine and why.",
        do=(
            "Do what the machine's own reason asks for: `hostler describe {machine}`. The update is tried again on "
            "its own."
        ),
        warning=True,
    ),
    "UserSilent": Reason(
        Kind.HAPPENING,
        "A machine was told of the newest generation and did not report back within two minutes, so it is told again.",
        do=("Check whether it is stuck (`hostler describe {machine}`), or whether too few workers poll: {doctor}."),
        warning=True,
    ),
    "UpdateHeld": Reason(
        Kind.HAPPENING,
        "Machines are not told of a hot update yet, because their pool is outside its maintenance windows, or frozen.",
        do=(
            "Nothing: they are told when a window of their pool begins, or its freeze ends. docs/pools.md says what to "
            "do where that cannot wait."
        ),
    ),
    "TellingFailed": Reason(
        Kind.HAPPENING,
        "Temporal did not accept the signals that tell the class's machines of a change.",
        do="Nothing: the signals are sent again after two minutes. If it happens again: {doctor}.",
        warning=True,
    ),
    "UsersNotFound": Reason(
        Kind.HAPPENING,
        "The search for machines that referred to the class before its workflow began has failed.",
        do="Nothing: the next run searches again. The machines know their class and report on their own.",
        warning=True,
    ),
    "GenerationRaised": Reason(
        Kind.HAPPENING,
        "A machine has a higher generation, from an earlier class of this name, so the class continues counting "
        "from there.",
        do=("Nothing: each machine is told of the class as it is now. Find out who terminated the earlier workflow."),
        warning=True,
    ),
}
