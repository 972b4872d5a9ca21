"""What a machine that is being deleted or recreated waits for."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

_HOOK_DO = (
    "Ask the owner that the message names. If its work is done and the hook is still there, remove the hook with "
    "the command in the message. `hostler hook list {pool}` lists all hooks. Force does not skip hooks, and no "
    "deadline ends the wait."
)
_HOOK_WORRY = (
    "When it lasts longer than the owner's work usually takes: most often the controller that owns the hook is not "
    "running. [Hooks](hooks.md) explains what each kind is for."
)
LEAVING: dict[str, Reason] = {
    "Terminating": Reason(
        Kind.HAPPENING,
        "The deletion was requested: it drains the Node, then deletes the VM, the Node and the token.",
        do="Nothing: a deletion cannot be undone.",
    ),
    "PreDrainHook": Reason(
        Kind.WAIT,
        "A preDrain hook holds up the drain of the Node, and everything after it, until the hook is removed.",
        see=(
            "`hostler describe {machine}`: *Waiting for* shows each hook, its owner and the command that removes "
            "it; *Hooks* shows who added it, when and why."
        ),
        by_itself=(
            "Does nothing. The drain begins within a second after the last hook is removed, and its "
            "spec.drainTimeout counts from then."
        ),
        do=_HOOK_DO,
        worry=_HOOK_WORRY,
    ),
    "HeldByOwner": Reason(
        Kind.WAIT,
        "The machine belongs to a control plane, which keeps it until another machine is ready in its place: etcd must "
        "not lose its quorum.",
        see="`hostler describe controlplane --cluster {cluster}` says what its index waits for.",
        by_itself="The control plane makes another machine, and lets this one go once that is ready.",
        do=(
            "Nothing while the control plane gets on: `hostler describe controlplane --cluster {cluster}` says what "
            "its index waits for. `hostler delete machine {pool} --force` waits for no other machine, at the risk of "
            "etcd. If the control plane's workflow is gone, apply its manifest again."
        ),
        worry="After the creation deadline of a machine: then its replacement does not come about.",
    ),
    "Draining": Reason(
        Kind.WAIT,
        "The Node's pods are being evicted, as far as their disruption budgets allow.",
        see=(
            "`hostler describe {machine}`: *Seen last* says `3 of 7 pods gone; default/web-1 blocked by PDB web (0 "
            "disruptions allowed), force at 14:05`."
        ),
        by_itself=(
            "Makes one pass every 5 s: it evicts pods and waits for volumes to detach. At the deadline "
            "(spec.drainTimeout, 2 h by default) the remaining pods are deleted without a grace period."
        ),
        do=(
            "Nothing: pods that are still there at the deadline are deleted. If {seen} names a pod and a budget in "
            "the way, make the budget allow more disruptions, or do not wait: `hostler delete {machine} --force`."
        ),
        worry=("When the budget allows 0 disruptions and its pods are not Ready: that does not change on its own."),
    ),
    "DrainBlocked": Reason(
        Kind.HAPPENING,
        "Pods that the drain could not evict, or that did not end, for longer than one pass; the message names them, "
        "and the disruption budget.",
        by_itself="It stands in the journal when it changes, five times a drain at most; the drain goes on trying.",
        do=(
            "Nothing, if the drain is over. While it waits: make the budget allow more disruptions, or do not wait: "
            "`hostler delete {machine} --force`."
        ),
    ),
    "DrainForced": Reason(
        Kind.HAPPENING,
        "The drain deadline has passed, or force was requested: the remaining pods are deleted without a grace period.",
        do=(
            "`hostler events {machine}` says what was not waited for. If it happens often, check the disruption "
            "budgets or raise spec.drainTimeout."
        ),
        warning=True,
    ),
    "DrainFailed": Reason(
        Kind.HAPPENING,
        "The forced drain failed, and the deletion continues without it: the drain deadline has passed, or "
        "force was requested.",
        do=(
            "Correct what the message names (permissions, an admission webhook): otherwise it affects the next "
            "machine too."
        ),
        warning=True,
    ),
    "Drained": Reason(
        Kind.HAPPENING,
        "The Node's pods are gone, and their volumes are detached.",
    ),
    "PreTerminateHook": Reason(
        Kind.WAIT,
        "A preTerminate hook holds up the deletion of the VM until the hook is removed; the drain is done.",
        see=(
            "`hostler describe {machine}`: *Waiting for* shows each hook, its owner and the command that removes "
            "it; *Hooks* shows who added it, when and why."
        ),
        by_itself=(
            "Does nothing. The VM's deletion begins within a second after the last hook is removed; until then the "
            "VM runs and costs money."
        ),
        do=_HOOK_DO,
        worry=_HOOK_WORRY,
    ),
    "FindingVM": Reason(
        Kind.WAIT,
        "The machine is being deleted and has no VM on record; the cloud is asked whether there is one with its tags.",
        see="`hostler describe {machine}`.",
        by_itself=(
            "Looks once; after an error, the wait before the next look depends on the kind of error. A VM that it "
            "finds is drained and deleted like any other."
        ),
        do=("Nothing: it takes seconds. After 6 minutes check whether a worker polls the cloud's queue: {doctor}."),
        worry="After 6 minutes.",
    ),
    "DeletingVM": Reason(
        Kind.WAIT,
        "The VM, its disks and its NICs are being deleted, until the cloud confirms that they are gone.",
        see="`hostler describe {machine}`: *Seen last* says what is left.",
        by_itself=(
            "Makes one pass every 5 s, without end. The VM is gone when the cloud says that it is terminated, or "
            "when two looks more than a minute apart find nothing by id and by tag."
        ),
        do="Nothing: it takes minutes. After 15 minutes find out what is left: {seen} names it.",
        worry="After 15 minutes, or when the message names a protection; until then it only costs money.",
    ),
    "VMDeleted": Reason(
        Kind.HAPPENING,
        "The cloud has confirmed that the VM, its disks and its NICs are gone, except those that the spec keeps.",
    ),
    "Forgetting": Reason(
        Kind.WAIT,
        "The VM is gone; its Node object and its bootstrap tokens are being removed.",
        see="`hostler describe {machine}`: *Pending activities*.",
        by_itself=(
            "Removes the Nodes (only those of the machine's own VMs), their VolumeAttachments and the tokens, and "
            "retries without end."
        ),
        do=(
            "Nothing: it takes seconds. After 6 minutes check whether a worker polls the cluster's queue: "
            "{doctor}. If the cluster will never answer again: `hostler delete {machine} --force --abandon-node`."
        ),
        worry="After 6 minutes: the Node has a finalizer, or the API server has a problem.",
    ),
    "NodeLeft": Reason(
        Kind.HAPPENING,
        "A Node that may have belonged to the machine is left in the cluster: it has the machine's name or "
        "label, but either no providerID, or that of a VM which is not known to have been the machine's.",
        do=(
            "The cloud-controller-manager removes it when it finds no VM for it. Without a "
            "cloud-controller-manager, check whether the Node has a VM: if not, delete it with `kubectl delete "
            "node`; if it has one, its label is wrong."
        ),
        warning=True,
    ),
    "NodeAbandoned": Reason(
        Kind.HAPPENING,
        "The cluster did not answer, and an operator has allowed the machine to end without it "
        "(--abandon-node): the VM is gone, and what the message names is left in the cluster.",
        do=(
            "If the cluster comes back: its cloud-controller-manager removes a Node without a VM. Without a "
            "cloud-controller-manager, delete the Node with `kubectl delete node`."
        ),
        warning=True,
    ),
    "Gone": Reason(
        Kind.HAPPENING,
        "Nothing is left of the machine except what its spec says to keep.",
    ),
    "Recreated": Reason(
        Kind.HAPPENING,
        "The old machine is gone, and a new one of the same name begins, with a new uid and a new VM.",
    ),
}
