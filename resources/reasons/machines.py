"""What a machine waits for and fails by, in the order of its life."""

from __future__ import annotations

from resources.names import INSTANCE_NOT_READY_TAINT
from resources.reasons.reason import Kind, Reason

REPLACE = "`hostler recreate {machine}` replaces it, `hostler delete {machine}` only removes it"
"""What a machine that is Failed waits for; by itself it stays so."""
SEEN = "`Seen last` in describe (the web UI: Pending Activities)"
"""What the activity said that looks again and again."""

CREATING: dict[str, Reason] = {
    "Created": Reason(
        Kind.HAPPENING,
        "The life of a machine or a pool began; a machine's creation deadline runs from here.",
        "Nothing.",
    ),
    "ClassMissing": Reason(
        Kind.WAIT,
        "The machine was started without its class, and no class of that name answers.",
        "Apply the MachineClass that the message names: `hostler apply -f FILE --cluster {cluster}`. The machine asks "
        "for it every 5 s, and makes nothing at the cloud before.",
        warning=True,
    ),
    "ClassTaken": Reason(
        Kind.HAPPENING,
        "The machine has asked for its class and got it.",
        "Nothing.",
    ),
    "CreatingVM": Reason(
        Kind.WAIT,
        "The create call is under way.",
        "Nothing: the answer takes seconds, and no second call is made before it. After 6 minutes see whether a worker "
        "polls the cloud's queue: `hostler doctor`.",
    ),
    "VMCreated": Reason(
        Kind.HAPPENING,
        "The cloud has made the VM; its id is recorded and never replaced.",
        "Nothing.",
    ),
    "VMAdopted": Reason(
        Kind.HAPPENING,
        "A VM that carries this machine's uid was there already and is used, after a lost answer or a crash.",
        "Nothing: that is how a second VM is avoided.",
    ),
    "NameTaken": Reason(
        Kind.WAIT,
        "A VM that lives at the cloud carries this machine's name and the uid of another life; none is made beside it.",
        "If it is this machine: `hostler adopt {machine}`. Else delete it at the cloud: it is looked at every 5 s, and "
        "one that is on its way out holds nothing up.",
        warning=True,
    ),
    "VMTakenOver": Reason(
        Kind.HAPPENING,
        "A VM of this machine's name was made by a run of its workflow that a reset cut off, or a person has said that "
        "it is its own; the machine has the VM's uid from now on.",
        "Nothing: that is how a second VM is avoided.",
    ),
    "ClassChanged": Reason(
        Kind.WAIT,
        "The class was changed, and is tried when the cloud's lag window is over.",
        "Nothing: it takes a minute, so that a VM which the former call made after all is seen first.",
    ),
    "AttemptIsOver": Reason(
        Kind.WAIT,
        "The attempt's token is bound to another request or to a dead VM, so it cannot serve any more.",
        "Nothing: in a minute or more the VM is looked for once more and adopted, or a new attempt begins. If this "
        "comes again and again, somebody keeps changing the Secret with the user data.",
    ),
    "OutOfCapacity": Reason(
        Kind.WAIT,
        "The cloud has no such VM to give at this place right now.",
        "Nothing: it is tried again every 10 minutes. To be faster name another machine type or zone in the class and "
        "`hostler apply -f FILE --cluster {cluster}`; the changed class is tried within a minute.",
        warning=True,
    ),
    "QuotaExceeded": Reason(
        Kind.WAIT,
        "The cloud account may not have more of what the message names.",
        "Delete machines that are not needed, or raise the quota at the cloud; `hostler get orphans --cluster "
        "{cluster}` shows VMs that nobody owns. It is tried again every 10 minutes.",
        warning=True,
    ),
    "NotAuthorized": Reason(
        Kind.WAIT,
        "The credentials are wrong or expired, or may not do what the message names.",
        "At the cloud: correct the Secret that the message names, or the rights of its user. At the Kubernetes API: "
        "`hostler doctor` names the missing right. It is tried again every 3 minutes, a hot update every 10.",
        warning=True,
    ),
    "CredentialsMissing": Reason(
        Kind.WAIT,
        "A Secret with credentials or user data, or a key in it, is not where the worker looks for it.",
        "Put it there, with the key that the message names: `hostler apply -f SECRET-FILE --cluster {cluster}`. "
        "`hostler doctor` checks the source of secrets. It is tried again every 3 minutes, a hot update every 10.",
        warning=True,
    ),
    "WrongAccount": Reason(
        Kind.WAIT | Kind.CONDITION,
        "The Secret's credentials open another cloud account than the one in which the VM was made, or in which a "
        "create call without an answer may have made one, or in which the cluster's other VMs of this Secret are.",
        "Give the Secret credentials of the account that has the VMs: `hostler apply -f SECRET-FILE --cluster "
        "{cluster}`; for new VMs in the other account make a class with another Secret. It is tried again every 3 "
        "minutes, a hot update every 10; nothing is believed gone, and nothing is made, before.",
        warning=True,
    ),
    "InvalidSpec": Reason(
        Kind.WAIT,
        "The request as it is will never be accepted; the message says what is wrong with it.",
        "Correct the class or machine and `hostler apply -f FILE --cluster {cluster}`; `hostler explain "
        "machineclass.providerSpec` tells of the fields. A changed class is tried within a minute, the same one every "
        "3 minutes, or 10 in a hot update.",
        warning=True,
    ),
    "ReferenceNotFound": Reason(
        Kind.WAIT,
        "Something that the request names does not exist: an image, a subnet, a security group, a key, a profile.",
        "Create it, or correct its name and `hostler apply -f FILE --cluster {cluster}`. A changed class is tried "
        "within a minute, the same one every 3 minutes, or 10 in a hot update.",
        warning=True,
    ),
    "Throttled": Reason(
        Kind.WAIT,
        "The cloud or the API server says that it gets too many calls.",
        "Nothing: it is tried again every 30 s, or when the cloud says. After 15 minutes look who else uses up the "
        "account's calls, or lower `clouds.aws.callsPerSecond` in the worker's settings.",
        warning=True,
    ),
    "Conflict": Reason(
        Kind.WAIT,
        "The resource is in a state that does not allow this now, or somebody else is changing it.",
        "If the message names a protection, remove it as it says: Hostler never does. Else nothing: it is tried again "
        "every 5 s; worry after 10 minutes.",
        warning=True,
    ),
    "ProviderUnavailable": Reason(
        Kind.WAIT,
        "The cloud or the Kubernetes API does not answer, or has trouble of its own.",
        "Nothing: it is tried again every few seconds. After 10 minutes: `hostler doctor`, and the cloud's status "
        "page.",
        warning=True,
    ),
    "ProviderError": Reason(
        Kind.WAIT,
        "The cloud answered with an error code that Hostler does not know.",
        "Look the code up in the cloud's documentation and remove its cause; report it, so that Hostler learns it. It "
        "is tried again every 3 minutes.",
        warning=True,
    ),
    "CreationTimeout": Reason(
        Kind.WAIT | Kind.FAILURE,
        "The machine was not Running by its creation deadline (spec.creationTimeout, 20 minutes by default).",
        f"Correct what the message names, or raise spec.creationTimeout; then {REPLACE}. Look at the VM first: both "
        "delete it.",
        warning=True,
    ),
    "StaleNode": Reason(
        Kind.WAIT | Kind.FAILURE,
        "The cloud gave the new VM a node name that an older Node object has, so its VM is deleted.",
        "If the journal says StaleNodeRemoved, the next VM gets on. Else see whose Node the message names, and delete "
        f"it when its VM is gone (`kubectl delete node NODE`); then {REPLACE}.",
        warning=True,
    ),
    "StaleNodeRemoved": Reason(
        Kind.HAPPENING,
        "The Node that stood in the new VM's way was provably nobody's, and is removed: the account has no VM of its "
        "id, and its kubelet was silent for as long as healthTimeout.",
        "Nothing: a pool's next machine gets on.",
        warning=True,
    ),
    "StaleNodeStays": Reason(
        Kind.HAPPENING,
        "The Node that stood in the new VM's way stays, for the message's reason: nobody could prove that it is "
        "nobody's, and each VM that gets its name is deleted again.",
        "See whether a VM stands behind it, in any account and region; if none does, `kubectl delete node`.",
        warning=True,
    ),
}
"""Until there is a VM. The errors (OutOfCapacity to ProviderError) also come later, from updates and deletions."""

