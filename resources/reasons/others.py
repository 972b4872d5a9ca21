"""What can be so in any phase, at a cluster, or in the story that Temporal's histories tell."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

ANY_TIME: dict[str, Reason] = {
    "APIUnreachable": Reason(
        Kind.CONDITION,
        "The cluster's API server cannot be reached, so nothing is known of the Node.",
        "Make it answer again; `hostler doctor` says what fails. Nothing is decided against a machine meanwhile.",
        warning=True,
    ),
    "APIRefused": Reason(
        Kind.CONDITION,
        "The cluster's API server answers, and does not accept the worker's credentials, so nothing is known of the "
        "Node.",
        "Correct what the message names: the kubeconfig of `clusters` in the worker's settings, its token file, its "
        "plugin, or the rights of its user. It is read again by itself, within 15 s.",
        warning=True,
    ),
    "NodeUnwritable": Reason(
        Kind.CONDITION,
        "The API server refuses what Hostler writes on the machine's Node (its name, as a label), again and again.",
        "Correct what the message names: an admission webhook, as a rule. It is tried again, and what is seen of the "
        "Node counts meanwhile.",
        warning=True,
    ),
    "InternalError": Reason(
        Kind.WAIT,
        "An error in Hostler's own code: the workflow stands still, owns what it owned, and can be read and deleted.",
        "Report the message. With a fixed worker: `hostler renew {machine}` (of a cluster: `hostler renew cluster "
        "{cluster}`; of a class: renew class); it tries again where it stopped.",
        warning=True,
    ),
    "CancelIgnored": Reason(
        Kind.CONDITION,
        "Somebody cancelled the workflow, which means nothing here.",
        "To end it: `hostler delete {machine}`. Else nothing.",
        warning=True,
    ),
    "HookPresent": Reason(
        Kind.CONDITION,
        "Hooks will hold the machine's drain (Drainable) or the deletion of its VM (Terminable) when it comes to that.",
        "Nothing: who put them there removes them. `hostler hook list {pool}` shows them.",
    ),
    "HookAdded": Reason(Kind.HAPPENING, "Somebody added a hook.", "Nothing."),
    "HookRemoved": Reason(Kind.HAPPENING, "Somebody removed a hook, and it holds nothing any more.", "Nothing."),
    "Refused": Reason(
        Kind.HAPPENING,
        "A signal (an intent, or any other message), or a change of the class, was refused; the message says why.",
        "Correct it and send it again. With a worker there, the command line refuses at once.",
        warning=True,
    ),
    "Adopted": Reason(
        Kind.HAPPENING,
        "A VM that was found by its owner tags is this machine's again.",
        "Nothing: it goes on to join, and is Running when its Node is Ready.",
    ),
}
"""In every phase; some of them also in a cluster's journal."""

CLUSTER: dict[str, Reason] = {
    "APIReachable": Reason(
        Kind.HAPPENING,
        "The API server answers again.",
        "Nothing.",
    ),
    "CloudUnreachable": Reason(
        Kind.HAPPENING,
        "The VMs of a cloud account cannot be listed, so a VM that goes away is not noticed there, and pools wait.",
        "Correct what the message names: credentials, rights, network. It is tried again every minute: `hostler "
        "describe cluster {cluster}`. Only pools whose class has this account wait for it; an account that no class "
        "has any more is forgotten by itself.",
        warning=True,
    ),
    "CloudReachable": Reason(
        Kind.HAPPENING,
        "The VMs of a cloud account can be listed again.",
        "Nothing.",
    ),
    "WatchFailed": Reason(
        Kind.HAPPENING,
        "A watch of nodes or of a cloud account ended with an error, or cannot begin.",
        "Nothing: the watch of nodes begins again after 30 s, an account's after a minute. If it comes again: `hostler "
        "doctor`. Where a class does not say where its VMs are: correct the field that the message names.",
        warning=True,
    ),
    "Paused": Reason(
        Kind.HAPPENING,
        "A person has paused the cluster: its pools make, delete and replace no machines.",
        "`hostler resume cluster {cluster}`, when what it was paused for is over.",
        warning=True,
    ),
    "Resumed": Reason(
        Kind.HAPPENING,
        "A person has ended the pause: the pools go on.",
        "Nothing.",
    ),
    "BackAgain": Reason(
        Kind.HAPPENING,
        "Somebody has terminated the cluster's workflow, so that nobody watched its Nodes and VMs, and it was begun "
        "again, with its pause and its pools.",
        "Find out who it was: the last event of the former run in Temporal's web UI names them. To end a watch: "
        "`hostler delete cluster {cluster}`.",
        warning=True,
    ),
    "AccountForgotten": Reason(
        Kind.HAPPENING,
        "No class has this cloud account any more, so nobody lists it and nobody waits for it.",
        "Nothing.",
    ),
    "NodeUnreadable": Reason(
        Kind.HAPPENING,
        "A Node object is not as the Kubernetes API has them, so its machine is told nothing of it.",
        "Look at the Node that the message names (`kubectl get node NODE -o yaml`), and at what writes it.",
        warning=True,
    ),
    "MachineDeaf": Reason(
        Kind.HAPPENING,
        "Temporal takes no more signals for a machine's workflow in its present run.",
        "It is told again every minute, and hears it in its next run: renew the machine that the message names, then "
        "look with `hostler describe cluster {cluster}` whether it comes again.",
        warning=True,
    ),
    "PoolDeaf": Reason(
        Kind.HAPPENING,
        "Temporal takes no more signals for a pool's workflow in its present run.",
        "It is told again every minute, and hears it in its next run: renew the pool that the message names, then look "
        "with `hostler describe cluster {cluster}` whether it comes again.",
        warning=True,
    ),
    "PoolMissing": Reason(
        Kind.HAPPENING,
        "A pool has no workflow that runs, and did not say that it ends: somebody terminated it.",
        "Its machines live on, but nobody replaces them. Apply its manifest again: `hostler apply -f FILE --cluster "
        "{cluster}`; it finds its machines.",
        warning=True,
    ),
}
"""In the journal of a cluster: `hostler describe cluster NAME`."""

