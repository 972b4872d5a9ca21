"""What a pool does: the steps of its plans, and the ends of its rollouts."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

POOL_STEPS: dict[str, Reason] = {
    "ReplicasMissing": Reason(
        Kind.HAPPENING,
        "Machines were created because there were fewer than replicas.",
    ),
    "ScaledDown": Reason(
        Kind.HAPPENING,
        "Machines were deleted because there were more than replicas, or, in a rollout, more than replicas + maxSurge.",
        do="Nothing. docs/pools.md says which machines go first, and how to choose them.",
    ),
    "MarkedForDeletion": Reason(
        Kind.HAPPENING,
        "Machines were deleted because somebody, usually cluster-autoscaler, had marked them.",
    ),
    "Hibernated": Reason(
        Kind.HAPPENING,
        "Machines were deleted because the pool is hibernated.",
        do="Nothing: `hostler wake pool {pool}` creates machines again.",
    ),
    "PoolDeleted": Reason(
        Kind.HAPPENING,
        "Machines were deleted because their pool is being deleted.",
        do="Nothing: the pool ends when the last one is gone.",
    ),
    "NeverJoined": Reason(
        Kind.HAPPENING,
        "Machines that were never Running were deleted, and are replaced: they had no Node within "
        "creationTimeout, or their VM was gone or stopped before that.",
        do=(
            "Nothing, if it happens once. Otherwise find out what the next one waits for: `hostler describe pool "
            "{pool}` names it."
        ),
        warning=True,
    ),
    "NeverCreated": Reason(
        Kind.HAPPENING,
        "A machine got no VM within its creationTimeout, because the cloud had no capacity or quota for it, and is "
        "replaced.",
        do="Nothing. The events have the cloud's message: `hostler events pool {pool}`.",
    ),
    "Unhealthy": Reason(
        Kind.HAPPENING,
        "Machines that Failed because of their health were deleted after their drain, and are replaced.",
        do="Nothing. If it keeps happening, find out what makes them unhealthy: `hostler describe pool {pool}`.",
        warning=True,
    ),
    "RepairGranted": Reason(
        Kind.HAPPENING,
        "Machines were permitted to be Failed because of their health; they are then drained and replaced.",
        warning=True,
    ),
    "PreservedOnRequest": Reason(
        Kind.HAPPENING,
        "Failed machines are preserved because somebody asked for it.",
        do=(
            "Inspect them: `hostler get machines --preserved --pool {pool}`. When you are done: `hostler release "
            "MACHINE --cluster {cluster}`."
        ),
        warning=True,
    ),
    "PreservedInSlot": Reason(
        Kind.HAPPENING,
        "Failed machines are preserved automatically, because fewer than autoPreserveFailedMax were.",
        do=(
            "Inspect them: `hostler get machines --preserved --pool {pool}`. When you are done: `hostler release "
            "MACHINE --cluster {cluster}`."
        ),
        warning=True,
    ),
    "SlotsTaken": Reason(
        Kind.HAPPENING,
        "The pool's autoPreserveFailedMax was lowered, so automatically preserved machines are no longer "
        "preserved, the oldest first.",
        do="Nothing: they are deleted and replaced.",
    ),
    "RolledOut": Reason(
        Kind.HAPPENING,
        "A rollout created machines of its revision, as many as maxSurge allows.",
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
        "A rollout set its marks on the Nodes that it will replace, or removed them: PreferNoSchedule, "
        "scale-down-disabled.",
    ),
    "Revised": Reason(
        Kind.HAPPENING,
        "From now on machines are created from a changed template or class; the message says how many that replaces.",
        do="Nothing: `hostler rollout status {pool}` follows it.",
    ),
    "TemplateChanged": Reason(
        Kind.HAPPENING,
        "The template has changed in fields that need no new machine; the machines apply the change and stay.",
    ),
    "RolloutComplete": Reason(
        Kind.HAPPENING,
        "All machines are of the newest revision and available, and no VM of an older revision is left.",
    ),
    "RolloutSuperseded": Reason(
        Kind.HAPPENING,
        "A newer revision came before the rollout was complete, and its rollout takes over.",
        do="Nothing: `hostler rollout status {pool}` follows the newer one.",
    ),
    "RolloutUndone": Reason(
        Kind.HAPPENING,
        "Somebody went back to an earlier revision before the rollout was complete.",
        do="Nothing: `hostler rollout history {pool}` shows who and why.",
    ),
    "RolloutFailed": Reason(
        Kind.HAPPENING,
        "The rollout can no longer be completed, because its pool was deleted or has no replicas now.",
        warning=True,
    ),
    "Approved": Reason(
        Kind.HAPPENING,
        "A person has approved the newest revision, so its rollout continues.",
        do="Nothing: `hostler rollout status {pool}` follows it.",
    ),
    "Rejected": Reason(
        Kind.HAPPENING,
        "A person has rejected the newest revision, so its rollout is aborted.",
        do="Go back with `hostler rollout undo {pool}`, or apply a corrected manifest.",
        warning=True,
    ),
    "ApprovalExpired": Reason(
        Kind.HAPPENING,
        "Nobody approved the newest revision within approval.timeout, so its rollout is aborted.",
        do="`hostler rollout resume {pool}` asks for approval anew; `hostler rollout undo {pool}` goes back.",
        warning=True,
    ),
    "NoPoolBefore": Reason(
        Kind.HAPPENING,
        "The pool that was to be rolled out first (`rollsAfter`) is gone, so the rollout does not wait for it.",
        do="Nothing; correct rollsAfter if the name is wrong.",
    ),
    "PoolFrozen": Reason(
        Kind.HAPPENING,
        "Somebody has frozen the pool: no rollout and no hot update begins or continues.",
        do="`hostler unfreeze pool {pool}` when the reason for it is over.",
    ),
    "WindowsUnknown": Reason(
        Kind.HAPPENING,
        "It cannot be said when the pool's maintenance windows are, so nothing voluntary begins.",
        do="Correct the time zone that the message names, and apply the manifest.",
        warning=True,
    ),
    "MemberFound": Reason(
        Kind.HAPPENING,
        "A machine that existed before the pool's workflow belongs to the pool again.",
        do="Nothing. Find out who terminated the pool's earlier workflow.",
        warning=True,
    ),
    "Reset": Reason(
        Kind.HAPPENING,
        "Somebody has reset the pool's workflow; the machines that it has created since then are searched for "
        "and taken over.",
        do="Nothing: the pool creates no machine until each that was found has reported its state.",
        warning=True,
    ),
    "PoolSilent": Reason(
        Kind.HAPPENING,
        "A rollout's workflow was asked for a pause, resume or abort, and could not tell its pool.",
        do="Ask the pool itself: `hostler rollout status {pool}` shows whether the pool has taken it.",
        warning=True,
    ),
}
