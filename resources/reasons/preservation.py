"""What a machine says that is kept for a look, or is asked to be (seed 003)."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

PRESERVING: dict[str, Reason] = {
    "Preserved": Reason(
        Kind.WAIT,
        (
            "The machine is kept for a look until the time that is shown; until then only a person's request, a "
            "rollout that is not held, hibernation or fewer replicas delete it."
        ),
        see=(
            "`hostler describe {machine}`: *Preserved*; the column of `hostler get machines` says Running:Preserved "
            "or Failed:Preserved."
        ),
        by_itself=(
            "At its time a Running machine is like any other again, and the VM of a Failed one is deleted. A Failed "
            "machine that is well again is Running:Preserved until then."
        ),
        do=(
            "Look at the VM; nothing else needs to be done. To end it sooner: `hostler release {machine}`; to keep it "
            "longer: `hostler extend {machine} --for 8h`."
        ),
        worry="Not at all; PreservationEnds says so an hour before.",
    ),
    "PreserveUndecided": Reason(
        Kind.WAIT,
        "The machine Failed and is drained, and its pool has not said yet whether it is preserved or deleted.",
        see="`hostler describe {machine}`: the message says what was asked for.",
        by_itself="The pool preserves the machine or deletes it; while no worker runs the pool's workflow, it stays.",
        do=(
            "Nothing: the pool answers in seconds. After a minute find out what it waits for: `hostler get pools "
            "--cluster {cluster}`."
        ),
        worry="After a minute.",
    ),
    "PreserveWaits": Reason(
        Kind.WAIT,
        "Preservation was asked for with `now`, and the machine is neither Running nor Failed.",
        see="`hostler describe {machine}`: *To be preserved*.",
        by_itself="It begins when the machine is Running or Failed.",
        do=(
            "Nothing: it begins when the machine is Running or Failed. `hostler describe {machine}` says what that "
            "waits for."
        ),
        worry="Not at all.",
    ),
    "PreserveGranted": Reason(
        Kind.HAPPENING,
        "The pool has said that the Failed machine is preserved.",
    ),
    "RepairRefused": Reason(
        Kind.HAPPENING,
        (
            "A Failed machine was to be deleted, and is not: by then somebody had asked for its preservation, or it "
            "was adopted and is no longer Failed."
        ),
    ),
    "PreserveUnreadable": Reason(
        Kind.HAPPENING,
        (
            "The annotation node.machine.sapcloud.io/preserve on the Node has a value that means nothing; the one "
            "before counts."
        ),
        do=(
            "Write now, when-failed or false: `kubectl annotate --overwrite node NODE "
            "node.machine.sapcloud.io/preserve=when-failed`. Do not remove it: that ends a preservation, and a Failed "
            "machine is deleted then."
        ),
        warning=True,
    ),
    "PreserveNode": Reason(
        Kind.HAPPENING,
        (
            "The Node of a preserved machine could not be written, so cluster-autoscaler may not know yet that it is "
            "kept, or that it is no longer kept."
        ),
        do=(
            "Nothing: it is tried again. The message has the error; if it stays, check whether the API server lets "
            "Hostler write Nodes: `hostler doctor`."
        ),
        warning=True,
    ),
    "PreservationEnds": Reason(
        Kind.HAPPENING,
        "The machine is preserved for one more hour at most.",
        do="Nothing, if you are done. To keep it longer: `hostler extend {machine} --for 8h`.",
        warning=True,
    ),
    "PreservationMoved": Reason(
        Kind.HAPPENING,
        "Somebody has moved the time at which the preservation ends.",
    ),
    "PreserveExpired": Reason(
        Kind.HAPPENING,
        "The time of a preservation, or of a request for one, has passed.",
    ),
    "Released": Reason(
        Kind.HAPPENING,
        (
            "The preservation was ended: by hostler release, by the annotation false, or because the annotation that "
            "asked for it was removed."
        ),
    ),
    "SlotTaken": Reason(
        Kind.HAPPENING,
        "The pool's autoPreserveFailedMax was lowered; this machine, which nobody had asked to keep, is deleted.",
    ),
    "PreserveCarried": Reason(
        Kind.HAPPENING,
        (
            "A new Node object of the machine came without the annotation preserve that the former one had; the "
            "request still counts."
        ),
    ),
}