JOINING: dict[str, Reason] = {
    "PostStartUpdate": Reason(
        Kind.WAIT,
        "What a cloud lets be set only once the VM has started is being set.",
        "Nothing: it takes seconds. After 6 minutes see whether a worker polls the cloud's queue: `hostler doctor`.",
    ),
    "PostStartUpdated": Reason(
        Kind.HAPPENING,
        "The post-start update has changed something on the VM.",
        "Nothing.",
    ),
    "NodeNotSeen": Reason(
        Kind.WAIT,
        "The VM has started, and no Node of it has joined.",
        f"Nothing in the first 5 minutes. Then read {SEEN}, with the console's last lines: user data, network to the "
        "API server, bootstrap token, or a Node without spec.providerID.",
    ),
    "NodeRejoined": Reason(
        Kind.HAPPENING,
        "The Node object is a new one, because somebody deleted the former and the kubelet has registered again.",
        "Nothing.",
        warning=True,
    ),
    "DuplicateNode": Reason(
        Kind.CONDITION,
        "Two Nodes have the providerID of the machine's VM: the one that is Ready with a Lease that moves counts, of "
        "equals the one that the machine knew, and both are drained before the VM goes.",
        "If no kubelet stands behind the one that does not count, delete it with `kubectl delete node`. If two "
        "kubelets live, an image or user data gives two VMs one `--provider-id`.",
        warning=True,
    ),
    "NodeJoined": Reason(
        Kind.HAPPENING,
        "The Node has joined and carries the template's labels, annotations and taints; the bootstrap token is "
        "revoked.",
        "Nothing.",
    ),
    "NodeNameDiffers": Reason(
        Kind.HAPPENING,
        "The Node has another name than the provider said; it is known by its providerID.",
        "Nothing: the machine goes on with the Node's own name. If it surprises you, look at the kubelet's "
        "`--hostname-override` and at the DHCP options.",
    ),
    "NodeTemplate": Reason(
        Kind.WAIT,
        "The Node gets its labels, annotations and taints.",
        "Nothing: it takes seconds. After 6 minutes see whether a worker polls the cluster's queue: `hostler doctor`.",
    ),
    "StartupTaint": Reason(
        Kind.WAIT,
        "The Node is Ready, and somebody else has not removed their startup taint from it.",
        "Nothing in the first 5 minutes. Then see whether the taint's owner runs, the cloud-controller-manager for "
        "`uninitialized`, Gardener's resource manager for `critical-components-not-ready`: `kubectl get pods -n "
        "kube-system`.",
    ),
    "ReadyTaint": Reason(
        Kind.WAIT,
        f"The taint {INSTANCE_NOT_READY_TAINT} is being removed.",
        "Nothing: it takes seconds. After 6 minutes see whether a worker polls the cluster's queue: `hostler doctor`.",
    ),
    "NoReadyTaint": Reason(
        Kind.CONDITION,
        f"The Node joined without the taint {INSTANCE_NOT_READY_TAINT}, so pods may have started before it was set up.",
        f"Add `--register-with-taints={INSTANCE_NOT_READY_TAINT}:NoSchedule` to the kubelet in the user data; it "
        "counts for new machines. This one needs nothing.",
        warning=True,
    ),
    "Running": Reason(
        Kind.HAPPENING,
        "The Node is Ready and takes work.",
        "Nothing.",
    ),
    "VMStopped": Reason(
        Kind.WAIT | Kind.FAILURE,
        "The VM was stopped before its Node joined; it is not created again.",
        "Find out who stopped it (the VM's console, its boot script, the cloud's audit log); then "
        f"{REPLACE}. Both delete the VM.",
        warning=True,
    ),
    "VMGone": Reason(
        Kind.WAIT | Kind.FAILURE,
        "The cloud says that the VM does not exist any more.",
        f"Find out who deleted it (the cloud's audit log). A pool replaces its machine by itself; else {REPLACE}.",
        warning=True,
    ),
}
"""From a VM to a Node that takes work."""

