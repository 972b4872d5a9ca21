"""What a machine waits for between its VM and a Node that takes work."""

from __future__ import annotations

from resources.names import INSTANCE_NOT_READY_TAINT
from resources.reasons.reason import Kind, Reason

JOINING: dict[str, Reason] = {
    "PostStartUpdate": Reason(
        Kind.WAIT,
        "Settings that a cloud takes only once the VM has started are being made.",
        see="`hostler describe {machine}`: *Pending activities*.",
        by_itself=(
            "Makes one call, which Temporal retries up to 5 times; a failure waits by its error class and shows as "
            "one of the errors above. The creation is not repeated."
        ),
        do=(
            "Nothing: it takes seconds. After 6 minutes check whether a worker polls the cloud's queue: `hostler "
            "doctor`."
        ),
        worry="After 6 minutes.",
    ),
    "PostStartUpdated": Reason(
        Kind.HAPPENING,
        "The post-start update has changed something on the VM.",
    ),
    "NodeNotSeen": Reason(
        Kind.WAIT,
        "The VM has started, and its Node has not joined.",
        see="`hostler describe {machine}`: *Seen last* has VM state, health checks and the console's last lines.",
        by_itself=(
            "Looks at the VM after 30 s and then less and less often, in the end every 2 minutes, and keeps the "
            "bootstrap token alive. At the creation deadline the machine is Failed, after two fresh looks."
        ),
        do=(
            "Nothing in the first 5 minutes. Then read {seen}, with the console's last lines: user data, network to "
            "the API server, bootstrap token, or a Node without spec.providerID."
        ),
        worry="After 5 minutes; for images that take longer, after the time that they usually take.",
    ),
    "NodeRejoined": Reason(
        Kind.HAPPENING,
        "The Node object is a new one, because somebody deleted the former one and the kubelet has registered again.",
        warning=True,
    ),
    "DuplicateNode": Reason(
        Kind.CONDITION,
        (
            "Two Nodes have the providerID of the machine's VM: the one that is Ready and whose Lease moves counts, "
            "or of two that are alike the one that the machine knew, and both are drained before the VM goes."
        ),
        see=(
            "`kubectl get nodes -l node.gardener.cloud/machine-name={name}`, and whether their Leases move: `kubectl "
            "get lease -n kube-node-lease`."
        ),
        by_itself=(
            "Tells the machine of the Node that counts. The other one takes over when that one is not Ready, or when "
            "its Lease has stopped for 40 s. The condition goes when one Node is left."
        ),
        do=(
            "If no kubelet stands behind the Node that does not count, delete it with `kubectl delete node`. If two "
            "kubelets live, an image or user data gives two VMs one `--provider-id`."
        ),
        worry="When both are Ready and both Leases move: two VMs claim to be the same one.",
        warning=True,
    ),
    "NodeJoined": Reason(
        Kind.HAPPENING,
        (
            "The Node has joined and carries the template's labels, annotations and taints; the bootstrap token is "
            "revoked."
        ),
    ),
    "NodeNameDiffers": Reason(
        Kind.HAPPENING,
        "The Node has another name than the provider said; it is recognized by its providerID.",
        do=(
            "Nothing: the machine goes on with the Node's own name. If it surprises you, look at the kubelet's "
            "`--hostname-override` and at the DHCP options."
        ),
    ),
    "NodeTemplate": Reason(
        Kind.WAIT,
        "The Node gets its labels, annotations and taints.",
        see="`hostler describe {machine}`: *Pending activities*.",
        by_itself=(
            "Merges three ways: what others set is not touched. Temporal retries it up to 5 times, then it waits by "
            "error class."
        ),
        do=(
            "Nothing: it takes seconds. After 6 minutes check whether a worker polls the cluster's queue: `hostler "
            "doctor`."
        ),
        worry="After 6 minutes.",
    ),
    "StartupTaint": Reason(
        Kind.WAIT,
        "The Node is Ready, but still has a startup taint that somebody else must remove.",
        see="`{node}`: *Taints*.",
        by_itself=(
            "Waits until the taint is gone; the watch tells the machine at once. At the creation deadline the machine "
            "is Failed."
        ),
        do=(
            "Nothing in the first 5 minutes. Then check whether the taint's owner runs, the cloud-controller-manager "
            "for `uninitialized`, Gardener's resource manager for `critical-components-not-ready`: `kubectl get pods "
            "-n kube-system`."
        ),
        worry="After 5 minutes, or when several new Nodes have it: the component is down.",
    ),
    "ReadyTaint": Reason(
        Kind.WAIT,
        f"The taint {INSTANCE_NOT_READY_TAINT} is being removed.",
        see="`hostler describe {machine}`: *Pending activities*.",
        by_itself=(
            "Removes the taint by its key, whatever its value. Temporal retries it up to 5 times, then it waits by "
            "error class."
        ),
        do=(
            "Nothing: it takes seconds. After 6 minutes check whether a worker polls the cluster's queue: `hostler "
            "doctor`."
        ),
        worry="After 6 minutes.",
    ),
    "NoReadyTaint": Reason(
        Kind.CONDITION,
        (
            f"The Node joined without the taint {INSTANCE_NOT_READY_TAINT}, so pods may have started "
            "before it was set up."
        ),
        see="`hostler describe {machine}`: *Conditions*.",
        by_itself="Goes on: the machine is Running. It is said once.",
        do=(
            f"Add `--register-with-taints={INSTANCE_NOT_READY_TAINT}:NoSchedule` to the kubelet in "
            "the user data, for new machines. This one needs nothing."
        ),
        worry="When post-start updates matter for your pods: some may have started before.",
        warning=True,
    ),
    "Running": Reason(
        Kind.HAPPENING,
        "The Node is Ready and takes work.",
    ),
    "VMStopped": Reason(
        Kind.WAIT | Kind.FAILURE,
        "The VM was stopped before its Node joined; it is not created again.",
        see="`hostler describe {machine}`; the VM at the cloud.",
        by_itself=(
            "Does nothing more: the machine stays Failed. A VM that is deleted or stopped is never made again under "
            "the same uid."
        ),
        do=(
            "Find out who stopped it (the VM's console, its boot script, the cloud's audit log); then {replace}. Both "
            "delete the VM."
        ),
        worry="When it happens again: a boot script that shuts down, or somebody's automation.",
        warning=True,
    ),
    "VMGone": Reason(
        Kind.WAIT | Kind.FAILURE,
        "The cloud says that the VM no longer exists.",
        see="`hostler describe {machine}`; the cloud's audit log (CloudTrail: TerminateInstances).",
        by_itself=(
            "Before the Node has joined, the machine is Failed. Later the cloud is believed when the kubelet's Lease "
            "has stood still for 40 s: then [its pool replaces it](pools.md#repair), whatever its healthTimeout; a "
            "single machine is Unknown, Failed at the health deadline, and drained. The VM is never made again under "
            "the same uid, also after a reset of the workflow: the records of the former run are read."
        ),
        do=(
            "Find out who deleted it (the cloud's audit log). A pool replaces its machine on its own; otherwise "
            "{replace}."
        ),
        worry=(
            "At once, unless you deleted it: somebody else deletes VMs of the cluster, or the account is being closed."
        ),
        warning=True,
    ),
}
