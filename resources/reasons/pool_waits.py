"""What holds up the plans of a pool."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

POOL_WAITS: dict[str, Reason] = {
    "ClusterPaused": Reason(
        Kind.WAIT,
        "Somebody has paused the cluster, so the pool does nothing; the message says what it would do.",
        see=(
            "`hostler describe cluster {cluster}`; `hostler describe pool {pool}`: the message says what would be done."
        ),
        by_itself=(
            "Does nothing, however long it lasts. Machines that fail stay Failed; a machine that somebody deletes by "
            "hand goes. A rollout's progress deadline stands still."
        ),
        do=(
            "`hostler resume cluster {cluster}` when the reason for the pause is over; `hostler describe cluster "
            "{cluster}` says who paused it and why."
        ),
        worry="When nobody knows why it is paused: machines that fail meanwhile are not replaced.",
        warning=True,
    ),
    "Unreachable": Reason(
        Kind.WAIT,
        "The API server or the cloud does not answer, so nothing is chosen or replaced on old news.",
        see="`hostler describe cluster {cluster}`: what does not answer, and since when.",
        by_itself=(
            "Goes on as soon as it answers. Machines are still made where there are too few; a deletion that has "
            "begun is followed to its end."
        ),
        do=(
            "Make it answer again: `hostler describe cluster {cluster}` says which one and since when, `hostler "
            "doctor` says what fails. Then the pool goes on."
        ),
        worry="At once: nobody knows how the machines are.",
        warning=True,
    ),
    "TooManyUnhealthy": Reason(
        Kind.WAIT,
        "More machines are unhealthy than repair.pauseAboveUnhealthy, so none is replaced.",
        see="`hostler get machines --pool {pool}`: which ones, and why; the message has the numbers.",
        by_itself=(
            "Goes on 5 minutes after no more are unhealthy than repair.pauseAboveUnhealthy allows; each one then gets "
            "a fresh look before it is replaced. Machines whose VM is gone count too."
        ),
        do=(
            "Look at the network, the API server and the cloud account first: so many machines rarely fall ill or go "
            "one by one. `hostler get machines --pool {pool}` lists them; if they are really lost, raise "
            "repair.pauseAboveUnhealthy, or delete them one by one."
        ),
        worry="At once: so many machines are not serving.",
        warning=True,
    ),
    "RepairBudget": Reason(
        Kind.WAIT,
        "More machines need a repair than repair.maxConcurrent allows at a time.",
        see="`hostler describe pool {pool}`: the message names the repairs in flight.",
        by_itself=(
            "Repairs the longest unhealthy first. A repair lasts from its permit until the VM is gone, drain "
            "included; if the VM was gone before, until its disks, NICs and Node are gone too."
        ),
        do=(
            "Nothing: the next one has its turn when the VM of one before it is gone, which takes minutes. With "
            "`maxConcurrent: 0` none ever has."
        ),
        worry=(
            "When the same repairs are in flight for longer than their drainTimeout: look at what each machine waits "
            "for with `hostler describe machine MACHINE`."
        ),
    ),
    "RepairsRest": Reason(
        Kind.WAIT,
        "Too many machines were unhealthy until a moment ago, so no repair begins for 5 minutes.",
        see=(
            "`hostler describe pool {pool}`: the message says until when; `hostler get machines --pool {pool}`: which "
            "are still ill."
        ),
        by_itself=(
            "Repairs those that are still ill at that time, repair.maxConcurrent at a time, each after a fresh look. "
            "Another storm starts the 5 minutes again."
        ),
        do="Nothing: those that get well within the 5 minutes are left alone, and the others have their turn then.",
        worry=(
            "When it comes again and again: the share of ill machines goes up and down around "
            "repair.pauseAboveUnhealthy."
        ),
    ),
    "FailedPreserved": Reason(
        Kind.WAIT,
        "Machines that Failed are kept for a look and count as replicas, so none is made in their place.",
        see="`hostler describe pool {pool}`: the message names them, and how many slots are in use.",
        by_itself="Ends each preservation at its time: the VM is deleted, and another machine is made.",
        do=(
            "Look at them (`hostler get machines --preserved --pool {pool}`) and let them go with `hostler release "
            "MACHINE --cluster {cluster}`; each preservation ends at its time. To have more machines meanwhile: "
            "`hostler scale pool {pool}`."
        ),
        worry="When the machines that are left do not carry the work.",
    ),
    "SlowStart": Reason(
        Kind.WAIT,
        "Machines are made one by one first, and more at a time with each that gets its VM.",
        see="`hostler describe pool {pool}`: the message says how many at a time.",
        by_itself=(
            "Makes 1, then one more with each that gets its VM: 1, 2, 4, up to 100. A failure for capacity, quota, "
            "rights or the spec sets it back to 1."
        ),
        do=(
            "Nothing: it takes seconds for each. After 6 minutes look at those on the way: `hostler describe pool "
            "{pool}`."
        ),
        worry="After 6 minutes without a new VM: nobody polls the cloud's queue, or the cloud hangs.",
    ),
    "MachinesNeverJoin": Reason(
        Kind.WAIT,
        (
            "Three machines in a row, or one in twenty of a large pool, failed before they were Running, so the next "
            "ones wait."
        ),
        see=(
            "`hostler describe pool {pool}`: the message says until when it waits, and what the last one said. Its "
            "console is in `hostler events machine MACHINE`."
        ),
        by_itself=(
            "Waits 5 minutes, then twice as long with each window that fails, an hour at most, and then makes one at "
            "a time until one is Running. No ill machine is given up meanwhile. The failures are forgotten when a "
            "machine that was made later has been Running for 10 minutes. A new revision starts at once."
        ),
        do=(
            "Find out why they do not join (image, user data, network, who deletes VMs): the message has the last "
            "words. Correct the class: `hostler apply -f FILE --cluster {cluster}`; once something else is mended: "
            "`hostler rollout resume {pool}`. Otherwise the pool tries after 5 minutes, later after up to an hour."
        ),
        worry="At once: three in a row are no accident.",
        warning=True,
    ),
    "MachinesDieYoung": Reason(
        Kind.WAIT,
        (
            "Three machines in a row, or one in twenty of a large pool, failed before they had been Running for 10 "
            "minutes, so the next ones are made one at a time."
        ),
        see=(
            "`hostler describe pool {pool}`: the message says until when it waits, or when one will have lasted, and "
            "what the last one said."
        ),
        by_itself=(
            "Does the same as for MachinesNeverJoin. Until then the pool is not Ready, even while all its machines "
            "are there."
        ),
        do=(
            "Find out what kills them (the cloud's audit log, the kubelet's log): the message has the last words. "
            "Correct the class: `hostler apply -f FILE --cluster {cluster}`; once something else is mended: `hostler "
            "rollout resume {pool}`. The wait ends when one lasts for 10 minutes."
        ),
        worry="At once: machines that join and then die have taken pods with them.",
        warning=True,
    ),
    "WaitsForVMsToGo": Reason(
        Kind.WAIT,
        "The next machines wait until VMs that are being deleted are gone, because these count against the limit.",
        see="`hostler describe pool {pool}`: how many there are of how many allowed.",
        by_itself=(
            "Makes the next one as soon as the cloud has confirmed that a VM is gone: there are never more VMs than "
            "replicas + maxSurge."
        ),
        do=(
            "Nothing: it takes as long as their drain and the cloud. After 15 minutes find out what holds them: "
            "`hostler describe pool {pool}` names them."
        ),
        worry=(
            "When a drain is blocked by a disruption budget (the machine says Draining), or a VM hangs in "
            "shutting-down for more than 15 minutes (DeletingVM)."
        ),
    ),
    "MachinesLeaving": Reason(
        Kind.WAIT,
        "Machines that the pool does not keep are being drained, or their VMs are not gone yet.",
        see="`hostler describe pool {pool}`: which, and what each waits for.",
        by_itself="The wait is over when the cloud has confirmed that each VM is gone; a drain has its drainTimeout.",
        do=(
            "Nothing, as long as drains take. After 15 minutes find out what holds them: `hostler describe pool "
            "{pool}` lists them."
        ),
        worry=(
            "When a drain is blocked by a disruption budget (the machine says Draining), or a VM hangs in "
            "shutting-down for more than 15 minutes (DeletingVM)."
        ),
    ),
    "NewMachinesNotReady": Reason(
        Kind.WAIT,
        (
            "The rollout has made the machines that it may make, and waits until new ones are available before it "
            "deletes old ones."
        ),
        see="`hostler rollout status {pool}`, and `hostler describe machine MACHINE` of a new one.",
        by_itself=(
            "Goes on with each that becomes available. With progressDeadlineSeconds it stops at the time that "
            "describe shows, and the old machines stay."
        ),
        do=(
            "Nothing: it takes as long as a machine needs to boot and join, and minReadySeconds. After 15 minutes "
            "find out why they are not available: `hostler describe pool {pool}`."
        ),
        worry="After 15 minutes, or when a new machine waits for another reason than one of *Joining*.",
    ),
    "NewMachinesFail": Reason(
        Kind.WAIT,
        (
            "The rollout waits until new machines are available, and some of them have failed before they had been "
            "Running for 10 minutes."
        ),
        see=(
            "`hostler rollout status {pool}`; what the failed ones said: `hostler events pool {pool}`, `hostler "
            "events machine MACHINE`."
        ),
        by_itself=(
            "Goes on when the next one is available. As many may be lost as maxSurge (at least 1; 3 once one has been "
            "available); then the rollout stops. Machines that are made in their place do not move its progress "
            "deadline."
        ),
        do=(
            "Read what the last ones said: `hostler events pool {pool}`. If more than one has failed, correct the "
            "class and apply it, or go back: `hostler rollout undo {pool}`."
        ),
        worry="When a second one fails.",
        warning=True,
    ),
    "NewMachinesNeverJoin": Reason(
        Kind.WAIT,
        (
            "As many new machines as the rollout may lose never joined or did not last; the others are left as they "
            "are, for their console."
        ),
        see=(
            "`hostler rollout status {pool}` names those that are kept; their last words: `hostler events machine "
            "MACHINE`, their console at the cloud."
        ),
        by_itself=(
            "Keeps them and deletes no old one. The rollout goes on when a kept machine joins after all; with "
            "progressDeadlineSeconds it stops when they are over."
        ),
        do=(
            "Look at one that is kept. Then correct the class and apply it, or go back: `hostler rollout undo "
            "{pool}`. To try the same again: `hostler rollout resume {pool}`."
        ),
        worry="At once: the new revision does not seem to work.",
        warning=True,
    ),
    "ProgressDeadlineExceeded": Reason(
        Kind.WAIT,
        "The rollout has stopped: no new machine became available within progressDeadlineSeconds.",
        see="`hostler rollout status {pool}`: which ones are not available; `hostler describe machine MACHINE`: why.",
        by_itself=(
            "The old machines stay and lose the rollout's marks; replicas are kept up. The rollout goes on when a "
            "late machine becomes available after all."
        ),
        do=(
            "Find out why: `hostler describe pool {pool}`. Then correct the class and apply it, or go back: `hostler "
            "rollout undo {pool}`. `hostler rollout resume {pool}` gives the rollout the same time again."
        ),
        worry="At once: a person must decide.",
        warning=True,
    ),
    "Canary": Reason(
        Kind.WAIT,
        "As many new machines as strategy.rollingUpdate.pauseAfter are there, and a person must look at them.",
        see=(
            "`hostler rollout status {pool}`; the new ones are those of the newest revision in `hostler describe pool "
            "{pool}`."
        ),
        by_itself="Does nothing, however long it lasts. The progress deadline stands still.",
        do="If they are well: `hostler rollout resume {pool}`. If not: `hostler rollout undo {pool}`.",
        worry="When nobody feels responsible: the pool stays mixed.",
    ),
    "RolloutPaused": Reason(
        Kind.WAIT,
        "The rollout is paused, by a person or by `paused` in the manifest; replicas are kept up all the same.",
        see="`hostler describe pool {pool}`: who paused it, or that the manifest does.",
        by_itself=(
            "Keeps replicas up with the newest revision; machines that fail are replaced or preserved. The progress "
            "deadline starts again when the rollout goes on."
        ),
        do="`hostler rollout resume {pool}`; where the manifest says `paused: true`, take it out and apply it.",
        worry="When nobody knows why it is paused.",
    ),
    "RolloutAborted": Reason(
        Kind.WAIT,
        "The rollout was aborted: what is replaced stays replaced, the other old machines stay.",
        see="`hostler rollout history {pool}` and `hostler describe pool {pool}`: who aborted it and why.",
        by_itself=(
            "Does nothing: the old machines lose the rollout's marks and stay. New machines are still of the newest "
            "revision."
        ),
        do="Go back with `hostler rollout undo {pool}`, or go on after all: `hostler rollout resume {pool}`.",
        worry="When it stays so: the pool is mixed, and each machine that fails comes back in the new revision.",
    ),
    "OnDelete": Reason(
        Kind.WAIT,
        "Machines of older revisions stay until somebody deletes them, because the strategy is OnDelete.",
        see="`hostler describe pool {pool}`: how many are left of each revision.",
        by_itself="Makes one of the newest revision for each that is deleted, once its VM is gone.",
        do=(
            "Delete them one by one; each is replaced by one of the newest revision. `hostler get machines --pool "
            "{pool}` lists all."
        ),
        worry="Never.",
    ),
    "MemberLost": Reason(
        Kind.WAIT,
        "Somebody ended the workflow of a machine from outside; its VM may live, so it counts and is not replaced.",
        see="`hostler describe pool {pool}`: which ones, and how they ended; `hostler describe machine MACHINE`.",
        by_itself=(
            "The machine counts as one of the pool and as a VM: nothing takes its place, and a deletion of the pool "
            "waits for it. A worker of the role watch notices it within a minute and tells the pool, which itself "
            "looks every 30 minutes. See [A machine of a pool](adopt.md#a-machine-of-a-pool)."
        ),
        do=(
            "Adopt it with the command in the message (`hostler describe pool {pool}` shows it): its VM gets a "
            "workflow again, or, if there is none left, the pool replaces it. Then delete it if it is not wanted, and "
            "find out who ended it."
        ),
        worry="At once: nobody looks after its VM.",
        warning=True,
    ),
    "MembersSilent": Reason(
        Kind.WAIT,
        (
            "Machines that were there before the pool's workflow have not said yet how they are, and nothing is "
            "planned until they have."
        ),
        see="`hostler describe pool {pool}`; `hostler describe machine MACHINE` of one that is silent.",
        by_itself="Asks them again every 30 s, and plans when each has answered or is found to be gone.",
        do=(
            "Nothing: they are asked every 30 s. After 2 minutes look at the one that the message names, and check "
            "whether workers poll: `hostler doctor`."
        ),
        worry="After 2 minutes: their workflows do not seem to run.",
        warning=True,
    ),
    "ClusterSilent": Reason(
        Kind.WAIT,
        "The pool has not heard yet whether its cluster is paused and can be seen, and plans nothing until it has.",
        see="`hostler describe cluster {cluster}`.",
        by_itself="Plans as soon as the cluster has answered, or after 30 s without an answer.",
        do="Nothing: after 30 s it plans without. If it stays so: `hostler doctor`.",
        worry="After a minute.",
    ),
    "PoolCallFailed": Reason(
        Kind.WAIT,
        "The pool could not start or tell machines, or mark Nodes; the message says why.",
        see="`hostler describe pool {pool}`, and `hostler events pool {pool}` for how often.",
        by_itself="Tries again at the time that the message gives; nothing is done twice.",
        do="Nothing: it is tried again at the time that the message gives. If it comes again: `hostler doctor`.",
        worry="When it comes again and again: Temporal or the API server refuses what the pool asks.",
        warning=True,
    ),
}
