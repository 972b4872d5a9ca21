"""What holds up the plans of a pool."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

POOL_WAITS: dict[str, Reason] = {
    "ClusterPaused": Reason(
        Kind.WAIT,
        "Somebody has paused the cluster, so the pool does nothing; the message says what it would do otherwise.",
        see=(
            "`hostler describe cluster {cluster}`; `hostler describe pool {pool}`: the message says what it would "
            "do otherwise."
        ),
        by_itself=(
            "Does nothing, however long the pause lasts. Machines that fail stay Failed; a machine that somebody "
            "deletes is deleted. A rollout's progress deadline is suspended."
        ),
        do=(
            "`hostler resume cluster {cluster}` when the reason for the pause is over; `hostler describe cluster "
            "{cluster}` says who paused it and why."
        ),
        worry="When nobody knows why it is paused: in the meantime failed machines are not replaced.",
        warning=True,
    ),
    "Unreachable": Reason(
        Kind.WAIT,
        "The API server or the cloud does not answer, so nothing is chosen or replaced on stale information.",
        see="`hostler describe cluster {cluster}` shows what does not answer, and since when.",
        by_itself=(
            "Continues as soon as it answers. In the meantime missing machines are still created, and deletions "
            "that have begun are completed."
        ),
        do=(
            "Restore access to it: `hostler describe cluster {cluster}` says what does not answer and since when, "
            "{doctor} says what fails. Then the pool continues."
        ),
        worry="Immediately: the state of the machines is not known.",
        warning=True,
    ),
    "TooManyUnhealthy": Reason(
        Kind.WAIT,
        "More machines are unhealthy than repair.pauseAboveUnhealthy, so none is replaced.",
        see="`hostler get machines --pool {pool}` shows which ones, and why; the message has the numbers.",
        by_itself=(
            "Continues 5 minutes after the number of unhealthy machines has fallen to what "
            "repair.pauseAboveUnhealthy allows; then each one gets a fresh look before it is replaced. Machines "
            "whose VM is gone count too."
        ),
        do=(
            "Check the network, the API server and the cloud account first: so many machines rarely fail "
            "independently. `hostler get machines --pool {pool}` lists them; if they are really lost, raise "
            "repair.pauseAboveUnhealthy, or delete them one by one."
        ),
        worry="Immediately: many machines are out of service.",
        warning=True,
    ),
    "RepairBudget": Reason(
        Kind.WAIT,
        "More machines need a repair than repair.maxConcurrent allows at the same time.",
        see="`hostler describe pool {pool}`: the message names the repairs in progress.",
        by_itself=(
            "Repairs the machine first that has been unhealthy for longest. A repair lasts from its permit until "
            "the VM is gone, including the drain; if the VM was already gone, until its disks, NICs and Node are "
            "gone too."
        ),
        do=(
            "Nothing: the next repair begins when a repair in progress has ended, which takes minutes. With "
            "`maxConcurrent: 0` none ever begins."
        ),
        worry=(
            "When the same repairs are in progress for longer than their drainTimeout: check what each machine "
            "waits for with `hostler describe machine MACHINE`."
        ),
    ),
    "RepairsRest": Reason(
        Kind.WAIT,
        "Too many machines were unhealthy until recently, so no repair begins for 5 minutes.",
        see=(
            "`hostler describe pool {pool}`: the message says until when; `hostler get machines --pool {pool}` shows "
            "which ones are still unhealthy."
        ),
        by_itself=(
            "Then repairs those that are still unhealthy, repair.maxConcurrent at a time, each after a fresh look. "
            "If too many become unhealthy again, the 5 minutes start again."
        ),
        do="Nothing: machines that recover within the 5 minutes are left alone; the others are repaired after that.",
        worry=(
            "When it keeps happening: the share of unhealthy machines goes up and down around "
            "repair.pauseAboveUnhealthy."
        ),
    ),
    "FailedPreserved": Reason(
        Kind.WAIT,
        "Failed machines are kept for inspection and count as replicas, so none is created in their place.",
        see="`hostler describe pool {pool}`: the message names them, and how many slots are in use.",
        by_itself="When a preservation expires, deletes the machine and creates another one.",
        do=(
            "Inspect them (`hostler get machines --preserved --pool {pool}`), then release them: `hostler release "
            "MACHINE --cluster {cluster}`. Otherwise each preservation ends when it expires. To have more machines "
            "in the meantime: `hostler scale pool {pool}`."
        ),
        worry="When the other machines cannot carry the load.",
    ),
    "SlowStart": Reason(
        Kind.WAIT,
        "Machines are created one by one at first, and more at a time with each that gets its VM.",
        see="`hostler describe pool {pool}`: the message says how many at a time.",
        by_itself=(
            "Creates 1 at first, and one more at a time with each that gets its VM: 1, 2, 4, up to 100. A failure "
            "because of capacity, quota, permissions or the spec resets it to 1."
        ),
        do=("Nothing: it takes seconds for each. After 6 minutes check those that are being created: {look}."),
        worry="After 6 minutes without a new VM: no worker polls the cloud's queue, or the cloud hangs.",
    ),
    "MachinesWithoutVM": Reason(
        Kind.WAIT,
        "Some of the pool's machines have no VM, because their create calls fail; the message names them.",
        see="`hostler tree pool {pool}` shows the reason of each machine, in the cloud's words.",
        by_itself=(
            "Each machine tries again by the class of its error, until it is Failed at its creation deadline and the "
            "pool replaces it."
        ),
        do=(
            "Nothing, if it is capacity that passes. What each machine lacks: `hostler get machines --pool {pool} -o "
            "wide`; another machine type or zone is set in the class."
        ),
        worry="When their reason asks for a person: quota, rights, or a class that the cloud refuses.",
    ),
    "MachinesNeverJoin": Reason(
        Kind.WAIT,
        "Three machines in a row, or one in twenty in a large pool, failed before they were Running, so the "
        "next ones wait.",
        see=(
            "`hostler describe pool {pool}`: the message says until when it waits, and why the last one failed. Its "
            "console is in `hostler events machine MACHINE`."
        ),
        by_itself=(
            "Waits 5 minutes, then twice as long after each further failure, an hour at most, and then creates one "
            "at a time until one is Running. In the meantime no unhealthy machine is replaced. The failures are "
            "forgotten when a machine that was created later has been Running for 10 minutes. Machines of a new "
            "revision are created at once."
        ),
        do=(
            "Find out why they do not join (image, user data, network, deleted VMs): the message says why the last "
            "one failed. Correct the class: `hostler apply -f FILE --cluster {cluster}`; if you fixed something "
            "else: `hostler rollout resume {pool}`. Otherwise the pool tries again at the time in the "
            "message."
        ),
        worry="Immediately: three in a row are no coincidence.",
        warning=True,
    ),
    "MachinesDieYoung": Reason(
        Kind.WAIT,
        "Three machines in a row, or one in twenty in a large pool, failed before they had been Running for 10 "
        "minutes, so the next ones are created one at a time.",
        see=(
            "`hostler describe pool {pool}`: the message says until when it waits, or when a machine will have been "
            "Running long enough, and why the last one failed."
        ),
        by_itself=(
            "Does the same as for MachinesNeverJoin. Until then the pool is not Ready, even if all its machines are "
            "available."
        ),
        do=(
            "Find out what kills them (the cloud's audit log, the kubelet's log): the message says why the last one "
            "failed. Correct the class: `hostler apply -f FILE --cluster {cluster}`; if you fixed something else: "
            "`hostler rollout resume {pool}`. The wait ends when one has been Running for 10 minutes."
        ),
        worry="Immediately: machines that join and then die take pods with them.",
        warning=True,
    ),
    "WaitsForVMsToGo": Reason(
        Kind.WAIT,
        "New machines wait until VMs that are being deleted are gone, because these count against the limit.",
        see="`hostler describe pool {pool}` shows how many VMs there are, and how many are allowed.",
        by_itself=(
            "Creates the next one as soon as the cloud has confirmed that a VM is gone: there are never more VMs "
            "than replicas + maxSurge."
        ),
        do=(
            "Nothing: it takes as long as their drains and the cloud's deletion. After 15 minutes find out what "
            "they wait for: {look} names them."
        ),
        worry=(
            "When a drain is blocked by a disruption budget (the machine says Draining), or a VM hangs in "
            "shutting-down for more than 15 minutes (DeletingVM)."
        ),
    ),
    "MachinesLeaving": Reason(
        Kind.WAIT,
        "Machines that the pool is removing are being drained, or their VMs are not gone yet.",
        see="`hostler describe pool {pool}` shows which ones, and what each waits for.",
        by_itself="The wait is over when the cloud has confirmed that each VM is gone; a drain has its drainTimeout.",
        do=(
            "Nothing, for as long as drains usually take. After 15 minutes find out what they wait for: {look} lists "
            "them."
        ),
        worry=(
            "When a drain is blocked by a disruption budget (the machine says Draining), or a VM hangs in "
            "shutting-down for more than 15 minutes (DeletingVM)."
        ),
    ),
    "NewMachinesNotReady": Reason(
        Kind.WAIT,
        "The rollout has created as many machines as it may, and waits until new ones are available before it "
        "deletes old ones.",
        see="`hostler rollout status {pool}`, and `hostler describe machine MACHINE` of a new one.",
        by_itself=(
            "Continues with each machine that becomes available. With progressDeadlineSeconds it stops at the time "
            "that describe shows, and the old machines stay."
        ),
        do=(
            "Nothing: it takes as long as a machine needs to boot and join, plus minReadySeconds. If it takes much "
            "longer, and before a progress deadline ends, find out why they are not available: {look}."
        ),
        worry="After 15 minutes, or when a new machine waits for a reason other than those under *Joining*.",
    ),
    "NewMachinesFail": Reason(
        Kind.WAIT,
        "The rollout waits until new machines are available, and some of them have failed before they had been "
        "Running for 10 minutes.",
        see=(
            "`hostler rollout status {pool}`; why they failed: `hostler events pool {pool}`, `hostler events "
            "machine MACHINE`."
        ),
        by_itself=(
            "Continues when the next one is available. It may lose as many machines as maxSurge (at least 1; 3 once "
            "one has been available); then the rollout stops. Replacements for them do not extend its progress "
            "deadline."
        ),
        do=(
            "Find out why they failed: `hostler events pool {pool}`. If more than one has failed, correct the class "
            "and apply it, or go back: `hostler rollout undo {pool}`."
        ),
        worry="When a second one fails.",
        warning=True,
    ),
    "NewMachinesNeverJoin": Reason(
        Kind.WAIT,
        "The rollout has lost as many new machines as it may, because they never joined or failed soon after; "
        "the others are kept, so that you can read their consoles.",
        see=(
            "`hostler rollout status {pool}` names those that are kept; `hostler events machine MACHINE` and, where "
            "there was a VM, its console in the cloud tell why they failed."
        ),
        by_itself=(
            "Keeps them and deletes no old machine. The rollout continues when a kept machine joins after all; with "
            "progressDeadlineSeconds it stops when that time is over."
        ),
        do=(
            "Find out why: the message names them and the last error, `hostler get machines --pool {pool}` has each "
            "one's reason. Then correct the class and apply it, or go back: `hostler rollout undo {pool}`. To try the "
            "same revision again: `hostler rollout resume {pool}`."
        ),
        worry="Immediately: the new revision does not seem to work.",
        warning=True,
    ),
    "ProgressDeadlineExceeded": Reason(
        Kind.WAIT,
        "The rollout has stopped: no new machine became available within progressDeadlineSeconds.",
        see=(
            "`hostler rollout status {pool}` shows which ones are not available; `hostler describe machine MACHINE` "
            "shows why."
        ),
        by_itself=(
            "The old machines stay and lose the rollout's marks; the number of replicas is kept up. The rollout "
            "continues when a late machine becomes available after all."
        ),
        do=(
            "Find out why: {look}. Then correct the class and apply it, or go back: `hostler "
            "rollout undo {pool}`. `hostler rollout resume {pool}` gives the rollout the same time again."
        ),
        worry="Immediately: a person must decide.",
        warning=True,
    ),
    "Canary": Reason(
        Kind.WAIT,
        "The rollout has created the number of new machines in strategy.rollingUpdate.pauseAfter, and waits for a "
        "person to check them.",
        see=(
            "`hostler rollout status {pool}`; the new ones are those of the newest revision in `hostler describe pool "
            "{pool}`."
        ),
        by_itself="Does nothing, however long it lasts. The progress deadline is suspended.",
        do="If they are healthy: `hostler rollout resume {pool}`. If not: `hostler rollout undo {pool}`.",
        worry="When nobody takes care of it: the pool keeps machines of both revisions.",
    ),
    "RolloutPaused": Reason(
        Kind.WAIT,
        "The rollout is paused, by a person or by `paused` in the manifest; the number of replicas is still kept up.",
        see="`hostler describe pool {pool}` shows who paused it, or that the manifest does.",
        by_itself=(
            "Keeps up the number of replicas with the newest revision; machines that fail are replaced or "
            "preserved. The progress deadline starts again when the rollout is resumed."
        ),
        do="`hostler rollout resume {pool}`; if the manifest says `paused: true`, remove that and apply it.",
        worry="When nobody knows why it is paused.",
    ),
    "RolloutAborted": Reason(
        Kind.WAIT,
        "The rollout was aborted: replaced machines stay replaced, the remaining old machines stay.",
        see="`hostler rollout history {pool}` and `hostler describe pool {pool}` show who aborted it and why.",
        by_itself=(
            "Does nothing: the old machines lose the rollout's marks and stay. New machines are still created from "
            "the newest revision."
        ),
        do="Go back with `hostler rollout undo {pool}`, or continue after all: `hostler rollout resume {pool}`.",
        worry=(
            "When it lasts: the pool has machines of both revisions, and each machine that fails is replaced by one "
            "of the new revision."
        ),
    ),
    "Approval": Reason(
        Kind.WAIT,
        "The pool's `approval` requires that a person approves each new revision before its rollout begins.",
        see=(
            "`hostler rollout status {pool}`: the message says when it is aborted; `hostler rollout history {pool}` "
            "says who made the revision and why."
        ),
        by_itself=(
            "Replaces nothing. After approval.timeout the rollout is aborted. Replicas are kept up with the last "
            "revision that was approved."
        ),
        do=(
            "Whoever may use this cluster may decide: `hostler rollout approve {pool} --reason TEXT`, or `hostler "
            "rollout reject {pool}`. An approval is for this revision only."
        ),
        worry="Before the time in the message: then somebody must resume the rollout, and it asks anew.",
    ),
    "AfterPool": Reason(
        Kind.WAIT,
        "Another pool is rolled out before this one (`rollsAfter`), as the zones of a worker pool are one by one.",
        see="`hostler describe pool {pool}`: the message names that pool and says how it stands.",
        by_itself=(
            "Asks that pool every 5 s, and continues once it is rolled out with the class that rollsAfter names, or "
            "is gone. What happens there later no longer stops this rollout."
        ),
        do=(
            "Look at the pool that the message names. If it is to stay as it is, or both wait for each other: "
            "`hostler rollout resume {pool} --now`, or correct rollsAfter and apply it."
        ),
        worry="When that pool waits for a person, or was gone back to another class.",
    ),
    "UpdatesAfterPool": Reason(
        Kind.WAIT,
        "Machines of another pool take a changed template first (annotation `hostler.io/updates-after`): both share "
        "one budget, as the zones of a worker pool do where it is less than the zones.",
        see="`hostler describe pool {pool}`: the message names that pool; its own page says how many of its machines "
        "do not have the newest node template.",
        by_itself=(
            "Asks that pool every 5 s, and tells its own machines once none of the other's is at work on its change or "
            "yet to be told, or the pool is gone. Those that are Failed or silent hold up nobody."
        ),
        do=(
            "Look at the pool that the message names: it may be frozen, or outside its maintenance windows. To go on "
            "without it: `hostler rollout resume {pool} --now`; for good: a larger `hostler.io/update-concurrency`."
        ),
        worry="When that pool waits for a person.",
    ),
    "Frozen": Reason(
        Kind.WAIT,
        "Somebody has frozen the pool or its cluster, so no rollout and no hot update begins or continues.",
        see="`hostler describe pool {pool}`: the message says since when, until when, who and why.",
        by_itself=(
            "Continues when the time of the freeze is over. In the meantime replicas are kept up, failed machines are "
            "replaced, and what people ask for is done; a rollout's progress deadline is suspended."
        ),
        do="{thaw}`hostler unfreeze cluster {cluster}` if the cluster is frozen.",
        worry="When it has no end and nobody knows why.",
    ),
    "MaintenanceWindow": Reason(
        Kind.WAIT,
        "A rollout or a hot update waits for the pool's next maintenance window.",
        see="`hostler describe pool {pool}`: the message says when the next window begins.",
        by_itself=(
            "Continues at that time, and begins no further step when the window ends; what has begun ends. In the "
            "meantime replicas are kept up and failed machines are replaced."
        ),
        do=(
            "Nothing: it continues when the window begins. If it cannot wait: `hostler rollout resume {pool} --now` "
            "opens the pool for 4 hours."
        ),
        worry="When the message names a time zone that is not known: correct it and apply the manifest.",
    ),
    "OnDelete": Reason(
        Kind.WAIT,
        "Machines of older revisions stay until somebody deletes them, because the strategy is OnDelete.",
        see="`hostler describe pool {pool}` shows how many are left of each revision.",
        by_itself="Creates one of the newest revision for each that is deleted, once its VM is gone.",
        do=(
            "Delete them one by one; each is replaced by one of the newest revision. `hostler get machines --pool "
            "{pool}` lists all."
        ),
        worry="Never.",
    ),
    "MemberLost": Reason(
        Kind.WAIT,
        "Somebody terminated a machine's workflow; its VM may still be running, so the machine counts and is not "
        "replaced.",
        see="`hostler describe pool {pool}` shows which ones, and how they ended; `hostler describe machine MACHINE`.",
        by_itself=(
            "The machine counts as one of the pool's, with a VM: it is not replaced, and a deletion of the pool "
            "waits for it. A worker with the role watch notices it within a minute and tells the pool; the pool "
            "itself checks every 30 minutes. See [A machine of a pool](adopt.md#a-machine-of-a-pool)."
        ),
        do=(
            "Adopt it with the command in the message ({look} shows it): its VM gets a "
            "workflow again, or, if there is no VM left, the pool replaces the machine. Then delete the machine if "
            "you do not need it, and find out who terminated its workflow."
        ),
        worry="Immediately: nothing manages its VM.",
        warning=True,
    ),
    "MembersSilent": Reason(
        Kind.WAIT,
        "Machines that existed before the pool's workflow have not reported their state yet, and the pool plans "
        "nothing until they have.",
        see="`hostler describe pool {pool}`; `hostler describe machine MACHINE` for one that has not answered.",
        by_itself="Asks them again every 30 s, and plans once each has answered or is known to be gone.",
        do=(
            "Nothing: they are asked again and again. After 2 minutes check the one that the message names, and "
            "whether workers poll: {doctor}."
        ),
        worry="After 2 minutes: their workflows do not seem to make progress.",
        warning=True,
    ),
    "ClusterSilent": Reason(
        Kind.WAIT,
        "The pool does not know yet whether its cluster is paused and reachable, and plans nothing until it does.",
        see="`hostler describe cluster {cluster}`.",
        by_itself="Plans as soon as the cluster's workflow has answered, or after 30 s without an answer.",
        do="Nothing: it plans soon, even without the answer. After a minute: {doctor}.",
        worry="After a minute.",
    ),
    "PoolCallFailed": Reason(
        Kind.WAIT,
        "The pool could not start or signal machines, or could not mark Nodes; the message says why.",
        see="`hostler describe pool {pool}`; `hostler events pool {pool}` shows how often.",
        by_itself="Tries again at the time in the message; nothing is done twice.",
        do="Nothing: it is tried again at the time in the message. If it happens again: {doctor}.",
        worry="When it keeps happening: Temporal or the API server refuses the pool's requests.",
        warning=True,
    ),
}
