"""What a machine says that is kept for a look, or asked to be (seed 003)."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

PRESERVING: dict[str, Reason] = {
    "Preserved": Reason(
        Kind.WAIT,
        "The machine is kept for a look until the time that is said; nothing deletes it before but what "
        "people ask for, a rollout that is not held, hibernation or fewer replicas.",
        "Look at the VM: nothing needs to be done. Sooner: `hostler release {machine}`; longer: `hostler "
        "extend {machine} --for 8h`.",
    ),
    "PreserveUndecided": Reason(
        Kind.WAIT,
        "The machine Failed and is drained, and its pool has not said yet whether it is preserved or deleted.",
        "Nothing: the pool answers in seconds. After a minute see what it waits for: `hostler get pools "
        "--cluster {cluster}`.",
    ),
    "PreserveWaits": Reason(
        Kind.WAIT,
        "Preservation was asked for with `now`, and the machine is neither Running nor Failed.",
        "Nothing: it begins when the machine is Running or Failed. `hostler describe {machine}` says what that waits "
        "for.",
    ),
    "PreserveGranted": Reason(
        Kind.HAPPENING,
        "The pool has said that the Failed machine is preserved.",
        "Nothing.",
    ),
    "RepairRefused": Reason(
        Kind.HAPPENING,
        "A failed machine was to be deleted, and is not: by then somebody had asked for its preservation, or "
        "it was adopted and is not Failed any more.",
        "Nothing.",
    ),
    "PreserveUnreadable": Reason(
        Kind.HAPPENING,
        "The annotation node.machine.sapcloud.io/preserve on the Node has a value that says nothing; the one "
        "before counts.",
        "Write now, when-failed or false: `kubectl annotate --overwrite node NODE "
        "node.machine.sapcloud.io/preserve=when-failed`. Do not remove it: that ends a preservation, and a Failed "
        "machine is deleted then.",
        warning=True,
    ),
    "PreserveNode": Reason(
        Kind.HAPPENING,
        "The Node of a preserved machine could not be written, so cluster-autoscaler may not know yet that it"
        " is kept, or that it is no more.",
        "Nothing: it is tried again. The message has the error; if it stays, see whether the API server lets "
        "Hostler write Nodes: `hostler doctor`.",
        warning=True,
    ),
    "PreservationEnds": Reason(
        Kind.HAPPENING,
        "The machine is preserved for an hour more at most.",
        "Nothing, if you are done. To keep it longer: `hostler extend {machine} --for 8h`.",
        warning=True,
    ),
    "PreservationMoved": Reason(
        Kind.HAPPENING,
        "Somebody has moved the time at which the preservation ends.",
        "Nothing.",
    ),
    "PreserveExpired": Reason(
        Kind.HAPPENING,
        "The time of a preservation, or of a request for one, has passed.",
        "Nothing.",
    ),
    "Released": Reason(
        Kind.HAPPENING,
        "The preservation was ended: by hostler release, by the annotation false, or because the annotation "
        "that asked for it was removed.",
        "Nothing.",
    ),
    "SlotTaken": Reason(
        Kind.HAPPENING,
        "The pool's autoPreserveFailedMax was lowered, and this machine, which nobody had asked to keep, is deleted.",
        "Nothing.",
    ),
    "PreserveCarried": Reason(
        Kind.HAPPENING,
        "A new Node object of the machine came without the annotation preserve that the former one had; the "
        "request goes on to count.",
        "Nothing.",
    ),
}
