"""What a pool does: the steps of its plans, and the ends of its rollouts."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

POOL_STEPS: dict[str, Reason] = {
    "ReplicasMissing": Reason(
        Kind.HAPPENING,
        "Machines were made because there were fewer than replicas.",
    ),
    "ScaledDown": Reason(
        Kind.HAPPENING,
        (
            "Machines were deleted because there were more than replicas, or in a rollout more than replicas and "
            "maxSurge."
        ),
        do="Nothing. docs/pools.md says which go first, and how to choose them.",
    ),
    "MarkedForDeletion": Reason(
        Kind.HAPPENING,
        "Machines were deleted because somebody, usually cluster-autoscaler, had marked them.",
    ),
    "Hibernated": Reason(
        Kind.HAPPENING,
        "Machines were deleted because the pool is hibernated.",
        do="Nothing: `hostler wake pool {pool}` makes them again.",
    ),
    "PoolDeleted": Reason(
        Kind.HAPPENING,
        "Machines were deleted because their pool was.",
        do="Nothing: the pool ends when the last one is gone.",
    ),
    "NeverJoined": Reason(
        Kind.HAPPENING,
        (
            "Machines that were never Running were deleted, and are made again: they had no Node within "
            "creationTimeout, or their VM was gone or stopped before."
        ),
        do=(
            "Nothing, if it comes once. Otherwise read what the next one says: `hostler describe pool {pool}` names it."
        ),
        warning=True,
    ),
    "NeverCreated": Reason(
        Kind.HAPPENING,
        "A machine got no VM within its creationTimeout, because the cloud had none to give, and is made again.",
        do="Nothing. The story has what the cloud said: `hostler events pool {pool}`.",
    ),
    "Unhealthy": Reason(
        Kind.HAPPENING,
        "Machines that Failed for their health were deleted once they were drained, and are replaced.",
        do="Nothing. If it comes again and again, find out what makes them ill: `hostler describe pool {pool}`.",
        warning=True,
    ),
    "RepairGranted": Reason(
        Kind.HAPPENING,
        "Machines may be Failed for their health; they are then drained and replaced.",
        warning=True,
    ),
    "PreservedOnRequest": Reason(
        Kind.HAPPENING,
        "Machines that Failed are preserved because somebody asked for it.",
        do=(
            "Look at them: `hostler get machines --preserved --pool {pool}`. When you have seen enough: `hostler "
            "release MACHINE --cluster {cluster}`."
        ),
        warning=True,
    ),
    "PreservedInSlot": Reason(
        Kind.HAPPENING,
        "Machines that Failed are preserved automatically, because fewer than autoPreserveFailedMax were.",
        do=(
            "Look at them: `hostler get machines --preserved --pool {pool}`. When you have seen enough: `hostler "
            "release MACHINE --cluster {cluster}`."
        ),
        warning=True,
    ),
    "SlotsTaken": Reason(
        Kind.HAPPENING,
        (
            "The pool's autoPreserveFailedMax was lowered, so machines that were preserved automatically no longer "
            "are, the oldest first."
        ),
        do="Nothing: they are deleted and replaced.",
    ),
    "RolledOut": Reason(
        Kind.HAPPENING,
        "A rollout made machines of its revision, as many as maxSurge allows.",
    ),
    "Replaced": Reason(
        Kind.HAPPENING,
        "A rollout deleted machines of older revisions, as many as the pool can spare.",
    ),
    "ReplacedUnavailable": Reason(
        Kind.HAPPENING,
        "A rollout deleted machines of older revisions that were not available anyway.",
    ),
    "RolloutMarks": Reason(
        Kind.HAPPENING,
        "Nodes that a rollout will replace got its marks or lost them: PreferNoSchedule, scale-down-disabled.",
    ),
    "Revised": Reason(
        Kind.HAPPENING,
        "Machines are made from another template or class from now on; the message says how many that replaces.",
        do="Nothing: `hostler rollout status {pool}` follows it.",
    ),
    "TemplateChanged": Reason(
        Kind.HAPPENING,
        "What may change without a new machine has changed in the template; machines take it and stay.",
    ),
    "RolloutComplete": Reason(
        Kind.HAPPENING,
        "All machines are of the newest revision and available, and no VM of an older one is left.",
    ),
    "RolloutSuperseded": Reason(
        Kind.HAPPENING,
        "A newer revision came before the rollout was complete, and takes its place.",
        do="Nothing: `hostler rollout status {pool}` follows the newer one.",
    ),
    "RolloutUndone": Reason(
        Kind.HAPPENING,
        "Somebody went back to a former revision before the rollout was complete.",
        do="Nothing: `hostler rollout history {pool}` says who and why.",
    ),
    "RolloutFailed": Reason(
        Kind.HAPPENING,
        "The rollout can no longer be completed, because its pool was deleted or is to have no machines.",
        warning=True,
    ),
    "MemberFound": Reason(
        Kind.HAPPENING,
        "A machine of the pool was there before the pool's workflow, and belongs to it.",
        do="Nothing. Find out who ended the pool's former workflow from outside.",
        warning=True,
    ),
    "Reset": Reason(
        Kind.HAPPENING,
        (
            "Somebody has reset the pool's workflow; the machines that it has made since then are looked for and "
            "taken in."
        ),
        do="Nothing: the pool makes no machine until each that was found has said how it is.",
        warning=True,
    ),
    "PoolSilent": Reason(
        Kind.HAPPENING,
        "A rollout's story had to pass on a pause, resume or abort, and could not tell its pool.",
        do="Ask the pool itself: `hostler rollout status {pool}` says whether it is there.",
        warning=True,
    ),
}
