"""What a machine says that is kept for a look, or is asked to be (seed 003)."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

PRESERVING: dict[str, Reason] = {
    "Preserved": Reason(
        Kind.WAIT,
        "The machine is kept for inspection until the time that is shown; before that, it is deleted only by a "
        "user's request, a rollout that is not paused, hibernation or a scale-down.",
        see=(
            "`hostler describe {machine}`: *Preserved*; `hostler get machines` shows Running:Preserved or "
            "Failed:Preserved."
        ),
        by_itself=(
            "When the time is over, a Running machine is like any other again, and the VM of a Failed one is "
            "deleted. A Failed machine that becomes healthy again is Running:Preserved until then."
        ),
        do=(
            "Inspect the VM; nothing else needs to be done. To end it sooner: `hostler release {machine}`; to keep "
            "it longer: `hostler extend {machine} --for 8h`."
        ),
        worry="Never; PreservationEnds gives an hour's warning.",
    ),
    "PreserveUndecided": Reason(
        Kind.WAIT,
        "The machine is Failed and drained, and its pool has not decided yet whether to preserve or delete it.",
        see="`hostler describe {machine}`: the message says what was asked for.",
        by_itself=(
            "The pool preserves the machine or deletes it; the machine stays while no worker runs the pool's workflow."
        ),
        do=(
            "Nothing: the pool answers in seconds. After a minute find out what the pool waits for: `hostler get "
            "pools --cluster {cluster}`."
        ),
        worry="After a minute.",
    ),
    "PreserveWaits": Reason(
        Kind.WAIT,
        "Preservation was asked for with `now`, and the machine is neither Running nor Failed.",
        see="`hostler describe {machine}`: *To be preserved*.",
        by_itself="Preserves the machine when it is Running or Failed.",
        do=("Nothing: the machine is preserved when it is Running or Failed. What it waits for: {look}."),
        worry="Never.",
    ),
    "PreserveGranted": Reason(
        Kind.HAPPENING,
        "The pool has decided to preserve the Failed machine.",
    ),
    "RepairRefused": Reason(
        Kind.HAPPENING,
        "A Failed machine was going to be deleted, and is not: in the meantime somebody asked for its "
        "preservation, or it was adopted and is no longer Failed.",
    ),
    "PreserveUnreadable": Reason(
        Kind.HAPPENING,
        "The annotation node.machine.sapcloud.io/preserve on the Node has an invalid value; the previous value "
        "still counts.",
        do=(
            "Write now, when-failed or false: `kubectl annotate --overwrite node NODE "
            "node.machine.sapcloud.io/preserve=when-failed`. Do not remove it: that ends the preservation, and a "
            "Failed machine is then deleted."
        ),
        warning=True,
    ),
    "PreserveNode": Reason(
        Kind.HAPPENING,
        "Hostler could not write to the Node of a preserved machine, so cluster-autoscaler may not know yet "
        "that the machine is kept, or no longer kept.",
        do=(
            "Nothing: it is tried again. The message has the error; if it does not go away, check whether the API "
            "server lets Hostler write to Nodes: {doctor}."
        ),
        warning=True,
    ),
    "PreservationEnds": Reason(
        Kind.HAPPENING,
        "The preservation ends within an hour.",
        do="Nothing, if you are done. To keep it longer: `hostler extend {machine} --for 8h`.",
        warning=True,
    ),
    "PreservationMoved": Reason(
        Kind.HAPPENING,
        "Somebody has changed the time at which the preservation ends.",
    ),
    "PreserveExpired": Reason(
        Kind.HAPPENING,
        "A preservation, or a request for one, has expired.",
    ),
    "Released": Reason(
        Kind.HAPPENING,
        "The preservation was ended by `hostler release`, by the annotation `false`, or by the removal of the "
        "annotation that asked for it.",
    ),
    "SlotTaken": Reason(
        Kind.HAPPENING,
        "The pool's autoPreserveFailedMax was lowered; this machine, which was preserved automatically, is deleted.",
    ),
    "PreserveCarried": Reason(
        Kind.HAPPENING,
        "The machine has a new Node object, without the annotation preserve that the old one had; the request "
        "still counts.",
    ),
}
