"""What a machine that is being deleted or recreated waits for."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

_HOOK_DO = (
    "Ask the owner that the message names; when its work is done and the hook is still there, remove it with the "
    "command in the message. `hostler hook list {pool}` shows all. Force does not skip hooks, and no deadline ends the "
    "wait."
)
_HOOK_WORRY = (
    "When it lasts longer than the owner's work usually takes: most often the controller that owns the hook does not "
    "run. [Hooks](hooks.md) says what each kind is for."
)
LEAVING: dict[str, Reason] = {
    "Terminating": Reason(
        Kind.HAPPENING,
        "Somebody asked for the deletion: drain, VM, Node, token.",
        do="Nothing: it cannot be taken back.",
    ),
    "PreDrainHook": Reason(
        Kind.WAIT,
        "A preDrain hook holds the drain of the Node, and all that comes after it, until the hook is removed.",
        see=(
            "`hostler describe {machine}`: *Waiting for* names each hook, its owner and the command that removes it; "
            "*Hooks* who added it, when and why."
        ),
        by_itself=(
            "Does nothing. The drain begins within a second after the last hook is gone, and has its whole "
            "spec.drainTimeout from then on."
        ),
        do=_HOOK_DO,
        worry=_HOOK_WORRY,
    ),
    "Draining": Reason(
        Kind.WAIT,
        "The Node's pods are being evicted, as their disruption budgets allow.",
        see=(
            "`hostler describe {machine}`: *Seen last* says `3 of 7 pods gone; default/web-1 blocked by PDB web (0 "
            "disruptions allowed), force at 14:05`."
        ),
        by_itself=(
            "Makes one pass every 5 s: evicts, and waits for volumes to detach. What is left at the deadline "
            "(spec.drainTimeout, 2 h) is deleted without grace."
        ),
        do=(
            "Nothing: what is not gone by the deadline is deleted. {seen} names the pod and the budget in the way; "
            "raise the budget, or do not wait: `hostler delete {machine} --force`."
        ),
        worry=(
            "When the budget in the way allows 0 disruptions and its pods are not Ready: that does not change on its "
            "own."
        ),
    ),
    "DrainForced": Reason(
        Kind.HAPPENING,
        "The drain deadline has passed, or somebody insists: the pods that are left are deleted without grace.",
        do=(
            "`hostler events {machine}` says what was not waited for. If it comes often, look at the disruption "
            "budgets or raise spec.drainTimeout."
        ),
        warning=True,
    ),
    "DrainFailed": Reason(
        Kind.HAPPENING,
        (
            "The force pass of the drain failed, and the machine goes on without it: its deadline has passed, or "
            "force was asked for."
        ),
        do="Remove what the message names (rights, an admission webhook): the next machine will meet it too.",
        warning=True,
    ),
    "Drained": Reason(
        Kind.HAPPENING,
        "The Node's pods are gone, and their volumes are detached.",
    ),
    "PreTerminateHook": Reason(
        Kind.WAIT,
        "A preTerminate hook holds the deletion of the VM until it is removed; the drain is over.",
        see=(
            "`hostler describe {machine}`: *Waiting for* names each hook, its owner and the command that removes it; "
            "*Hooks* who added it, when and why."
        ),
        by_itself=(
            "Does nothing. The VM's deletion begins within a second after the last hook is gone; until then the VM "
            "runs and costs money."
        ),
        do=_HOOK_DO,
        worry=_HOOK_WORRY,
    ),
    "FindingVM": Reason(
        Kind.WAIT,
        "The machine is being deleted and knows no VM; the cloud is asked whether one carries its tags all the same.",
        see="`hostler describe {machine}`.",
        by_itself="Looks once, and again by error class. A VM that is found is drained and deleted like any other.",
        do=(
            "Nothing: it takes seconds. After 6 minutes check whether a worker polls the cloud's queue: `hostler "
            "doctor`."
        ),
        worry="After 6 minutes.",
    ),
    "DeletingVM": Reason(
        Kind.WAIT,
        "The VM, its disks and its NICs are being deleted, until the cloud confirms that they are gone.",
        see="`hostler describe {machine}`: *Seen last* says what is still there.",
        by_itself=(
            "Makes one pass every 5 s, without end. Gone means that the cloud says terminated, or finds nothing by id "
            "and by tag twice, more than a minute apart."
        ),
        do="Nothing: it takes minutes. After 15 minutes find out what is still there: {seen} names it.",
        worry="After 15 minutes, or when the message names a protection: it costs money, no more.",
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
            "Removes the Nodes (only those of its own VMs), their VolumeAttachments and the tokens, and tries without "
            "end."
        ),
        do=(
            "Nothing: it takes seconds. After 6 minutes check whether a worker polls the cluster's queue: `hostler "
            "doctor`. If the cluster never answers again: `hostler delete {machine} --force --abandon-node`."
        ),
        worry="After 6 minutes: a finalizer on the Node, or the API server.",
    ),
    "NodeLeft": Reason(
        Kind.HAPPENING,
        (
            "A Node stays that may have been the machine's: it has its name or its label, and either no providerID, "
            "so nobody can say whose it is, or that of a VM which is not known to have been the machine's."
        ),
        do=(
            "The cloud-controller-manager removes it when it finds no VM for it. Where there is none, check whether a "
            "VM stands behind it: if not, delete it with `kubectl delete node`; if so, its label is wrong."
        ),
        warning=True,
    ),
    "NodeAbandoned": Reason(
        Kind.HAPPENING,
        (
            "The cluster did not answer, and an operator has said (--abandon-node) that the machine ends without it: "
            "its VM is gone, and what the message names stays in the cluster."
        ),
        do=(
            "If the cluster comes back: its cloud-controller-manager removes a Node without a VM. Where there is "
            "none, delete it with `kubectl delete node`."
        ),
        warning=True,
    ),
    "Gone": Reason(
        Kind.HAPPENING,
        "Nothing is left of the machine except what its spec says to keep.",
    ),
    "Recreated": Reason(
        Kind.HAPPENING,
        "The former life has ended and a new one begins, with a new uid and a new VM.",
    ),
}
