"""What a machine waits for between its VM and a Node that takes work."""

from __future__ import annotations

from resources.names import INSTANCE_NOT_READY_TAINT
from resources.reasons.reason import Kind, Reason

JOINING: dict[str, Reason] = {
    "PostStartUpdate": Reason(
        Kind.WAIT,
        "Settings that the cloud accepts only after the VM has started are being applied.",
        see="`hostler describe {machine}`: *Pending activities*.",
        by_itself=(
            "Makes one call, which Temporal retries up to 5 times; then the wait depends on the kind of error, "
            "which is shown as one of the errors above. The creation is not repeated."
        ),
        do=("Nothing: it takes seconds. After 6 minutes check whether a worker polls the cloud's queue: {doctor}."),
        worry="After 6 minutes.",
    ),
    "PostStartUpdated": Reason(
        Kind.HAPPENING,
        "The post-start update has changed something on the VM.",
    ),
    "NodeNotSeen": Reason(
        Kind.WAIT,
        "The VM has started, but its Node has not joined yet.",
        see=(
            "`hostler describe {machine}`: *Seen last* shows the VM's state, its health checks and the last lines of "
            "its console."
        ),
        by_itself=(
            "Checks the VM after 30 s and then less and less often, up to every 2 minutes, and keeps the bootstrap "
            "token valid. At the creation deadline the machine is Failed, after two fresh looks."
        ),
        do=("Nothing, for as long as the image usually takes to boot. Then {cure}"),
        cure=(
            "read {seen}, with the console's last lines. Usual causes: the user data, the network to the API server, "
            "the bootstrap token, or a Node without spec.providerID."
        ),
        worry="After 5 minutes, or after the time that the image usually takes.",
    ),
    "NodeRejoined": Reason(
        Kind.HAPPENING,
        "The Node object is a new one: somebody deleted the old one, and the kubelet has registered again.",
        warning=True,
    ),
    "DuplicateNode": Reason(
        Kind.CONDITION,
        "Two Nodes have the providerID of the machine's VM; the one that is Ready and whose Lease is renewed "
        "counts, and both are drained before the VM is deleted.",
        see=(
            "`kubectl get nodes -l node.gardener.cloud/machine-name={name}`; `kubectl get lease -n kube-node-lease` "
            "shows whether their Leases are renewed."
        ),
        by_itself=(
            "Follows the Node that counts; if both or neither qualify, that is the one that it already knew. The "
            "other one takes over when that Node is not Ready, or when its Lease has not been renewed for 40 s. The "
            "condition goes away when one Node is left."
        ),
        do=(
            "If the Node that does not count has no kubelet, delete it with `kubectl delete node`. If both have a "
            "live kubelet, an image or user data gives two VMs the same `--provider-id`."
        ),
        worry="When both are Ready and both Leases are renewed: two VMs claim to be the same one.",
        warning=True,
    ),
    "NodeJoined": Reason(
        Kind.HAPPENING,
        "The Node has joined and carries the template's labels, annotations and taints; the bootstrap token is "
        "revoked.",
    ),
    "NodeNameDiffers": Reason(
        Kind.HAPPENING,
        "The Node's name differs from what the provider said; the Node is recognized by its providerID.",
        do=(
            "Nothing: the machine uses the Node's own name. If you did not expect it, check the kubelet's "
            "`--hostname-override` and the DHCP options."
        ),
    ),
    "NodeTemplate": Reason(
        Kind.WAIT,
        "The template's labels, annotations and taints are being set on the Node.",
        see="`hostler describe {machine}`: *Pending activities*.",
        by_itself=(
            "Makes a three-way merge: what others have set is not touched. Temporal retries it up to 5 times; then "
            "the wait depends on the kind of error."
        ),
        do=("Nothing: it takes seconds. After 6 minutes check whether a worker polls the cluster's queue: {doctor}."),
        worry="After 6 minutes.",
    ),
    "StartupTaint": Reason(
        Kind.WAIT,
        "The Node is Ready, but still has a startup taint that somebody else must remove.",
        see="`{node}`: *Taints*.",
        by_itself=(
            "Waits until the taint is gone, which the watch notices at once. At the creation deadline the machine "
            "is Failed."
        ),
        do=("Nothing, as long as its owner usually takes. Then {cure}"),
        cure=(
            "check whether the taint's owner is running (the cloud-controller-manager for `uninitialized`, Gardener's "
            "resource manager for `critical-components-not-ready`): `kubectl get pods -n kube-system`."
        ),
        worry="After 5 minutes, or when it affects several new Nodes: the component is down.",
    ),
    "ReadyTaint": Reason(
        Kind.WAIT,
        f"The taint {INSTANCE_NOT_READY_TAINT} is being removed.",
        see="`hostler describe {machine}`: *Pending activities*.",
        by_itself=(
            "Removes the taint by its key, whatever its value. Temporal retries it up to 5 times; then the wait "
            "depends on the kind of error."
        ),
        do=("Nothing: it takes seconds. After 6 minutes check whether a worker polls the cluster's queue: {doctor}."),
        worry="After 6 minutes.",
    ),
    "NoReadyTaint": Reason(
        Kind.CONDITION,
        f"The Node joined without the taint {INSTANCE_NOT_READY_TAINT}, so pods may have started before it was set up.",
        see="`hostler describe {machine}`: *Conditions*.",
        by_itself="Continues: the machine is Running. It is reported once.",
        do=(
            f"Add `--register-with-taints={INSTANCE_NOT_READY_TAINT}:NoSchedule` to the kubelet in "
            "the user data, for new machines. This one needs nothing."
        ),
        worry="When your pods depend on post-start updates: some may have started before these.",
        warning=True,
    ),
    "Running": Reason(
        Kind.HAPPENING,
        "The Node is Ready and accepts pods.",
    ),
    "VMStopped": Reason(
        Kind.WAIT | Kind.FAILURE,
        "The VM was stopped before its Node joined; it is not created again.",
        see="`hostler describe {machine}`; the VM in the cloud's console.",
        by_itself=(
            "Does nothing more: the machine stays Failed. A deleted or stopped VM is never created again under the "
            "same uid."
        ),
        do=(
            "Find out who stopped it (the VM's console, its boot script, the cloud's audit log); then {replace}. Both "
            "delete the VM."
        ),
        worry="When it happens again: usually a boot script shuts the VM down, or somebody's automation does.",
        warning=True,
    ),
    "VMGone": Reason(
        Kind.WAIT | Kind.FAILURE,
        "The cloud says that the VM no longer exists.",
        see="`hostler describe {machine}`; the cloud's audit log (CloudTrail: TerminateInstances).",
        by_itself=(
            "If the Node has not joined yet, the machine is Failed. Otherwise the cloud is believed when the "
            "kubelet's Lease has not been renewed for 40 s: then [its pool replaces it](pools.md#repair), whatever "
            "its healthTimeout; a single machine is Unknown, Failed at the health deadline, and drained. The VM is "
            "never created again under the same uid, not even after the workflow was reset: the history of the "
            "earlier run is read."
        ),
        do=(
            "Find out who deleted it (the cloud's audit log). A pool replaces its machine on its own; otherwise "
            "{replace}."
        ),
        worry=(
            "Immediately, unless you deleted it: somebody else deletes the cluster's VMs, or the account is being "
            "closed."
        ),
        warning=True,
    ),
}