STORY: dict[str, Reason] = {
    "Started": Reason(Kind.HAPPENING, "The machine's workflow was started.", "Nothing."),
    "ApplyAsked": Reason(Kind.HAPPENING, "Somebody applied the machine or its class.", "Nothing."),
    "DeleteAsked": Reason(Kind.HAPPENING, "Somebody asked for the deletion.", "Nothing."),
    "AdoptAsked": Reason(Kind.HAPPENING, "Somebody said that a VM of the machine's name is its own.", "Nothing."),
    "RecreateAsked": Reason(Kind.HAPPENING, "Somebody asked for a new life under the same name.", "Nothing."),
    "PreserveAsked": Reason(Kind.HAPPENING, "Somebody asked that the machine is preserved, or never is.", "Nothing."),
    "ReleaseAsked": Reason(Kind.HAPPENING, "Somebody asked that a preservation ends.", "Nothing."),
    "ExtendAsked": Reason(Kind.HAPPENING, "Somebody asked that a preservation ends at another time.", "Nothing."),
    "HookAsked": Reason(Kind.HAPPENING, "Somebody asked for a hook to be added or removed.", "Nothing."),
    "RenewAsked": Reason(Kind.HAPPENING, "Somebody asked for the newest code, or for another try.", "Nothing."),
    "Retried": Reason(
        Kind.HAPPENING,
        "A call succeeded after attempts that failed; the message has the last one's error.",
        "Nothing.",
    ),
    "ActivityFailed": Reason(
        Kind.HAPPENING,
        "A call failed with an error that is not simply tried again; the machine decided what to do.",
        "Nothing: what it waits for now says `hostler describe {machine}`.",
        warning=True,
    ),
    "ActivityTimedOut": Reason(
        Kind.HAPPENING,
        "A call had no answer in time, in all its attempts: its workers died or hung.",
        "See whether workers are restarted again and again: `hostler doctor`, and their logs.",
        warning=True,
    ),
    "WorkflowTaskFailed": Reason(
        Kind.HAPPENING,
        "The workflow's own code failed in a worker; Temporal tries it again for ever.",
        "Report the message; deploy a fixed worker, or the one before: it goes on where it stopped. Where a message is "
        "to blame, leave it out by a reset, as the entry WorkflowTaskFailed of docs/runbook.md says.",
        warning=True,
    ),
    "CancelRequested": Reason(
        Kind.HAPPENING,
        "A cancellation of the workflow was asked for; it changes nothing.",
        "To end it: `hostler delete {machine}`. Else nothing.",
    ),
    "ContinuedAsNew": Reason(
        Kind.HAPPENING, "The life goes on in a new run, so that its history stays short.", "Nothing."
    ),
    "Terminated": Reason(
        Kind.HAPPENING,
        "Somebody terminated the workflow: what it owned may still exist, and nobody looks after it.",
        "`hostler adopt {machine}` takes the VM back; then delete it with `hostler delete {machine}` if it is not "
        "wanted.",
        warning=True,
    ),
    "WorkflowFailed": Reason(
        Kind.HAPPENING,
        "The workflow ended with an error, as only one does that owns nothing: it could not begin.",
        "Correct what the message names and apply it again: `hostler apply -f FILE --cluster {cluster}`.",
        warning=True,
    ),
}
"""What only `hostler events` tells, from Temporal's histories."""