LIVING: dict[str, Reason] = {
    "NodeNotReady": Reason(
        Kind.WAIT,
        "The Node's condition Ready is not True.",
        "`{node}` says why: kubelet, container runtime, network plugin. One that stays so is Failed at the time "
        "that the message names.",
        warning=True,
    ),
    "NodeUnhealthy": Reason(
        Kind.WAIT,
        "A condition that spec.nodeConditions lists is not False.",
        "`{node}` shows the condition and its message: mend it on the machine (disk, file system, kernel, network). "
        "One that stays so is Failed at the time that the message names.",
        warning=True,
    ),
    "NodeMissing": Reason(
        Kind.WAIT,
        "Somebody deleted the Node object.",
        "Restart the kubelet on the VM (`systemctl restart kubelet`): a running one does not register its Node again. "
        "Else the machine is Failed at the time that the message names.",
        warning=True,
    ),
    "VMNotRunning": Reason(
        Kind.WAIT,
        "The VM exists and does not run.",
        "Start it at the cloud if it was stopped by mistake: `hostler describe {machine}` has its id. Else the machine "
        "is Failed at the time that the message names.",
        warning=True,
    ),
    "VMNotFound": Reason(
        Kind.HAPPENING,
        "The cloud does not find the VM of a Node that was seen; two looks at the kubelet's Lease decide.",
        "Nothing.",
    ),
    "VMFound": Reason(
        Kind.HAPPENING,
        "The cloud did not find the VM for a while, and finds it again.",
        "Nothing.",
    ),
    "VMContradiction": Reason(
        Kind.WAIT | Kind.CONDITION,
        "The cloud says that the VM is gone or does not run, but its kubelet lives, so the machine is left alone.",
        "Find out whom the credentials ask: `hostler doctor`. Do they open the account and region that made the VM, "
        "and may they describe instances? The machine goes on until the cloud finds its VM, or its kubelet is silent.",
        warning=True,
    ),
    "Settling": Reason(
        Kind.WAIT,
        "The Node is healthy again, and must stay so for a while before the machine is Running.",
        "Nothing: it takes 30 s.",
    ),
    "Recovered": Reason(
        Kind.HAPPENING,
        "The machine was unhealthy and is Running again.",
        "Nothing.",
    ),
    "Flapping": Reason(
        Kind.CONDITION,
        "The machine was unhealthy again before it had been healthy for as long as its healthTimeout.",
        "Find out why it comes and goes: `{node}`. What the spells took of the healthTimeout adds up; one time of "
        "health as long as the healthTimeout sets it back.",
        warning=True,
    ),
    "ConfirmingFailure": Reason(
        Kind.WAIT,
        "The deadline is near: two fresh looks at Node, Lease and VM decide whether the machine is Failed.",
        "Nothing, or make it healthy before the next look: then it is not Failed. `{node}` says what is wrong with it.",
        warning=True,
    ),
    "NotConfirmed": Reason(
        Kind.HAPPENING,
        "The deadline was near, but a fresh look found the machine healthy; it must stay so.",
        "Nothing. If it comes often, the watch of the nodes is behind: `hostler describe cluster {cluster}`.",
    ),
    "CannotConfirm": Reason(
        Kind.WAIT,
        "The deadline is near or over, but Node, Lease or VM cannot be read, so nothing is decided.",
        "Make what the message names answer again: `hostler doctor`. No machine is Failed on old news.",
        warning=True,
    ),
    "KubeletAlive": Reason(
        Kind.WAIT,
        "Ready is Unknown, but the kubelet renews its Lease, so it lives and its status should follow.",
        "Nothing: it is looked at again every minute. After 5 minutes the machine is Failed all the same: see the "
        "kubelet's log on the VM.",
        warning=True,
    ),
    "RepairPermit": Reason(
        Kind.WAIT,
        "The machine was unhealthy for its whole healthTimeout, and asks its pool whether it may be Failed.",
        "Nothing, or mend it before: `{node}`. Its pool permits as many repairs as repair.maxConcurrent says, and none "
        "while too much is ill or out of reach: `hostler get pools --cluster {cluster}`. To have it replaced at once: "
        "`hostler delete {machine}`.",
        warning=True,
    ),
    "RepairPermitted": Reason(
        Kind.HAPPENING,
        "The pool has permitted that the machine is Failed, if one more fresh look finds it unhealthy.",
        "Nothing.",
    ),
    "HealthTimeoutDisabled": Reason(
        Kind.WAIT,
        "The machine is unhealthy, and spec.disableHealthTimeout says that it is never Failed for it.",
        "It is yours to mend: `{node}`. To have it fail, take disableHealthTimeout out of the manifest and `hostler "
        "apply -f FILE --cluster {cluster}`; to replace it, `hostler recreate {machine}`.",
        warning=True,
    ),
    "HealthTimeout": Reason(
        Kind.WAIT | Kind.FAILURE,
        "The machine was unhealthy for its whole healthTimeout, and two fresh looks found it so.",
        f"Read the message and look at the VM first; then {REPLACE}. Both delete the VM.",
        warning=True,
    ),
    "JoinedLate": Reason(
        Kind.HAPPENING,
        "The Node joined after the machine had Failed; it stays Failed.",
        "If it always takes that long, raise spec.creationTimeout; then `hostler recreate {machine}`.",
        warning=True,
    ),
    "MarkUnreadable": Reason(
        Kind.HAPPENING,
        "The Node is marked for deletion with a time that cannot be read, and counts as marked from now on.",
        "Nothing, if the machine shall go. Else take the annotation that the message names from the Node; whoever sets "
        "it must write a time like 2026-01-31T12:00:00Z.",
        warning=True,
    ),
    "Applied": Reason(
        Kind.HAPPENING,
        "A changed manifest or class was taken, or a wish of a person, as another number of replicas.",
        "Nothing.",
    ),
    "HotUpdate": Reason(
        Kind.WAIT,
        "What the class changed is being changed on the VM that runs; the machine goes on as ever.",
        "Nothing: it takes seconds. After 6 minutes see whether a worker polls the cloud's queue: `hostler doctor`.",
    ),
    "Updated": Reason(
        Kind.HAPPENING,
        "A hot update is done: the VM that runs and all that belongs to it carry the class's newest values.",
        "Nothing.",
    ),
    "UpdateFailed": Reason(
        Kind.WAIT,
        "A hot update failed, at least for one resource; the machine is none the worse for it.",
        "Mend what the message names; `hostler describe {machine}` shows what became of each resource. It is tried "
        "again by itself, after 5 s to 3 minutes, or after 10 where somebody must act; at once with a changed class or "
        "`hostler renew {machine}`.",
        warning=True,
    ),
    "UpdateNotSupported": Reason(
        Kind.CONDITION,
        "The cloud's driver cannot update a VM that runs, so what the class changed needs a new VM.",
        "`hostler recreate {machine}` makes a VM of the new class. The update is tried again only when the class "
        "changes.",
    ),
    "Outdated": Reason(
        Kind.CONDITION,
        "The class has other values by now in fields that only a new VM can have.",
        "`hostler recreate {machine}` makes a VM of the new class. A single machine is never replaced by itself.",
    ),
}
"""A machine that has been Running once, and one that has Failed."""

