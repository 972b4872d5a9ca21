"""What can happen in any phase, at a cluster, or in the story that Temporal's histories tell."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

RESET = 'temporal workflow reset -w ID --type LastWorkflowTask --reapply-exclude Signal --reason "a signal fails it"'
"""The command that leaves out a message which fails its workflow, whatever worker runs."""
LEFT_OUT = f"""\
`hostler doctor` names the workflows that fail like this. What arrives is checked before it is taken (Refused), so a \
message should never be to blame. If one is all the same, with every worker:

1. Leave it out, where ID is the workflow's id, such as `machine/{{cluster}}/{{name}}`: `{RESET}`. The workflow goes \
on from its last task that succeeded, without any signal that came after it; then `hostler renew {{machine}}`. Send \
again those signals that you still want. What the watches tell, they tell again at the next change.
2. If that fails too, end the workflow and begin again: `temporal workflow terminate -w ID`. Then for a machine \
`hostler adopt {{machine}}`, which finds its VM by the owner tags; for a pool or a class `hostler apply -f FILE \
--cluster {{cluster}}`, which finds its machines again; for a cluster the same with any manifest of the cluster.

Do not reset without `--reapply-exclude Signal`: the message would be sent again."""

ANY_TIME: dict[str, Reason] = {
    "APIUnreachable": Reason(
        Kind.CONDITION,
        "The cluster's API server cannot be reached, so nothing is known of the Node.",
        see="`hostler describe cluster {cluster}`; `hostler doctor`; `kubectl get --raw /readyz`.",
        by_itself=(
            "It is noticed within 30 s, also when the server is frozen with its connections open: beside the watch, "
            "`/livez` is read every 10 s, and two reads without an answer decide. The outage counts from the last "
            "answer. The watch tries again after 0 to 15 s, without end. No machine becomes Unknown or Failed because "
            "of it; deadlines that pass meanwhile are confirmed by fresh looks afterwards."
        ),
        do="Make it answer again; `hostler doctor` says what fails. Nothing is decided against a machine meanwhile.",
        worry="At once: pods are not moved and Nodes not repaired while it lasts.",
        warning=True,
    ),
    "APIRefused": Reason(
        Kind.CONDITION,
        (
            "The cluster's API server answers, and does not accept the worker's credentials, so nothing is known of "
            "the Node."
        ),
        see="`hostler describe cluster {cluster}`; `hostler doctor`, with the settings of the worker.",
        by_itself=(
            "Token files, certificates and the kubeconfig are read again every minute and after each 401; a plugin "
            "(`exec`) runs again when its answer expires and after a 401. Then the watch goes on where it was. A "
            "watch that is open goes on until it ends, at most 5 minutes; only then is nothing known. Nothing is "
            "decided against a machine meanwhile."
        ),
        do=(
            "Correct what the message names: the kubeconfig of `clusters` in the worker's settings, its token file, "
            "its plugin, or the rights of its user. It is read again within 15 s."
        ),
        worry="At once, as for an API server that cannot be reached.",
        warning=True,
    ),
    "NodeUnwritable": Reason(
        Kind.CONDITION,
        "The API server refuses what Hostler writes on the machine's Node (its name, as a label), again and again.",
        see=(
            "`hostler describe {machine}`: *Conditions*, with the API server's words; `kubectl label node NODE x=y "
            "--dry-run=server` says the same."
        ),
        by_itself=(
            "Tries again, first after 2 s, then less and less often, in the end every 5 minutes. The machine is told "
            "of its Node all the same, and so are all others."
        ),
        do=(
            "Correct what the message names, usually an admission webhook. It is tried again, and what is seen of the "
            "Node counts meanwhile."
        ),
        worry="When many machines have it: then the template, the taints and the drain of new Nodes fail as well.",
        warning=True,
    ),
    "InternalError": Reason(
        Kind.WAIT,
        "An error in Hostler's own code: the workflow stands still, owns what it owned, and can be read and deleted.",
        see=(
            "`hostler describe {machine}`: *Stands still*; the stack trace is in the worker's log, with the "
            "workflow's id."
        ),
        by_itself="Waits for a renewal or a deletion, and touches nothing.",
        do=(
            "Report the message. With a fixed worker: `hostler renew {machine}` (for a cluster: `hostler renew "
            "cluster {cluster}`; for a class: renew class); it tries again where it stopped."
        ),
        worry="When many machines have it after a deployment: roll the worker back.",
        warning=True,
    ),
    "CancelIgnored": Reason(
        Kind.CONDITION,
        "Somebody cancelled the workflow, which has no effect here.",
        see="`hostler describe {machine}`: *Conditions*; the history in the web UI says who.",
        by_itself="Goes on as if nothing had happened.",
        do="To end it: `hostler delete {machine}`. Otherwise nothing.",
        worry="Never; tell the person that a deletion is an intent, not a cancellation.",
        warning=True,
    ),
    "HookPresent": Reason(
        Kind.CONDITION,
        (
            "Hooks will hold the machine's drain (Drainable) or the deletion of its VM (Terminable) when it comes to "
            "that."
        ),
        see="`hostler describe {machine}`: *Conditions*, *Hooks*.",
        by_itself="Goes with the last hook of the kind.",
        do="Nothing: who put them there removes them. `hostler hook list {pool}` shows them.",
        worry="Never, as long as the machine is to stay.",
    ),
    "HookAdded": Reason(
        Kind.HAPPENING,
        "Somebody added a hook.",
    ),
    "HookRemoved": Reason(
        Kind.HAPPENING,
        "Somebody removed a hook, which no longer holds anything.",
    ),
    "Refused": Reason(
        Kind.HAPPENING,
        "A signal (an intent, or any other message) or a change of the class was refused; the message says why.",
        do="Correct it and send it again. With a worker there, the command line refuses at once.",
        warning=True,
    ),
    "Adopted": Reason(
        Kind.HAPPENING,
        "A VM that was found by its owner tags is this machine's again.",
        do="Nothing: it goes on to join, and is Running when its Node is Ready.",
    ),
}

CLUSTER: dict[str, Reason] = {
    "APIReachable": Reason(
        Kind.HAPPENING,
        "The API server answers again.",
    ),
    "CloudUnreachable": Reason(
        Kind.HAPPENING,
        "The VMs of a cloud account cannot be listed, so a VM that goes away is not noticed there, and pools wait.",
        do=(
            "Correct what the message names: credentials, rights, network. It is tried again every minute: `hostler "
            "describe cluster {cluster}`. Only pools whose class has this account wait for it; an account that no "
            "class has any more is forgotten."
        ),
        warning=True,
    ),
    "CloudReachable": Reason(
        Kind.HAPPENING,
        "The VMs of a cloud account can be listed again.",
    ),
    "WatchFailed": Reason(
        Kind.HAPPENING,
        "A watch of nodes or of a cloud account ended with an error, or cannot begin.",
        do=(
            "Nothing: the watch of nodes begins again after 30 s, an account's after a minute. If it comes again: "
            "`hostler doctor`. If a class does not say where its VMs are, correct the field that the message names."
        ),
        warning=True,
    ),
    "Paused": Reason(
        Kind.HAPPENING,
        "A person has paused the cluster: its pools make, delete and replace no machines.",
        do="`hostler resume cluster {cluster}` when the reason for the pause is over.",
        warning=True,
    ),
    "Resumed": Reason(
        Kind.HAPPENING,
        "A person has ended the pause: the pools go on.",
    ),
    "BackAgain": Reason(
        Kind.HAPPENING,
        (
            "Somebody terminated the cluster's workflow, so nobody watched its Nodes and VMs; it was started again, "
            "with its pause and its pools."
        ),
        see="`hostler describe cluster {cluster}`, also while it is gone: *Ended … from outside*.",
        by_itself=(
            "A worker of the role watch looks for the workflow every minute, for each cluster of its settings; a new "
            "machine, a pool, or `hostler renew cluster {cluster}` may be sooner. Every machine is told again of its "
            "Node and its VM, also if they are gone. The former run's history says whether the cluster is paused (if "
            "there is none left, the message says so); its pools and classes are looked for."
        ),
        do=(
            "Find out who it was: the last event of the former run in Temporal's web UI names them. To end a watch: "
            "`hostler delete cluster {cluster}`."
        ),
        worry="When it comes again: a person or a script ends workflows.",
        warning=True,
    ),
    "AccountForgotten": Reason(
        Kind.HAPPENING,
        "No class has this cloud account any more, so nobody lists it or waits for it.",
    ),
    "NodeUnreadable": Reason(
        Kind.HAPPENING,
        "A Node object does not have the form that the Kubernetes API gives it, so its machine is told nothing of it.",
        do="Look at the Node that the message names (`kubectl get node NODE -o yaml`), and at what writes it.",
        warning=True,
    ),
    "MachineDeaf": Reason(
        Kind.HAPPENING,
        "Temporal takes no more signals for a machine's workflow in its present run.",
        do=(
            "It is told again every minute, and hears it in its next run: renew the machine that the message names, "
            "then look with `hostler describe cluster {cluster}` whether it comes again."
        ),
        warning=True,
    ),
    "PoolDeaf": Reason(
        Kind.HAPPENING,
        "Temporal takes no more signals for a pool's workflow in its present run.",
        do=(
            "It is told again every minute, and hears it in its next run: renew the pool that the message names, then "
            "look with `hostler describe cluster {cluster}` whether it comes again."
        ),
        warning=True,
    ),
    "PoolMissing": Reason(
        Kind.HAPPENING,
        "A pool has no workflow that runs, and did not say that it would end: somebody terminated it.",
        do=(
            "Its machines live on, but nobody replaces them. Apply its manifest again: `hostler apply -f FILE "
            "--cluster {cluster}`; it finds its machines."
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
        "Somebody said that a VM of the machine's name is its own.",
    ),
    "RecreateAsked": Reason(
        Kind.HAPPENING,
        "Somebody asked for a new life under the same name.",
    ),
    "PreserveAsked": Reason(
        Kind.HAPPENING,
        "Somebody asked for the machine to be preserved, or never to be.",
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
        "Somebody asked for the newest code, or for another try.",
    ),
    "Retried": Reason(
        Kind.HAPPENING,
        "A call succeeded after attempts that failed; the message has the last one's error.",
    ),
    "ActivityFailed": Reason(
        Kind.HAPPENING,
        "A call failed with an error that is not simply retried; the machine decided what to do.",
        do="Nothing: `hostler describe {machine}` says what it waits for now.",
        warning=True,
    ),
    "ActivityTimedOut": Reason(
        Kind.HAPPENING,
        "A call had no answer in time, in all its attempts: its workers died or hung.",
        do="Check whether workers are restarted again and again: `hostler doctor`, and their logs.",
        warning=True,
    ),
    "WorkflowTaskFailed": Reason(
        Kind.HAPPENING,
        "The workflow's own code failed in a worker; Temporal retries it without end.",
        do=(
            "Report the message; deploy a fixed worker, or the one before: it goes on where it stopped. If a message "
            "is to blame, leave it out by a reset, as the entry WorkflowTaskFailed of docs/runbook.md says."
        ),
        more=LEFT_OUT,
        warning=True,
    ),
    "CancelRequested": Reason(
        Kind.HAPPENING,
        "Somebody asked for a cancellation of the workflow; it changes nothing.",
        do="To end it: `hostler delete {machine}`. Otherwise nothing.",
    ),
    "ContinuedAsNew": Reason(
        Kind.HAPPENING,
        "The life goes on in a new run, so that its history stays short.",
    ),
    "Terminated": Reason(
        Kind.HAPPENING,
        "Somebody terminated the workflow: what it owned may still exist, and nobody looks after it.",
        do=(
            "`hostler adopt {machine}` takes the VM back; then delete it with `hostler delete {machine}` if it is not "
            "wanted."
        ),
        warning=True,
    ),
    "WorkflowFailed": Reason(
        Kind.HAPPENING,
        "The workflow ended with an error, which only happens to one that owns nothing: it could not begin.",
        do="Correct what the message names and apply it again: `hostler apply -f FILE --cluster {cluster}`.",
        warning=True,
    ),
}
