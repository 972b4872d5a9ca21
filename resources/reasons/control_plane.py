"""What a control plane waits for, and what it does."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

_SEE = "`hostler describe controlplane --cluster {cluster}` has each index: its machines, and what it waits for."
_GATE = "Creates and deletes no machine; a held one whose index has a ready replacement still goes."
_ALL = "`hostler get machines --cluster {cluster}`"

CONTROL_PLANE_WAITS: dict[str, Reason] = {
    "NoReadyMachines": Reason(
        Kind.WAIT,
        "No machine of the control plane is ready, so nothing is replaced: a new one could not join.",
        see=_SEE,
        by_itself=f"{_GATE} It goes on when one is ready again.",
        do=(
            f"Bring one back: {_ALL} shows what each waits for. Where etcd has lost its quorum, restore it from a "
            "backup first."
        ),
        worry="At once: the cluster's API is probably down.",
        warning=True,
    ),
    "UnmanagedNodes": Reason(
        Kind.WAIT,
        "Nodes with a control plane's role belong to no machine of the set, so their members of etcd are not counted.",
        see=_SEE,
        by_itself=f"{_GATE} Looks again every two minutes, and takes over machines that belong to nobody.",
        do=(
            "Give their VMs machines (docs/adopt.md), or remove Nodes whose VMs are gone. "
            f"{_ALL} has the machines that there are."
        ),
        worry="At once, where nobody has made a machine by hand.",
    ),
    "ExcessIndexes": Reason(
        Kind.WAIT,
        "There are machines in more indexes than the set has replicas.",
        see=_SEE,
        by_itself=_GATE,
        do=f"Delete the machines of an index that is not needed: {_ALL}.",
        worry="At once.",
    ),
    "ExcessUpdatedReplicas": Reason(
        Kind.WAIT,
        "An index has more than one machine that is ready and up to date, and with OnDelete nobody deletes one.",
        see=_SEE,
        by_itself=_GATE,
        do=f"Delete the one that is not needed: {_ALL}.",
        worry="At once.",
    ),
    "FailedReplacement": Reason(
        Kind.WAIT,
        "A replacement cannot become ready, so the machine that it was to replace stays and nothing else begins.",
        see=_SEE,
        by_itself=_GATE,
        do=(
            "Correct the template or its class and apply it, or go back: `hostler rollout undo controlplane --cluster "
            "{cluster}`; the failed machine is then replaced. Delete it to try the same again."
        ),
        worry="At once: the update is stuck.",
        warning=True,
    ),
    "WaitsForReplacement": Reason(
        Kind.WAIT,
        "A machine is being deleted, and its drain waits until its index has a ready replacement.",
        see=_SEE,
        by_itself="Makes the replacement, and lets the old machine go when that is ready.",
        do=(
            f"Nothing, for the minutes that a machine takes to join: {_ALL}. Deleted again with `--force` it "
            "goes without a replacement, at the risk of etcd's quorum."
        ),
        worry="When no replacement is created, or it does not join: the control plane says why.",
    ),
    "ControlPlaneLeaving": Reason(
        Kind.WAIT,
        "Another machine of the control plane is on its way out; one leaves at a time.",
        see=_SEE,
        by_itself="Goes on when nothing is left of that machine.",
        do=f"Nothing, unless that machine does not go: {_ALL} shows what it waits for.",
        worry="When the drain of the other one makes no progress.",
    ),
    "BelowQuorum": Reason(
        Kind.WAIT,
        "Without the machine, fewer machines would be ready than a quorum needs.",
        see=_SEE,
        by_itself="Goes on when enough others are ready.",
        do=(
            f"Bring back those that are not ready: {_ALL}. Where they cannot come back, judge first what is left of "
            "etcd; a deletion with `--force` lets one go whatever it costs."
        ),
        worry="At once: one more machine lost, and the control plane is down.",
        warning=True,
    ),
    "ReplacementComing": Reason(
        Kind.WAIT,
        "A machine that takes another one's place is not ready yet, or the other one is not gone.",
        see=_SEE,
        by_itself="Goes on with the next index when this one has one ready machine and nothing else.",
        do=f"Nothing, for the minutes that a machine takes to join: {_ALL}.",
        worry="After creationTimeout: the machine itself says what it waits for.",
    ),
    "SurgeUsed": Reason(
        Kind.WAIT,
        "An index is to get a machine, and there is one machine beyond the replicas already.",
        see=_SEE,
        by_itself="Goes on when nothing is left of that one.",
        do=f"Nothing, unless the extra machine does not go: {_ALL}.",
        worry="When no machine is on its way out.",
    ),
    "DeleteToReplace": Reason(
        Kind.WAIT,
        "Machines are outdated, and with the strategy OnDelete a person begins each replacement.",
        see=_SEE,
        by_itself="Nothing, until one is deleted: then it is replaced first, and goes after that.",
        do=f"Delete the machine that is to be replaced : {_ALL} has them.",
        worry="Never on its own.",
    ),
    "Inactive": Reason(
        Kind.WAIT,
        "The set only looks on: it creates, deletes and holds no machine.",
        see=_SEE,
        by_itself="Nothing.",
        do=(
            "Set spec.state to Active and apply it: `hostler apply --dry-run -f FILE --cluster {cluster}` says first "
            "what it would do."
        ),
        worry="Never on its own.",
    ),
}
CONTROL_PLANE_STEPS: dict[str, Reason] = {
    "IndexFilled": Reason(Kind.HAPPENING, "A machine was created for an index of the control plane."),
    "HoldLifted": Reason(
        Kind.HAPPENING,
        "A machine of the control plane that is being deleted may be drained: its index has a ready replacement, it "
        "never ran, or its deletion is forced.",
    ),
    "ControlPlaneUpdated": Reason(
        Kind.HAPPENING, "Every index has one machine, which is ready and up to date, and nothing else is left."
    ),
    "OwnerFound": Reason(Kind.HAPPENING, "A machine that belonged to nobody was taken over by a control plane."),
    "OwnerGone": Reason(
        Kind.HAPPENING,
        "The set that the machine belonged to was deleted, and has let it go; nobody replaces it any more.",
        do="Nothing. To have it looked after again, apply a set: it takes over the machines of its Nodes.",
    ),
}
