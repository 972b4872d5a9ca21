"""What can happen in any phase, at a cluster, or in the story that Temporal's histories tell."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

RESET = 'temporal workflow reset -w ID --type LastWorkflowTask --reapply-exclude Signal --reason "a signal fails it"'
"""The command that leaves out a message which fails its workflow, whatever worker runs."""
LEFT_OUT = f"""\
`hostler doctor` names the workflows that fail like this. Messages are checked before they are accepted (Refused), so \
a message should never be the cause. If one is, with every version of the worker:

1. Skip the message, where ID is the workflow's id, such as `machine/{{cluster}}/{{name}}`: `{RESET}`. The workflow \
continues from its last successful task, without any signal that came after it; then `hostler renew {{machine}}`. \
Send the signals that you still want again. The watches repeat theirs at the next change.
2. If that fails too, end the workflow and start over: `temporal workflow terminate -w ID`. Then for a machine \
`hostler adopt {{machine}}`, which finds its VM by the owner tags; for a pool or a class `hostler apply -f FILE \
--cluster {{cluster}}`, which finds its machines again; for a cluster the same with any manifest of the cluster.

Do not reset without `--reapply-exclude Signal`: the message would be applied again."""

ANY_TIME: dict[str, Reason] = {
    "APIUnreachable": Reason(
        Kind.WAIT | Kind.CONDITION,
        "The cluster's API server cannot be reached, so nothing is known of the Node.",
        see="`hostler describe cluster {cluster}`; `hostler doctor`; `kubectl get --raw /readyz`.",
        by_itself=(
            "Hostler notices it within 30 s, even when the server hangs with its connections open: besides the "
            "watch, `/livez` is read every 10 s, and two reads without an answer decide. The outage counts from the "
            "last answer. The watch tries again after 0 to 15 s, without end. No machine becomes Unknown or Failed "
            "because of it; deadlines that pass in the meantime are confirmed by fresh looks afterwards, and creation "
            "deadlines stand still."
        ),
        do=(
            "Restore access to it; {doctor} says what fails. In the meantime no machine is failed or "
            "replaced because of it."
        ),
        worry="Immediately: while it lasts, no pods are moved and no Nodes are repaired.",
        warning=True,
    ),
    "APIRefused": Reason(
        Kind.WAIT | Kind.CONDITION,
        "The cluster's API server answers, but does not accept the worker's credentials, so nothing is known of "
        "the Node.",
        see="`hostler describe cluster {cluster}`; `hostler doctor`, with the settings of the worker.",
        by_itself=(
            "Token files, certificates and the kubeconfig are read again every minute and after each 401; a plugin "
            "(`exec`) runs again when its answer expires and after a 401. Then the watch continues where it was. An "
            "open watch continues until it ends, for at most 5 minutes; only then is nothing known. In the meantime "
            "no machine is failed or replaced because of it."
        ),
        do=(
            "Correct what the message names: the kubeconfig of `clusters` in the worker's settings, its token file, "
            "its plugin, or its user's permissions. It is read again on its own."
        ),
        worry="Immediately, as for an API server that cannot be reached.",
        warning=True,
    ),
    "NodeUnwritable": Reason(
        Kind.CONDITION,
        "The API server keeps refusing what Hostler writes to the machine's Node (the machine's name, as a label).",
        see=(
            "`hostler describe {machine}`: *Conditions*, with the API server's message; `kubectl label node NODE "
            "x=y --dry-run=server` says the same."
        ),
        by_itself=(
            "Tries again, first after 2 s, then less and less often, up to every 5 minutes. The machine still gets "
            "news of its Node, and so do all others."
        ),
        do=(
            "Correct what the message names, usually an admission webhook. It is tried again, and in the meantime "
            "the Node's state still counts."
        ),
        worry="When it affects many machines: then template, taints and drains of Nodes fail as well.",
        warning=True,
    ),
    "InternalError": Reason(
        Kind.WAIT,
        "Hostler's own code has failed: the workflow is parked, still owns its resources, and can be read and deleted.",
        see=("`hostler describe {machine}`: *Parked*; the stack trace is in the worker's log, with the workflow's id."),
        by_itself="Waits for a renewal or a deletion, and touches nothing.",
        do=(
            "Report the message. With a fixed worker: `hostler renew {machine}` (for a cluster: `hostler renew "
            "cluster {cluster}`; for a class: renew class); it resumes where it stopped."
        ),
        worry="When it affects many machines after a deployment: roll the worker back.",
        warning=True,
    ),
    "CancelIgnored": Reason(
        Kind.CONDITION,
        "Somebody cancelled the workflow, which has no effect on it.",
        see="`hostler describe {machine}`: *Conditions*; the history in the web UI shows who.",
        by_itself="Continues as if nothing had happened.",
        do="To end it: `hostler delete {machine}`. Otherwise nothing.",
        worry="Never; tell whoever did it to use `hostler delete` instead of a cancellation.",
        warning=True,
    ),
    "HookPresent": Reason(
        Kind.CONDITION,
        "Hooks will hold up the machine's drain (Drainable) or the deletion of its VM (Terminable) once the "
        "machine is deleted.",
        see="`hostler describe {machine}`: *Conditions*, *Hooks*.",
        by_itself="The condition goes away with the last hook of its kind.",
        do="Nothing: their owners remove them. `hostler hook list {pool}` lists them.",
        worry="Never, as long as the machine is meant to stay.",
    ),
    "HookAdded": Reason(
        Kind.HAPPENING,
        "Somebody added a hook.",
    ),
    "HookRemoved": Reason(
        Kind.HAPPENING,
        "Somebody removed a hook, which no longer holds anything up.",
    ),
    "Refused": Reason(
        Kind.HAPPENING,
        "A signal (a request or any other) or a change of the class was refused; the message says why.",
        do=(
            "Correct the request and send it again. While a worker is running, the command line reports a refusal at "
            "once."
        ),
        warning=True,
    ),
    "Adopted": Reason(
        Kind.HAPPENING,
        "The machine has taken over its VM again, which was found by its owner tags.",
        do="Nothing: the machine waits for its Node, and is Running when the Node is Ready.",
    ),
}

CLUSTER: dict[str, Reason] = {
    "APIReachable": Reason(
        Kind.HAPPENING,
        "The API server answers again.",
    ),
    "CloudUnreachable": Reason(
        Kind.HAPPENING,
        "The VMs of a cloud account cannot be listed, so Hostler does not notice when a VM disappears there, and "
        "pools wait.",
        do=(
            "Correct what the message names: credentials, permissions, network. It is tried again every minute. Only "
            "pools whose class uses this account wait for it; an account that no class uses any longer is forgotten."
        ),
        warning=True,
    ),
    "CloudReachable": Reason(
        Kind.HAPPENING,
        "The VMs of a cloud account can be listed again.",
    ),
    "WatchFailed": Reason(
        Kind.HAPPENING,
        "The watch of the nodes or of a cloud account ended with an error, or cannot start.",
        do=(
            "Nothing: the watch of the nodes is restarted after 30 s, an account's after a minute. If it happens "
            "again: {doctor}. If a class does not say where its VMs are, correct the field that the message "
            "names."
        ),
        warning=True,
    ),
    "Paused": Reason(
        Kind.HAPPENING,
        "Somebody has paused the cluster: its pools create, delete and replace no machines.",
        do="`hostler resume cluster {cluster}` when the reason for the pause is over.",
        warning=True,
    ),
    "Resumed": Reason(
        Kind.HAPPENING,
        "Somebody has resumed the cluster: its pools continue.",
    ),
    "FreezeBegan": Reason(
        Kind.HAPPENING,
        "Somebody has frozen the cluster: its pools begin no rollout and no hot update.",
        do="`hostler unfreeze cluster {cluster}` when the reason for it is over.",
    ),
    "FreezeEnded": Reason(
        Kind.HAPPENING,
        "The cluster is no longer frozen: its pools continue.",
    ),
    "BackAgain": Reason(
        Kind.HAPPENING,
        "Somebody terminated the cluster's workflow, so its Nodes and VMs were not watched; it was started "
        "again, with its pause and its pools.",
        see="`hostler describe cluster {cluster}`, also while it is gone: *Ended … by somebody*.",
        by_itself=(
            "A worker with the role watch looks for the workflow every minute, for each cluster in its settings; a "
            "new machine, a pool, or `hostler renew cluster {cluster}` may restart it sooner. Every machine gets "
            "the current state of its Node and its VM, also when they are gone. The earlier run's history says "
            "whether the cluster is paused (if that history is lost, the message says so); its pools and classes "
            "are searched for."
        ),
        do=(
            "Find out who did it: the last event of the earlier run in Temporal's web UI names them. To stop "
            "watching a cluster: `hostler delete cluster {cluster}`."
        ),
        worry="When it happens again: a person or a script keeps terminating workflows.",
        warning=True,
    ),
    "AccountForgotten": Reason(
        Kind.HAPPENING,
        "No class uses this cloud account any longer, so it is no longer listed or waited for.",
    ),
    "NodeUnreadable": Reason(
        Kind.HAPPENING,
        "A Node object is malformed, so its machine gets no news of it.",
        do="Inspect the Node that the message names (`kubectl get node NODE -o yaml`), and find out what writes to it.",
        warning=True,
    ),
    "MachineDeaf": Reason(
        Kind.HAPPENING,
        "Temporal accepts no more signals for a machine's workflow in its current run.",
        do=(
            "The signal is sent again every minute, and arrives in the workflow's next run: renew the machine that "
            "the message names, then check with `hostler describe cluster {cluster}` whether it happens again."
        ),
        warning=True,
    ),
    "PoolDeaf": Reason(
        Kind.HAPPENING,
        "Temporal accepts no more signals for a pool's workflow in its current run.",
        do=(
            "The signal is sent again every minute, and arrives in the workflow's next run: renew the pool that the "
            "message names, then check with `hostler describe cluster {cluster}` whether it happens again."
        ),
        warning=True,
    ),
    "PoolMissing": Reason(
        Kind.HAPPENING,
        "A pool's workflow is not running, although the pool was not deleted: somebody terminated it.",
        do=(
            "Its machines keep running, but are not replaced when they fail. Apply the pool's manifest again: "
            "`hostler apply -f FILE --cluster {cluster}`; the pool finds its machines."
        ),
        warning=True,
    ),
}

STORY: dict[str, Reason] = {
    "Started": Reason(
        Kind.HAPPENING,
        "The machine's workflow was started.",
    ),
    "ApplyAsked": Reason(
        Kind.HAPPENING,
        "Somebody applied the machine or its class.",
    ),
    "DeleteAsked": Reason(
        Kind.HAPPENING,
        "Somebody asked for the deletion.",
    ),
    "AdoptAsked": Reason(
        Kind.HAPPENING,
        "Somebody confirmed that a VM with the machine's name belongs to it.",
    ),
    "RecreateAsked": Reason(
        Kind.HAPPENING,
        "Somebody asked for the machine to be recreated under the same name.",
    ),
    "PreserveAsked": Reason(
        Kind.HAPPENING,
        "Somebody asked for the machine to be preserved, or never to be preserved.",
    ),
    "ReleaseAsked": Reason(
        Kind.HAPPENING,
        "Somebody asked for a preservation to end.",
    ),
    "ExtendAsked": Reason(
        Kind.HAPPENING,
        "Somebody asked for a preservation to end at another time.",
    ),
    "HookAsked": Reason(
        Kind.HAPPENING,
        "Somebody asked for a hook to be added or removed.",
    ),
    "RenewAsked": Reason(
        Kind.HAPPENING,
        "Somebody asked for a renewal: the newest code, or another try.",
    ),
    "Retried": Reason(
        Kind.HAPPENING,
        "A call succeeded after failed attempts; the message has the last failure.",
    ),
    "ActivityFailed": Reason(
        Kind.HAPPENING,
        "A call failed with an error that is not simply retried; the machine decides what to do.",
        do="Nothing: `hostler describe {machine}` says what it waits for now.",
        warning=True,
    ),
    "ActivityTimedOut": Reason(
        Kind.HAPPENING,
        "A call had no answer in time in any of its attempts: its workers died or hung.",
        do="Check whether workers are restarted again and again: {doctor}, and their logs.",
        warning=True,
    ),
    "WorkflowTaskFailed": Reason(
        Kind.HAPPENING,
        "The workflow's code failed in a worker; Temporal retries it without end.",
        do=(
            "Report the message; deploy a fixed worker, or the previous one: the workflow continues where it "
            "stopped. If a message is the cause, skip it with a reset; docs/runbook.md, WorkflowTaskFailed, says "
            "how."
        ),
        more=LEFT_OUT,
        warning=True,
    ),
    "CancelRequested": Reason(
        Kind.HAPPENING,
        "Somebody cancelled the workflow, which has no effect on it.",
        do="To end it: `hostler delete {machine}`. Otherwise nothing.",
    ),
    "ContinuedAsNew": Reason(
        Kind.HAPPENING,
        "The workflow continued as a new run, so that its history stays short.",
    ),
    "Terminated": Reason(
        Kind.HAPPENING,
        "Somebody terminated the workflow: its resources may still exist, and nothing manages them.",
        do=(
            "`hostler adopt {machine}` takes the VM back; then delete it with `hostler delete {machine}` if it is not "
            "wanted."
        ),
        warning=True,
    ),
    "WorkflowFailed": Reason(
        Kind.HAPPENING,
        "The workflow could not begin and ended with an error; it owned nothing.",
        do="Correct what the message names and apply it again: `hostler apply -f FILE --cluster {cluster}`.",
        warning=True,
    ),
}