LEAVING: dict[str, Reason] = {
    "Terminating": Reason(
        Kind.HAPPENING,
        "The deletion was asked for: drain, VM, Node, token.",
        "Nothing: it cannot be taken back.",
    ),
    "PreDrainHook": Reason(
        Kind.WAIT,
        "A preDrain hook holds the drain of the Node, and with it all that comes after, until it is removed.",
        "Ask the owner that the message names; when its work is done and the hook is still there, remove it with the "
        "command in the message. `hostler hook list {pool}` shows all. Force does not skip hooks, and no time ends it.",
    ),
    "Draining": Reason(
        Kind.WAIT,
        "The Node's pods are being evicted, as their disruption budgets allow.",
        f"Nothing: what is not gone by the deadline is deleted. {SEEN} names the pod and the budget in the way; raise "
        "that, or do not wait: `hostler delete {machine} --force`.",
    ),
    "DrainForced": Reason(
        Kind.HAPPENING,
        "The drain deadline has passed, or somebody insists: the pods that are left are deleted without grace.",
        "See what was not waited for in `hostler events {machine}`. If it comes often, look at the disruption budgets "
        "or raise spec.drainTimeout.",
        warning=True,
    ),
    "DrainFailed": Reason(
        Kind.HAPPENING,
        "The force pass of the drain failed, and the machine goes on without it: its deadline has passed, or force was "
        "asked for.",
        "Remove what the message names (rights, an admission webhook): the next machine will meet it too.",
        warning=True,
    ),
    "Drained": Reason(
        Kind.HAPPENING,
        "The Node's pods are gone, and their volumes are detached.",
        "Nothing.",
    ),
    "PreTerminateHook": Reason(
        Kind.WAIT,
        "A preTerminate hook holds the deletion of the VM until it is removed; the drain is over.",
        "Ask the owner that the message names; when its work is done and the hook is still there, remove it with the "
        "command in the message. `hostler hook list {pool}` shows all. Force does not skip hooks, and no time ends it.",
    ),
    "FindingVM": Reason(
        Kind.WAIT,
        "The machine is being deleted and knows no VM; the cloud is asked whether one carries its tags all the same.",
        "Nothing: it takes seconds. After 6 minutes see whether a worker polls the cloud's queue: `hostler doctor`.",
    ),
    "DeletingVM": Reason(
        Kind.WAIT,
        "The VM, its disks and its NICs are being deleted, until the cloud confirms that they are gone.",
        f"Nothing: it takes minutes. After 15 minutes see what is still there: {SEEN} names it.",
    ),
    "VMDeleted": Reason(
        Kind.HAPPENING,
        "The cloud has confirmed that the VM, its disks and its NICs are gone, but for those that the spec keeps.",
        "Nothing.",
    ),
    "Forgetting": Reason(
        Kind.WAIT,
        "The VM is gone; its Node object and its bootstrap tokens are being removed.",
        "Nothing: it takes seconds. After 6 minutes see whether a worker polls the cluster's queue: `hostler doctor`. "
        "If the cluster never answers again: `hostler delete {machine} --force --abandon-node`.",
    ),
    "NodeLeft": Reason(
        Kind.HAPPENING,
        "A Node stays that may have been the machine's: it has its name or its label, and either no providerID, so "
        "nobody can say whose it is, or that of a VM which is not known to have been the machine's.",
        "The cloud-controller-manager removes it when it finds no VM of it. Where there is none, see whether a VM "
        "stands behind it: if not, delete it with `kubectl delete node`; if one does, its label is wrong.",
        warning=True,
    ),
    "NodeAbandoned": Reason(
        Kind.HAPPENING,
        "The cluster did not answer, and by an operator's word (--abandon-node) the machine ends without it: its VM is "
        "gone, what the message names stays in the cluster.",
        "If the cluster comes back: its cloud-controller-manager removes a Node without a VM. Where there is none, "
        "delete it with `kubectl delete node`.",
        warning=True,
    ),
    "Gone": Reason(
        Kind.HAPPENING,
        "Nothing is left of the machine but what its spec says to keep.",
        "Nothing.",
    ),
    "Recreated": Reason(
        Kind.HAPPENING,
        "The former life has ended and a new one begins, with a new uid and a new VM.",
        "Nothing.",
    ),
}
"""A deletion, or the first half of a recreation."""
