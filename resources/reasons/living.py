"""What a machine that was once Running waits for, and how it fails."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

LIVING: dict[str, Reason] = {
    "NodeNotReady": Reason(
        Kind.WAIT,
        "The Node's condition Ready is not True.",
        see="`{node}`; `hostler describe {machine}`: *Times*.",
        by_itself=(
            "Shows Unknown, waits for the Node, and looks twice near the deadline (spec.healthTimeout, 10 minutes of "
            "ill health in sum); then the machine is Failed and drained."
        ),
        do=(
            "`{node}` says why: kubelet, container runtime, network plugin. If it stays so, the machine is Failed at "
            "the time that the message names."
        ),
        worry=(
            "Not in a new Node's first minute. When several Nodes have it at once, it is the network or the API "
            "server, not the machines."
        ),
        warning=True,
    ),
    "NodeUnhealthy": Reason(
        Kind.WAIT,
        "A condition that spec.nodeConditions lists is not False.",
        see="`{node}`: *Conditions*.",
        by_itself=(
            "Shows Unknown and looks twice near the deadline (spec.healthTimeout); then the machine is Failed and "
            "drained."
        ),
        do=(
            "`{node}` shows the condition and its message: mend it on the machine (disk, file system, kernel, "
            "network). If it stays so, the machine is Failed at the time that the message names."
        ),
        worry="At once for ReadonlyFilesystem and KernelDeadlock: they seldom go away on their own.",
        warning=True,
    ),
    "NodeMissing": Reason(
        Kind.WAIT,
        "Somebody deleted the Node object.",
        see="`kubectl get nodes`; the API server's audit log says who.",
        by_itself=(
            "Shows Unknown and looks twice near the deadline; then the machine is Failed. A Node that comes back with "
            "the same providerID is taken."
        ),
        do=(
            "Restart the kubelet on the VM (`systemctl restart kubelet`): a running one does not register its Node "
            "again. Otherwise the machine is Failed at the time that the message names."
        ),
        worry="When you did not delete it: something else believes that it looks after these Nodes.",
        warning=True,
    ),
    "VMNotRunning": Reason(
        Kind.WAIT,
        "The VM exists but does not run.",
        see="`hostler describe {machine}`; the VM at the cloud.",
        by_itself="Shows Unknown, never starts the VM, and looks twice near the deadline; then the machine is Failed.",
        do=(
            "Start it at the cloud if it was stopped by mistake: `hostler describe {machine}` has its id. Otherwise "
            "the machine is Failed at the time that the message names."
        ),
        worry="At once, unless you stopped it.",
        warning=True,
    ),
    "VMNotFound": Reason(
        Kind.HAPPENING,
        "The cloud does not find the VM of a Node that was seen; two looks at the kubelet's Lease decide.",
    ),
    "VMFound": Reason(
        Kind.HAPPENING,
        "The cloud did not find the VM for a while, and now finds it again.",
    ),
    "VMContradiction": Reason(
        Kind.WAIT | Kind.CONDITION,
        "The cloud says that the VM is gone or does not run, but its kubelet lives, so the machine is left alone.",
        see=(
            "`hostler describe {machine}`: *Conditions*; `kubectl get lease -n kube-node-lease`; the VM in the "
            "cloud's console, by its id."
        ),
        by_itself=(
            "Fails, replaces and deletes nothing on the cloud's word. The pool waits for the same reason and names "
            "all its machines that have it. Hostler looks again after 40 s, then less often, in the end every 5 "
            "minutes, and at once when the Node falls ill. When the Lease stands still for 40 s, the cloud is "
            "believed: VMGone."
        ),
        do=(
            "Check with `hostler doctor` whom the credentials ask: do they open the account and region that made the "
            "VM, and may they describe instances? The machine goes on until the cloud finds its VM, or its kubelet is "
            "silent."
        ),
        worry="At once, above all when several machines have it: a Secret that was swapped opens another account.",
        warning=True,
    ),
    "Settling": Reason(
        Kind.WAIT,
        "The Node is healthy again, and must stay so for a while until the machine is Running.",
        see="`hostler describe {machine}`: *Next try*.",
        by_itself="Makes the machine Running when the Node has been healthy for 30 s without a break.",
        do="Nothing: it takes 30 s.",
        worry="Only with Flapping.",
    ),
    "Recovered": Reason(
        Kind.HAPPENING,
        "The machine was unhealthy and is Running again.",
    ),
    "Flapping": Reason(
        Kind.CONDITION,
        "The machine was unhealthy again before it had been healthy for as long as its healthTimeout.",
        see="`hostler describe {machine}`: *Conditions*; `hostler events {machine}`.",
        by_itself=(
            "Adds up the times of ill health: at healthTimeout in sum the machine is Failed, after two fresh looks. A "
            "machine that never stays healthy for 30 s is Unknown all the time, and Failed 90 s after that at the "
            "latest."
        ),
        do=(
            "Find out why it comes and goes: `{node}`. The times of ill health add up to the healthTimeout; only a "
            "time of health as long as the healthTimeout resets the sum."
        ),
        worry="When it comes every hour: recreate the machine before it fails at a bad time.",
        warning=True,
    ),
    "ConfirmingFailure": Reason(
        Kind.WAIT,
        "The deadline is near: two fresh looks at Node, Lease and VM decide whether the machine is Failed.",
        see="`{node}`; `hostler describe {machine}`: *Next try*.",
        by_itself=(
            "Takes a second look a minute after the first, at the deadline. If the machine is healthy then, it has 30 "
            "s more to stay so; otherwise it is Failed. If it cannot be read: CannotConfirm."
        ),
        do=(
            "Nothing, or make it healthy before the next look: then it is not Failed. `{node}` says what is wrong "
            "with it."
        ),
        worry="When many machines have it at once: stop what you are changing.",
        warning=True,
    ),
    "NotConfirmed": Reason(
        Kind.HAPPENING,
        "The deadline was near, but a fresh look found the machine healthy; it must stay so.",
        do="Nothing. If it comes often, the watch of the nodes is behind: `hostler describe cluster {cluster}`.",
    ),
    "CannotConfirm": Reason(
        Kind.WAIT,
        "The deadline is near or over, but Node, Lease or VM cannot be read, so nothing is decided.",
        see="`hostler describe {machine}`: the message says what cannot be read and why; `hostler doctor`.",
        by_itself=(
            "Looks again by error class (5 s to 3 minutes), as long as it takes. After an outage the two looks start "
            "again."
        ),
        do="Make what the message names answer again: `hostler doctor`. No machine is Failed on old news.",
        worry="When it lasts: machines that are dead are not repaired meanwhile.",
        warning=True,
    ),
    "KubeletAlive": Reason(
        Kind.WAIT,
        "Ready is Unknown, but the kubelet renews its Lease, so it lives and its status should follow.",
        see="`kubectl get lease -n kube-node-lease`; `{node}`.",
        by_itself="Looks again every minute. 5 minutes after the deadline the Lease alone no longer counts.",
        do=(
            "Nothing: it is looked at again every minute. After 5 minutes the machine is Failed all the same: read "
            "the kubelet's log on the VM."
        ),
        worry=(
            "After an outage of the API server: not before 5 minutes. Otherwise at once: the kubelet cannot write its "
            "status."
        ),
        warning=True,
    ),
    "RepairPermit": Reason(
        Kind.WAIT,
        "The machine was unhealthy for its whole healthTimeout, and asks its pool whether it may be Failed.",
        see=(
            "`hostler describe {machine}`: the message names the pool. `hostler get pools` shows what the pool waits "
            "for."
        ),
        by_itself=(
            "Stays Unknown and looks again every healthTimeout: if the machine is healthy, it takes the question "
            "back. With the permit, one more fresh look makes it Failed. A VM that is gone needs no permit."
        ),
        do=(
            "Nothing, or mend it before: `{node}`. Its pool permits as many repairs as repair.maxConcurrent says, and "
            "none while too much is ill or out of reach: `hostler get pools --cluster {cluster}`. To have it replaced "
            "at once: `hostler delete {machine}`."
        ),
        worry="When many machines ask at once: it is the network or the API server rather than the machines.",
        warning=True,
    ),
    "RepairPermitted": Reason(
        Kind.HAPPENING,
        "The pool has permitted that the machine is Failed, if one more fresh look finds it unhealthy.",
    ),
    "HealthTimeoutDisabled": Reason(
        Kind.WAIT,
        "The machine is unhealthy, and spec.disableHealthTimeout says that this never makes it Failed.",
        see="`{node}`; `hostler get {machine} -o yaml`: spec.disableHealthTimeout.",
        by_itself=(
            "Waits for the Node without end; the machine is Running again when the Node has been healthy for 30 s."
        ),
        do=(
            "Mend it yourself: `{node}`. To let it fail, take disableHealthTimeout out of the manifest and `hostler "
            "apply -f FILE --cluster {cluster}`; to replace it, `hostler recreate {machine}`."
        ),
        worry="When you did not know of the setting.",
        warning=True,
    ),
    "HealthTimeout": Reason(
        Kind.WAIT | Kind.FAILURE,
        "The machine was unhealthy for its whole healthTimeout, and two fresh looks found it so.",
        see="`hostler describe {machine}`: the message has what both looks saw.",
        by_itself="Drains the Node once, while the machine is Failed; then the machine stays so.",
        do="Read the message and look at the VM first; then {replace}. Both delete the VM.",
        worry=(
            "When several machines have it within an hour: look for one cause before you recreate them. Otherwise not "
            "at night, if the other Nodes carry the load: it costs a VM, no more."
        ),
        warning=True,
    ),
    "JoinedLate": Reason(
        Kind.HAPPENING,
        "The Node joined after the machine had Failed; it stays Failed.",
        do="If it always takes that long, raise spec.creationTimeout; then `hostler recreate {machine}`.",
        warning=True,
    ),
    "MarkUnreadable": Reason(
        Kind.HAPPENING,
        "The Node is marked for deletion with a time that cannot be read, and counts as marked from now on.",
        do=(
            "Nothing, if the machine is to go. Otherwise remove the annotation that the message names from the Node; "
            "whoever sets it must write a time like 2026-01-31T12:00:00Z."
        ),
        warning=True,
    ),
    "Applied": Reason(
        Kind.HAPPENING,
        "A changed manifest or class was taken, or what a person asked for, such as another number of replicas.",
    ),
    "HotUpdate": Reason(
        Kind.WAIT,
        "The VM that runs is being changed to what the class says now; the machine goes on as before.",
        see="`hostler describe {machine}`: *Pending activities*; the fields are in the message.",
        by_itself=(
            "Makes one call. Temporal retries it up to 5 times, and waits without limit while no worker is there. A "
            "failure shows as UpdateFailed."
        ),
        do=(
            "Nothing: it takes seconds. After 6 minutes check whether a worker polls the cloud's queue: `hostler "
            "doctor`."
        ),
        worry="After 6 minutes.",
    ),
    "Updated": Reason(
        Kind.HAPPENING,
        "A hot update is done: the VM that runs and all that belongs to it carry the class's newest values.",
    ),
    "UpdateFailed": Reason(
        Kind.WAIT,
        "A hot update failed, at least for one resource; the machine works as before.",
        see=(
            "`hostler describe {machine}`: *Hot update* has a line for each resource, and the next try; the condition "
            "UpdateFailed has the kind of error as its reason. `hostler describe class CLASS`: whether other machines "
            "have it too."
        ),
        by_itself=(
            "Goes on with the other resources, and tries again: after transient, throttled, conflict and unknown "
            "errors in 5 s, doubled with each failure up to 3 minutes; after the others every 10 minutes. It never "
            "gives up, and the phase does not change."
        ),
        do=(
            "Mend what the message names; `hostler describe {machine}` shows what became of each resource. It is "
            "tried again after 5 s to 3 minutes, or after 10 where somebody must act; at once with a changed class or "
            "`hostler renew {machine}`."
        ),
        worry=(
            "Not at night: tags and options are late, no more. At once when the change was one for safety "
            "(`instanceMetadataOptions`)."
        ),
        warning=True,
    ),
    "UpdateNotSupported": Reason(
        Kind.CONDITION,
        "The cloud's driver cannot update a VM that runs, so what the class changed needs a new VM.",
        see="`hostler describe {machine}`: the condition names the fields.",
        by_itself="Nothing: the VM stays as it was made, and the class counts the machine as NotSupported.",
        do=(
            "`hostler recreate {machine}` makes a VM of the new class. The update is tried again only when the class "
            "changes."
        ),
        worry="Never at night.",
    ),
    "Outdated": Reason(
        Kind.CONDITION,
        "The class has other values now in fields that only a new VM can have.",
        see="`hostler describe {machine}`: the condition names the fields.",
        by_itself=(
            "Updates the fields that can be updated on the VM that runs; the others wait. A single machine is not "
            "replaced."
        ),
        do="`hostler recreate {machine}` makes a VM of the new class. A single machine is never replaced on its own.",
        worry="Never at night.",
    ),
}
