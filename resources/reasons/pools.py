"""What a pool does and waits for: the steps of its plans, in their order, and what holds them up."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

POOL: dict[str, Reason] = {
    "ReplicasMissing": Reason(
        Kind.HAPPENING,
        "Machines were made because there were fewer than replicas.",
        "Nothing.",
    ),
    "ScaledDown": Reason(
        Kind.HAPPENING,
        "Machines were deleted because there were more than replicas, in a rollout more than that and maxSurge.",
        "Nothing. Who goes first, and how to choose, is in docs/pools.md.",
    ),
    "MarkedForDeletion": Reason(
        Kind.HAPPENING,
        "Machines were deleted because somebody, as a rule cluster-autoscaler, marked them.",
        "Nothing.",
    ),
    "Hibernated": Reason(
        Kind.HAPPENING,
        "Machines were deleted because the pool is hibernated.",
        "Nothing: `hostler wake pool {pool}` makes them again.",
    ),
    "PoolDeleted": Reason(
        Kind.HAPPENING,
        "Machines were deleted because their pool was.",
        "Nothing: the pool ends when the last one is gone.",
    ),
    "NeverJoined": Reason(
        Kind.HAPPENING,
        "Machines that were never Running were deleted, and are made again: they had no Node within creationTimeout, "
        "or their VM was gone or stopped before.",
        "Nothing, if it comes once. Else read what the next one says: `hostler describe pool {pool}` names it.",
        warning=True,
    ),
    "NeverCreated": Reason(
        Kind.HAPPENING,
        "A machine got no VM within its creationTimeout, for the cloud had none to give, and is made anew.",
        "Nothing. What the cloud says is in the story: `hostler events pool {pool}`.",
    ),
    "Unhealthy": Reason(
        Kind.HAPPENING,
        "Machines that failed for their health were deleted once they were drained, and are replaced.",
        "Nothing. If it comes again and again, find out what makes them ill: `hostler describe pool {pool}`.",
        warning=True,
    ),
    "RepairGranted": Reason(
        Kind.HAPPENING,
        "Machines may fail for their health, and so be drained and replaced.",
        "Nothing.",
        warning=True,
    ),
    "PreservedOnRequest": Reason(
        Kind.HAPPENING,
        "Machines that failed are preserved, because somebody asked for it.",
        "Look at them: `hostler get machines --preserved --pool {pool}`. When you have seen enough: "
        "`hostler release MACHINE --cluster {cluster}`.",
        warning=True,
    ),
    "PreservedInSlot": Reason(
        Kind.HAPPENING,
        "Machines that failed are preserved by themselves, because fewer than autoPreserveFailedMax were.",
        "Look at them: `hostler get machines --preserved --pool {pool}`. When you have seen enough: "
        "`hostler release MACHINE --cluster {cluster}`.",
        warning=True,
    ),
    "SlotsTaken": Reason(
        Kind.HAPPENING,
        "The pool's autoPreserveFailedMax was lowered, so machines that were preserved by themselves are not any more, "
        "the oldest first.",
        "Nothing: they are deleted and replaced.",
    ),
    "RolledOut": Reason(
        Kind.HAPPENING,
        "A rollout made machines of its revision, as many as maxSurge allows.",
        "Nothing.",
    ),
    "Replaced": Reason(
        Kind.HAPPENING,
        "A rollout deleted machines of older revisions, as many as can be spared.",
        "Nothing.",
    ),
    "ReplacedUnavailable": Reason(
        Kind.HAPPENING,
        "A rollout deleted machines of older revisions that were not available anyway.",
        "Nothing.",
    ),
    "RolloutMarks": Reason(
        Kind.HAPPENING,
        "Nodes that a rollout will replace got its marks, or lost them: PreferNoSchedule, scale-down-disabled.",
        "Nothing.",
    ),
    "ClusterPaused": Reason(
        Kind.WAIT,
        "Somebody has paused the cluster, so the pool does nothing; the message says what it would do.",
        "`hostler resume cluster {cluster}`, when what it was paused for is over; `hostler describe cluster {cluster}` "
        "says who paused it and why.",
        warning=True,
    ),
    "Unreachable": Reason(
        Kind.WAIT,
        "The API server or the cloud does not answer, so nothing is chosen or replaced on old news.",
        "Make it answer again: `hostler describe cluster {cluster}` says which one and since when, `hostler doctor` "
        "what fails. It goes on by itself then.",
        warning=True,
    ),
    "TooManyUnhealthy": Reason(
        Kind.WAIT,
        "More machines are unhealthy than repair.pauseAboveUnhealthy, so none is replaced.",
        "Look at the network, the API server and the cloud account first: so many are rarely ill or gone by "
        "themselves. `hostler get machines --pool {pool}` lists them; are they really lost, raise "
        "repair.pauseAboveUnhealthy, or delete them one by one.",
        warning=True,
    ),
    "RepairBudget": Reason(
        Kind.WAIT,
        "More machines are to be repaired than repair.maxConcurrent allows at a time.",
        "Nothing: the next one has its turn when the VM of one before it is gone, which takes minutes. With "
        "`maxConcurrent: 0` none ever has.",
    ),
    "RepairsRest": Reason(
        Kind.WAIT,
        "Too many machines were unhealthy until a moment ago, so no repair begins for 5 minutes.",
        "Nothing: those that get well within the 5 minutes are left alone, and the others have their turn then.",
    ),
    "FailedPreserved": Reason(
        Kind.WAIT,
        "Machines that failed are kept for a look, and count as replicas, so none is made in their place.",
        "Look at them (`hostler get machines --preserved --pool {pool}`) and let them go with "
        "`hostler release MACHINE --cluster {cluster}`; each ends at its time by itself. To have more "
        "machines meanwhile: `hostler scale pool {pool}`.",
    ),
    "SlowStart": Reason(
        Kind.WAIT,
        "Machines are made one by one first, and more at a time with each that gets its VM.",
        "Nothing: it takes seconds for each. After 6 minutes look at those on the way: `hostler describe pool {pool}`.",
    ),
    "MachinesNeverJoin": Reason(
        Kind.WAIT,
        "Three machines in a row, or one in twenty of a large pool, failed before they were Running, so the next ones "
        "wait.",
        "Find out why they do not join (image, user data, network, who deletes VMs): the message has the last words. "
        "Correct the class: `hostler apply -f FILE --cluster {cluster}`; once something else is mended: "
        "`hostler rollout resume {pool}`. By itself it tries after 5 minutes, later after up to an hour.",
        warning=True,
    ),
    "MachinesDieYoung": Reason(
        Kind.WAIT,
        "Three machines in a row, or one in twenty of a large pool, failed before they had been Running for 10 "
        "minutes, so the next ones are made one at a time.",
        "Find out what kills them (the cloud's audit log, the kubelet's log): the message has the last words. Correct "
        "the class: `hostler apply -f FILE --cluster {cluster}`; once something else is mended: "
        "`hostler rollout resume {pool}`. It ends when one lasts for 10 minutes.",
        warning=True,
    ),
    "WaitsForVMsToGo": Reason(
        Kind.WAIT,
        "The next machines wait until VMs that are being deleted are gone: they count against the limit.",
        "Nothing: it takes as long as their drain and the cloud. After 15 minutes see what holds them: `hostler "
        "describe pool {pool}` names them.",
    ),
    "MachinesLeaving": Reason(
        Kind.WAIT,
        "Machines that the pool does not keep are being drained, or their VMs are not gone yet.",
        "Nothing, as long as drains take. After 15 minutes see what holds them: `hostler describe pool {pool}` lists "
        "them.",
    ),
    "NewMachinesNotReady": Reason(
        Kind.WAIT,
        "The rollout has made what it may, and waits for new machines to be available before it deletes old ones.",
        "Nothing: it takes as long as a machine needs to boot and join, and minReadySeconds. After 15 minutes see why "
        "they do not: `hostler describe pool {pool}`.",
    ),
    "NewMachinesFail": Reason(
        Kind.WAIT,
        "The rollout waits for new machines to be available, and some of them have failed before they had been Running "
        "for 10 minutes.",
        "See what the last ones said: `hostler events pool {pool}`. If more than one has failed, correct the class and "
        "apply it, or go back: `hostler rollout undo {pool}`.",
        warning=True,
    ),
    "NewMachinesNeverJoin": Reason(
        Kind.WAIT,
        "As many new machines of the rollout as may be lost never joined or did not last; the others are left as they "
        "are, for their console.",
        "Look at one that is kept. Then correct the class and apply it, or go back: `hostler rollout undo {pool}`. To "
        "try the same again: `hostler rollout resume {pool}`.",
        warning=True,
    ),
    "ProgressDeadlineExceeded": Reason(
        Kind.WAIT,
        "The rollout has stopped: no new machine became available within progressDeadlineSeconds.",
        "See why they do not: `hostler describe pool {pool}`. Then correct the class and apply it, or go back: "
        "`hostler rollout undo {pool}`. `hostler rollout resume {pool}` gives it the same time again.",
        warning=True,
    ),
    "Canary": Reason(
        Kind.WAIT,
        "As many new machines as strategy.rollingUpdate.pauseAfter are there, and a person is to look at them.",
        "If they are well: `hostler rollout resume {pool}`. If not: `hostler rollout undo {pool}`.",
    ),
    "RolloutPaused": Reason(
        Kind.WAIT,
        "The rollout is paused, by a person or by `paused` in the manifest; replicas are kept up all the same.",
        "`hostler rollout resume {pool}`; where the manifest says `paused: true`, take it out and apply it.",
    ),
    "RolloutAborted": Reason(
        Kind.WAIT,
        "The rollout was aborted: what is replaced stays replaced, the other old machines stay.",
        "Go back with `hostler rollout undo {pool}`, or go on after all: `hostler rollout resume {pool}`.",
    ),
    "OnDelete": Reason(
        Kind.WAIT,
        "Machines of older revisions stay until somebody deletes them, as strategy OnDelete says.",
        "Delete them one by one; each is replaced by one of the newest revision. `hostler get machines --pool {pool}` "
        "lists all.",
    ),
    "MemberLost": Reason(
        Kind.WAIT,
        "The workflow of a machine was ended from outside; its VM may live, so it counts and is not replaced.",
        "Adopt it with the command that the message has (`hostler describe pool {pool}` shows it): its VM gets a "
        "workflow again, or, when there is none any more, the pool replaces it. Then delete it if it is not wanted. "
        "Find out who ended it.",
        warning=True,
    ),
    "MembersSilent": Reason(
        Kind.WAIT,
        "Machines were there before the pool's workflow and have not said yet how they are: nothing is planned before.",
        "Nothing: they are asked every 30 s. After 2 minutes look at the one that the message names, and see whether "
        "workers poll: `hostler doctor`.",
        warning=True,
    ),
    "ClusterSilent": Reason(
        Kind.WAIT,
        "The pool has not heard yet whether its cluster is paused and can be seen, and plans nothing before.",
        "Nothing: after 30 s it plans without. If it stays so: `hostler doctor`.",
    ),
    "Revised": Reason(
        Kind.HAPPENING,
        "Machines are made from another template or class from now on; the message says how many that replaces.",
        "Nothing: `hostler rollout status {pool}` follows it.",
    ),
    "TemplateChanged": Reason(
        Kind.HAPPENING,
        "What may change without a new machine has changed in the template; machines take it and stay.",
        "Nothing.",
    ),
    "RolloutComplete": Reason(
        Kind.HAPPENING,
        "All machines are of the newest revision and available, and no VM of an older one is left.",
        "Nothing.",
    ),
    "RolloutSuperseded": Reason(
        Kind.HAPPENING,
        "A newer revision came before the rollout was complete, and takes its place.",
        "Nothing: `hostler rollout status {pool}` follows the newer one.",
    ),
    "RolloutUndone": Reason(
        Kind.HAPPENING,
        "Somebody went back to a former revision before the rollout was complete.",
        "Nothing: `hostler rollout history {pool}` says who and why.",
    ),
    "RolloutFailed": Reason(
        Kind.HAPPENING,
        "The rollout cannot be completed any more, because its pool was deleted or shall have no machines.",
        "Nothing.",
        warning=True,
    ),
    "MemberFound": Reason(
        Kind.HAPPENING,
        "A machine of the pool was there before the pool's workflow, and belongs to it.",
        "Nothing. Find out who ended the pool's former workflow from outside.",
        warning=True,
    ),
    "Reset": Reason(
        Kind.HAPPENING,
        "Somebody has reset the pool's workflow; the machines that it has made since then are looked for and met.",
        "Nothing: it makes none before each that was found has said how it is.",
        warning=True,
    ),
    "PoolCallFailed": Reason(
        Kind.WAIT,
        "The pool could not start or tell machines, or mark Nodes; the message says why.",
        "Nothing: it is tried again at the time that the message gives. If it comes again: `hostler doctor`.",
        warning=True,
    ),
    "PoolSilent": Reason(
        Kind.HAPPENING,
        "A rollout's story was to pass on a pause, resume or abort, and its pool could not be told.",
        "Ask the pool itself: `hostler rollout status {pool}` says whether it is there.",
        warning=True,
    ),
}
"""Of a pool: `hostler describe pool`, `hostler rollout status`. A pool also waits by the clouds' errors above."""
