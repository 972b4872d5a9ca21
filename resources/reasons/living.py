"""What a machine that was once Running waits for, and how it fails."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

LIVING: dict[str, Reason] = {
    "NodeNotReady": Reason(
        Kind.WAIT,
        "The Node's condition Ready is not True.",
        see="`{node}`; `hostler describe {machine}`: *Times*.",
        by_itself=(
            "Sets the machine to Unknown, waits for the Node, and takes two fresh looks near the deadline "
            "(spec.healthTimeout, 10 minutes of ill health in total by default); then the machine is Failed and "
            "drained."
        ),
        do=(
            "`{node}` says why: kubelet, container runtime, network plugin. If nothing changes, the machine is "
            "Failed at the time in the message."
        ),
        worry=(
            "After a new Node's first minute. When several Nodes are affected at once, the cause is the network or "
            "the API server, not the machines."
        ),
        warning=True,
    ),
    "NodeUnhealthy": Reason(
        Kind.WAIT,
        "A condition that spec.nodeConditions lists is not False.",
        see="`{node}`: *Conditions*.",
        by_itself=(
            "Sets the machine to Unknown and takes two fresh looks near the deadline (spec.healthTimeout); then the "
            "machine is Failed and drained."
        ),
        do=(
            "`{node}` shows the condition and its message: fix the cause on the machine (disk, file system, kernel, "
            "network). If nothing changes, the machine is Failed at the time in the message."
        ),
        worry="Immediately for ReadonlyFilesystem and KernelDeadlock: they seldom go away on their own.",
        warning=True,
    ),
    "NodeMissing": Reason(
        Kind.WAIT,
        "Somebody deleted the Node object.",
        see="`kubectl get nodes`; the API server's audit log says who.",
        by_itself=(
            "Sets the machine to Unknown and takes two fresh looks near the deadline; then the machine is Failed. A "
            "Node that comes back with the same providerID is accepted."
        ),
        do=(
            "Restart the kubelet on the VM (`systemctl restart kubelet`): a running kubelet does not register its "
            "Node again. Otherwise the machine is Failed at the time in the message."
        ),
        worry="When you did not delete it: something else manages these Nodes too.",
        warning=True,
    ),
    "VMNotRunning": Reason(
        Kind.WAIT,
        "The VM exists but is not running.",
        see="`hostler describe {machine}`; the VM in the cloud's console.",
        by_itself=(
            "Sets the machine to Unknown, never starts the VM, and takes two fresh looks near the deadline; then the "
            "machine is Failed."
        ),
        do=(
            "If it was stopped by mistake, start it in the cloud: {look} shows its id. "
            "Otherwise the machine is Failed at the time in the message."
        ),
        worry="Immediately, unless you stopped it.",
        warning=True,
    ),
    "VMNotFound": Reason(
        Kind.HAPPENING,
        "The cloud does not find the VM of a Node that has joined; two looks at the kubelet's Lease decide.",
    ),
    "VMFound": Reason(
        Kind.HAPPENING,
        "The cloud did not find the VM for a while, and finds it again now.",
    ),
    "VMContradiction": Reason(
        Kind.WAIT | Kind.CONDITION,
        "The cloud says that the VM is gone or not running, but its kubelet is alive, so the machine is left alone.",
        see=(
            "`hostler describe {machine}`: *Conditions*; `kubectl get lease -n kube-node-lease`; the VM in the "
            "cloud's console, by its id."
        ),
        by_itself=(
            "Does not fail, replace or delete anything on the cloud's word alone. The pool waits with the same "
            "reason and names all its machines that are affected. Hostler looks again after 40 s, then less often, "
            "up to every 5 minutes, and at once when the Node becomes unhealthy. When the Lease has not been "
            "renewed for 40 s, the cloud is believed: VMGone."
        ),
        do=(
            "Check the credentials with {doctor}: are they for the account and region in which the VM was "
            "created, and may they describe instances? The machine stays as it is until the cloud finds its VM, or "
            "its kubelet is silent."
        ),
        worry=(
            "Immediately, especially when it affects several machines: the Secret may have been exchanged for one of "
            "another account."
        ),
        warning=True,
    ),
    "Settling": Reason(
        Kind.WAIT,
        "The Node is healthy again, and must stay healthy for a while before the machine is Running.",
        see="`hostler describe {machine}`: *Next try*.",
        by_itself="Sets the machine to Running when the Node has been healthy for 30 s without a break.",
        do="Nothing: it is Running {then}, if it stays healthy until then.",
        worry="Only together with Flapping.",
    ),
    "Recovered": Reason(
        Kind.HAPPENING,
        "The machine was unhealthy and is Running again.",
    ),
    "Flapping": Reason(
        Kind.CONDITION,
        "The machine became unhealthy again before it had been healthy for the length of its healthTimeout.",
        see="`hostler describe {machine}`: *Conditions*; `hostler events {machine}`.",
        by_itself=(
            "Adds up the times of ill health: when the total reaches healthTimeout, the machine is Failed, after "
            "two fresh looks. A machine that never stays healthy for 30 s is Unknown all the time, and Failed 90 s "
            "after that at the latest."
        ),
        do=(
            "Find out why it comes and goes: `{node}`. The times of ill health count together towards "
            "healthTimeout; only a healthy time of that length resets the total."
        ),
        worry="When it happens every hour: recreate the machine before it fails at a bad time.",
        warning=True,
    ),
    "ConfirmingFailure": Reason(
        Kind.WAIT,
        "The deadline is near: two fresh looks at Node, Lease and VM decide whether the machine is Failed.",
        see="`{node}`; `hostler describe {machine}`: *Next try*.",
        by_itself=(
            "Takes a second look a minute after the first, at the deadline. If the machine is healthy then, it has "
            "30 s more to stay healthy; otherwise it is Failed. If they cannot be read, the reason becomes "
            "CannotConfirm."
        ),
        do=(
            "Nothing, or make it healthy before the next look: then it is not Failed. `{node}` says what is wrong "
            "with it."
        ),
        worry="When it affects many machines at once: stop what you are changing.",
        warning=True,
    ),
    "NotConfirmed": Reason(
        Kind.HAPPENING,
        "The deadline was near, but a fresh look found the machine healthy; it must stay healthy.",
        do="Nothing. If it happens often, the watch of the nodes is behind: `hostler describe cluster {cluster}`.",
    ),
    "CannotConfirm": Reason(
        Kind.WAIT,
        "The deadline is near or has passed, but Node, Lease or VM cannot be read, so nothing is decided.",
        see="`hostler describe {machine}`: the message says what cannot be read and why; `hostler doctor`.",
        by_itself=(
            "Checks again after 5 s to 3 minutes, depending on the kind of error, as long as it takes. After an "
            "outage the two looks start again."
        ),
        do=(
            "Restore access to what the message names; {doctor} says what is wrong. No machine is Failed on "
            "stale information."
        ),
        worry="When it lasts: in the meantime dead machines are not repaired.",
        warning=True,
    ),
    "KubeletAlive": Reason(
        Kind.WAIT,
        "Ready is Unknown, but the kubelet renews its Lease, so it is alive and its status should follow.",
        see="`kubectl get lease -n kube-node-lease`; `{node}`.",
        by_itself="Checks again every minute. 5 minutes after the deadline the Lease alone no longer counts.",
        do=(
            "Nothing: it is checked again {then}. After 5 minutes the machine is Failed anyway: read the "
            "kubelet's log on the VM."
        ),
        worry=(
            "After an outage of the API server: after 5 minutes. Otherwise immediately: the kubelet cannot write "
            "its status."
        ),
        warning=True,
    ),
    "RepairPermit": Reason(
        Kind.WAIT,
        "The machine was unhealthy for its whole healthTimeout, and waits for its pool's permit to be Failed.",
        see=(
            "`hostler describe {machine}`: the message names the pool. `hostler get pools` shows what the pool waits "
            "for."
        ),
        by_itself=(
            "The machine stays Unknown and is checked again every healthTimeout: if it is healthy, it takes its "
            "request back. With the permit, one more fresh look makes it Failed. A machine whose VM is gone needs "
            "no permit."
        ),
        do=(
            "Nothing, or fix the Node before that: `{node}`. The pool permits repair.maxConcurrent repairs at a "
            "time, and none while too many machines are unhealthy or unreachable: `hostler get pools --cluster "
            "{cluster}`. To replace it at once: `hostler delete {machine}`."
        ),
        worry="When many machines wait at once: the cause is the network or the API server rather than the machines.",
        warning=True,
    ),
    "RepairPermitted": Reason(
        Kind.HAPPENING,
        "The pool has permitted the machine to be Failed, if one more fresh look finds it unhealthy.",
    ),
    "HealthTimeoutDisabled": Reason(
        Kind.WAIT,
        "The machine is unhealthy, but because of spec.disableHealthTimeout it is never Failed for that.",
        see="`{node}`; `hostler get {machine} -o yaml`: spec.disableHealthTimeout.",
        by_itself=(
            "Waits for the Node without end; the machine is Running again when the Node has been healthy for 30 s."
        ),
        do=(
            "Fix it yourself: `{node}`. To let it fail, remove disableHealthTimeout from the manifest and `hostler "
            "apply -f FILE --cluster {cluster}`; to replace it, `hostler recreate {machine}`."
        ),
        worry="When you did not know about the setting.",
        warning=True,
    ),
    "HealthTimeout": Reason(
        Kind.WAIT | Kind.FAILURE,
        "The machine was unhealthy for its whole healthTimeout, and two fresh looks confirmed it.",
        see="`hostler describe {machine}`: the message says what both looks found.",
        by_itself="Drains the Node once while the machine is Failed; then the machine stays Failed.",
        do="Read the message and inspect the VM first; then {replace}. Both commands delete the VM.",
        worry=(
            "When it affects several machines within an hour: look for a common cause before you recreate them. "
            "Otherwise it can wait until morning if the other Nodes carry the load: it only costs a VM."
        ),
        warning=True,
    ),
    "JoinedLate": Reason(
        Kind.HAPPENING,
        "The Node joined after the machine had Failed; the machine stays Failed.",
        do="If it always takes that long, raise spec.creationTimeout; then `hostler recreate {machine}`.",
        warning=True,
    ),
    "MarkUnreadable": Reason(
        Kind.HAPPENING,
        "The Node is marked for deletion with an invalid time, and counts as marked from now on.",
        do=(
            "Nothing, if the machine is meant to be deleted. Otherwise remove the annotation that the message names "
            "from the Node; whoever sets it must write a time like 2026-01-31T12:00:00Z."
        ),
        warning=True,
    ),
    "Applied": Reason(
        Kind.HAPPENING,
        "A changed manifest or class was accepted, or a user's request, such as another number of replicas.",
    ),
    "HotUpdate": Reason(
        Kind.WAIT,
        "The running VM is being changed to match the class; the machine works as before.",
        see="`hostler describe {machine}`: *Pending activities*; the fields are in the message.",
        by_itself=(
            "Makes one call. Temporal retries it up to 5 times, and waits without limit for a worker. A failure is "
            "shown as UpdateFailed."
        ),
        do=("Nothing: it takes seconds. After 6 minutes check whether a worker polls the cloud's queue: {doctor}."),
        worry="After 6 minutes.",
    ),
    "Updated": Reason(
        Kind.HAPPENING,
        "A hot update is done: the running VM and its resources have the class's newest values.",
    ),
    "UpdateFailed": Reason(
        Kind.WAIT,
        "A hot update failed, at least for one resource; the machine works as before.",
        see=(
            "`hostler describe {machine}`: *Hot update* has a line for each resource, and the next try; the "
            "condition UpdateFailed has the kind of error as its reason. `hostler describe class CLASS` shows "
            "whether other machines are affected too."
        ),
        by_itself=(
            "Continues with the other resources, and tries again: after transient, throttled, conflict and unknown "
            "errors in 5 s, doubled with each failure up to 3 minutes; after other errors every 10 minutes. It "
            "never gives up, and the phase does not change."
        ),
        do=(
            "Fix what the message names; {look} shows the result for each resource. It is tried again {then}; at "
            "once after a change of the class or `hostler renew {machine}`."
        ),
        worry=(
            "It can wait until morning: tags and options are only late. Immediately if the change is for security "
            "(`instanceMetadataOptions`)."
        ),
        warning=True,
    ),
    "UpdateNotSupported": Reason(
        Kind.CONDITION,
        "The cloud's driver cannot update a running VM, so the class's changes need a new VM.",
        see="`hostler describe {machine}`: the condition names the fields.",
        by_itself="Nothing: the VM stays as it was created, and the class counts the machine as NotSupported.",
        do=(
            "`hostler recreate {machine}` creates a VM of the new class. The update is tried again only when the "
            "class changes."
        ),
        worry="Never at night.",
    ),
    "Outdated": Reason(
        Kind.CONDITION,
        "The class has new values in fields that can only be set on a new VM.",
        see="`hostler describe {machine}`: the condition names the fields.",
        by_itself=(
            "Updates the fields that can be changed on the running VM; the others wait. A single machine is not "
            "replaced."
        ),
        do="`hostler recreate {machine}` creates a VM of the new class. A single machine is never replaced on its own.",
        worry="Never at night.",
    ),
}
