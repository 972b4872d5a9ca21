"""What config pools and their cluster's machine configs wait for, and what they do."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

_POOL = "`kubectl get machineconfigpool {name} -o yaml`; {look}."
_NODES = "See {look}: each node that is under way, and its reason. The journal of its daemon has more."
_RENDER = (
    "`kubectl get machineconfigpools,machineconfigs,kubeletconfigs`; the conditions of the object have the message."
)
_AGAIN = "Renders again after each change. Until then the pool keeps the config that it has."
_OBJECT = "Correct the object that the message names: `kubectl edit` it. The next pass renders it."
_STANDS = "At once where an update is waited for: its nodes do not get it."

CONFIG_WAITS: dict[str, Reason] = {
    "ConfigPoolPaused": Reason(
        Kind.WAIT,
        "The pool's spec.paused is true, so nothing is rendered for it and no node begins.",
        see=_POOL,
        by_itself="A node that is under way finishes. Nothing else happens until it is resumed.",
        do="When its nodes may change: `hostler rollout resume mcp/{name} --cluster {cluster}`.",
        worry="Never on its own, but certificates that a config renews grow old meanwhile.",
    ),
    "ConfigPoolRefused": Reason(
        Kind.WAIT,
        "The pool selects everything, or by several selectors at once, or is being deleted.",
        see=_POOL,
        by_itself="Touches no node of it.",
        do="{cure}",
        cure="Correct the selectors as the message says: `kubectl edit machineconfigpool {name}`.",
        lasting=True,
        worry="At once: its nodes get no config.",
        warning=True,
    ),
    "NothingRendered": Reason(
        Kind.WAIT,
        "No config has been rendered for the pool, so there is nothing that its nodes could be given.",
        see=_POOL,
        by_itself="Goes on when one is rendered.",
        do="Look at the pool's condition RenderDegraded: `kubectl describe machineconfigpool {name}`.",
        worry="When it lasts for longer than a minute.",
    ),
    "RenderDegraded": Reason(
        Kind.WAIT,
        "The newest MachineConfigs of the pool cannot be rendered, so its nodes get the last one that could.",
        see=_POOL,
        by_itself="Goes on with the last rendered config, and renders again after each change.",
        do="Correct what the message names: `kubectl describe machineconfigpool {name}` has all of it.",
        worry="At once: what was changed last does not reach the nodes.",
        warning=True,
    ),
    "MaxUnavailableInvalid": Reason(
        Kind.WAIT,
        "The pool's spec.maxUnavailable is no number of nodes, so none begins.",
        see=_POOL,
        by_itself="Begins with no node, and finishes with those that are under way.",
        do="{cure}",
        cure="Write a count like 2 or a percentage like 10%: `kubectl edit machineconfigpool {name}`.",
        lasting=True,
        worry=_STANDS,
        warning=True,
    ),
    "NodesUpdating": Reason(
        Kind.WAIT,
        "As many nodes as the pool's maxUnavailable allows are unavailable or under way, so the others wait.",
        see=_NODES,
        by_itself="The next node begins when one of them has finished, or is gone.",
        do=(
            "Nothing while they make progress. A node that is not Ready or cordoned for another reason takes a place "
            "too: bring it back, or `kubectl uncordon` it."
        ),
        worry="When the same node is named for longer than its drain and its restart take.",
    ),
    "ConfigNodesUnfit": Reason(
        Kind.WAIT,
        "Nodes that need the pool's config take no pods now, so they are not given it.",
        see="`kubectl get nodes`; {look}.",
        by_itself="Each begins when it is Ready and not cordoned.",
        do="Bring them back: `kubectl describe node`, and `kubectl uncordon` where somebody has cordoned one.",
        worry="When nobody works on them.",
    ),
    "ConfigNodesDegraded": Reason(
        Kind.WAIT,
        "Daemons report that they cannot apply the config that their nodes are to have.",
        see="`kubectl describe machineconfigpool {name}`; the journal of the daemon on the node.",
        by_itself=(
            "Each of them takes a place of maxUnavailable; others begin while there are places left. A node that has "
            "failed is the first to get another config."
        ),
        do=(
            "Correct what the daemon reports, or change the MachineConfigs back to what they were: "
            "`kubectl get machineconfigs`. The failing nodes then get that first."
        ),
        worry="At once: the config is bad, or the node is.",
        warning=True,
    ),
    "ConfigNodesSilent": Reason(
        Kind.WAIT,
        "No daemon has ever written which config these nodes have, so each takes a place of maxUnavailable.",
        see="`kubectl get pods -A -o wide` shows whether there is a daemon on the node.",
        by_itself="A node counts as any other when its daemon has written the annotation currentConfig.",
        do="Nothing for a node that is about to join. Else let the daemon run there: `kubectl describe node`.",
        worry="When the node joined more than some minutes ago.",
    ),
    "NodesContested": Reason(
        Kind.WAIT,
        "Several custom pools select the same nodes, which therefore belong to none of them and are not updated.",
        see="`kubectl get machineconfigpools -o yaml`; `kubectl get node --show-labels`.",
        by_itself="Updates the other nodes.",
        do="{cure}",
        cure="Take from each node all but one of the labels that select it: `kubectl label node`.",
        lasting=True,
        worry="At once: those nodes get no config from anybody.",
        warning=True,
    ),
    "ControlPlaneBeside": Reason(
        Kind.WAIT,
        "Another pool of the control plane has a node unavailable or goes first, and one updates at a time.",
        see="`kubectl get machineconfigpools`; `kubectl get nodes`.",
        by_itself="Goes on when that pool is done, or its node is back.",
        do="Nothing, unless that node does not come back: `kubectl get nodes`.",
        worry="When nothing moves in the other pool either.",
    ),
    "MachinesAskedFor": Reason(
        Kind.WAIT,
        "The pool has asked the owners of machines to lend them, and has no answer yet.",
        see="See {look}; the owner's page says what it is doing.",
        by_itself="Asks again after 30 s. An owner without a worker answers when one runs.",
        do="Nothing for a minute. Then see whether workers run: {doctor} says who polls `hostler`.",
        worry="After some minutes.",
    ),
    "MachinesNotLent": Reason(
        Kind.WAIT,
        "The owner of the machines does not lend them now, as its own budget is spent or it replaces one.",
        see="See {look}; the owner's page says what it is doing.",
        by_itself="Asks again after 30 s, and begins with nodes of other owners meanwhile.",
        do="Nothing while the owner gets on: `hostler get pools --cluster {cluster}` shows what it waits for.",
        worry="When the owner is stuck: then its own wait is what to end.",
    ),
    "MachinesNotFound": Reason(
        Kind.WAIT,
        "It is not known which machines a pool with a machineSelector or machineSetRef selects.",
        see="See {look}; `hostler get machines --cluster {cluster}`.",
        by_itself="Looks again after 30 s. No node is touched until it is known whose each is.",
        do="Let workers run that answer for machines, or correct the name: `hostler get pools --cluster {cluster}`.",
        worry="After some minutes.",
    ),
    "MachinesLent": Reason(
        Kind.WAIT,
        "Machines are lent to a config pool, which updates their nodes, so their owner replaces nothing.",
        see="See {look}; `hostler get mcp --cluster {cluster}`.",
        by_itself="Goes on when they are given back, or their borrower has been silent for half an hour.",
        do="Nothing while the nodes get on: `hostler get mcp --cluster {cluster}` shows what each waits for.",
        worry="When the config pool is stuck: then its own wait is what to end.",
    ),
    "ConfigRolloutStalled": Reason(
        Kind.WAIT,
        "No node has finished for an hour, although a rollout is going on.",
        see=_NODES,
        by_itself="Goes on as soon as one of the nodes that the message names gets on. Nothing is undone.",
        do=(
            "See what keeps the first of them: a pod that a PodDisruptionBudget holds (`kubectl get pdb -A`), a "
            "daemon that does not answer, or a node that did not come back (`kubectl get nodes`)."
        ),
        worry="At once.",
        warning=True,
    ),
    "ConfigCallFailed": Reason(
        Kind.WAIT,
        "A call for the pool, or for the cluster's machine configs, has failed.",
        see="See {look} for the message; {doctor} says which rights are missing.",
        by_itself="Tries again, sooner for what passes on its own than for what somebody must correct.",
        do="Correct what the message names; for a right that is missing: `kubectl apply -f deploy/rbac`.",
        worry="When the message stays the same.",
    ),
    "SourcesNotComplete": Reason(
        Kind.WAIT,
        "The pool is not rendered, because a ControllerConfig or KubeletConfig is not taken up yet.",
        see=_RENDER,
        by_itself="Renders when it is, so that nodes restart once for all changes.",
        do=f"Nothing for a minute. Then: {_OBJECT}",
        worry="When it lasts for longer than a minute.",
    ),
    "NoMachineConfigs": Reason(
        Kind.WAIT,
        "The pool's machineConfigSelector selects no MachineConfig.",
        see=_RENDER,
        by_itself=_AGAIN,
        do="Label MachineConfigs as the pool selects them: `kubectl label machineconfig`.",
        worry=_STANDS,
        warning=True,
    ),
    "InvalidSelector": Reason(
        Kind.WAIT,
        "The pool's machineConfigSelector cannot be read.",
        see=_RENDER,
        by_itself=_AGAIN,
        do=_OBJECT,
        worry=_STANDS,
        warning=True,
    ),
    "SelectingAll": Reason(
        Kind.WAIT,
        "The pool's machineConfigSelector is empty and would select every MachineConfig.",
        see=_RENDER,
        by_itself=_AGAIN,
        do=_OBJECT,
        worry=_STANDS,
        warning=True,
    ),
    "InvalidMachineConfig": Reason(
        Kind.WAIT,
        "A MachineConfig of the pool is not valid, or cannot be merged with the others.",
        see=_RENDER,
        by_itself=_AGAIN,
        do=_OBJECT,
        worry=_STANDS,
        warning=True,
    ),
    "TooLarge": Reason(
        Kind.WAIT,
        "The rendered config is larger than the API server takes.",
        see=_RENDER,
        by_itself=_AGAIN,
        do="Make its MachineConfigs smaller, or fetch large files on the node: `kubectl get machineconfigs`.",
        worry=_STANDS,
        warning=True,
    ),
    "NameTooLong": Reason(
        Kind.WAIT,
        "The pool's name is too long for the names of its rendered configs.",
        see=_RENDER,
        by_itself="Renders nothing for it.",
        do="Make the pool again with a shorter name: `kubectl get machineconfigpools`.",
        worry="At once.",
    ),
    "OtherVersion": Reason(
        Kind.WAIT,
        "A generated MachineConfig of the pool was made by another version of Hostler.",
        see=_RENDER,
        by_itself="Renders when it has been made again, or is gone.",
        do="Nothing for a minute. Delete it if nobody makes it again: `kubectl delete machineconfig`.",
        worry="When it lasts after all workers have the new version.",
    ),
    "NewerVersion": Reason(
        Kind.WAIT,
        "A newer version of Hostler has made the MachineConfigs, so this worker leaves them alone.",
        see=_RENDER,
        by_itself="Renders nothing; the workers with the newer version do.",
        do="Stop the workers with the older version: {doctor} names them, as does `kubectl get pods -A`.",
        worry="When it lasts after the upgrade.",
    ),
    "Irreconcilable": Reason(
        Kind.WAIT,
        "The new config differs from the one before in something that no daemon can change on a running machine.",
        see=_RENDER,
        by_itself=_AGAIN,
        do="Undo the change that the message names, or make the machines anew: `kubectl get machineconfigs`.",
        worry=_STANDS,
        warning=True,
    ),
    "TemplatesNotRendered": Reason(
        Kind.WAIT,
        "The templates cannot be filled in from the ControllerConfig.",
        see="`kubectl get controllerconfig machine-config-controller -o yaml`.",
        by_itself="Tries again after each change. Until then the MachineConfigs stay as they are.",
        do="Correct what the message names, by file and line: `kubectl edit controllerconfig`.",
        worry="At once.",
        warning=True,
    ),
    "Invalid": Reason(
        Kind.WAIT,
        "A KubeletConfig has values that no kubelet takes.",
        see=_RENDER,
        by_itself=_AGAIN,
        do=_OBJECT,
        worry=_STANDS,
        warning=True,
    ),
    "NoPool": Reason(
        Kind.WAIT,
        "A KubeletConfig selects no pool.",
        see=_RENDER,
        by_itself=_AGAIN,
        do=_OBJECT,
        worry="At once: it has no effect.",
    ),
    "TooMany": Reason(
        Kind.WAIT,
        "A pool has as many KubeletConfigs as there are names for.",
        see=_RENDER,
        by_itself=_AGAIN,
        do="Merge some of them into one: `kubectl get kubeletconfigs`.",
        worry="At once: the newest one has no effect.",
    ),
    "Overridden": Reason(
        Kind.WAIT,
        "A MachineConfig whose name comes later has another kubelet.conf, so a KubeletConfig has no effect.",
        see=_RENDER,
        by_itself=_AGAIN,
        do="Rename or delete that MachineConfig: `kubectl get machineconfigs`.",
        worry="At once: the KubeletConfig has no effect.",
    ),
    "NotSelected": Reason(
        Kind.WAIT,
        "A pool does not select the MachineConfig that its KubeletConfig makes.",
        see=_RENDER,
        by_itself=_AGAIN,
        do="Let the pool's machineConfigSelector select its role: `kubectl edit machineconfigpool`.",
        worry="At once: the KubeletConfig has no effect.",
    ),
    "NoKubeletConf": Reason(
        Kind.WAIT,
        "No MachineConfig of the pool has a kubelet.conf that a KubeletConfig could change.",
        see=_RENDER,
        by_itself=_AGAIN,
        do="Make a ControllerConfig, or let the pool select what the templates make: `kubectl get controllerconfigs`.",
        worry="At once: the KubeletConfig has no effect.",
    ),
}
CONFIG_STEPS: dict[str, Reason] = {
    "ConfigTargeted": Reason(Kind.HAPPENING, "The pool's nodes are to have another rendered config."),
    "ConfigNodesTargeted": Reason(Kind.HAPPENING, "Nodes were given their pool's config, which begins their update."),
    "ConfigNodeUpdated": Reason(Kind.HAPPENING, "A node has its pool's config and takes pods again."),
    "ConfigNodeDegraded": Reason(
        Kind.HAPPENING,
        "A node's daemon cannot apply the config that it was given.",
        do="Correct what the message names; {look} has all such nodes.",
        warning=True,
    ),
    "ConfigNodeGone": Reason(Kind.HAPPENING, "A node that was under way is gone, or is another pool's now."),
    "ConfigNodeRefused": Reason(
        Kind.HAPPENING,
        "The API server did not take a node's new config; its place is kept, and it is written again.",
        do="Correct what the message names, such as an admission webhook.",
    ),
    "ConfigDrainAsked": Reason(
        Kind.HAPPENING, "A node's daemon has asked for its drain, or for the end of its cordon."
    ),
    "ConfigDrainBlocked": Reason(
        Kind.HAPPENING,
        "A pod or volume is in the way of a drain for longer than one pass.",
        do="Nothing while it gets on. A PodDisruptionBudget may hold it: `kubectl get pdb -A`.",
    ),
    "ConfigDrainDone": Reason(Kind.HAPPENING, "A node has got the drain, or the end of the cordon, that it asked for."),
    "ConfigDrainFailed": Reason(
        Kind.HAPPENING,
        "A drain has failed for good, and begins again after a minute.",
        do="Correct what the message names; {look} says when it is done.",
    ),
    "ConfigPoolResumed": Reason(Kind.HAPPENING, "The pool's spec.paused is false again."),
    "ConfigPoolReplaced": Reason(Kind.HAPPENING, "The MachineConfigPool was deleted and made again under its name."),
    "ConfigPoolGone": Reason(Kind.HAPPENING, "The MachineConfigPool is gone, and with it its workflow ends."),
    "ConfigPoolRemoved": Reason(Kind.HAPPENING, "The pool is no longer looked after; its nodes stay as they are."),
    "ConfigRolloutBegan": Reason(Kind.HAPPENING, "The rollout of a rendered config has begun."),
    "ConfigRolloutComplete": Reason(Kind.HAPPENING, "Every node of the pool has the rendered config."),
    "ConfigRolloutSuperseded": Reason(
        Kind.HAPPENING, "The pool was given another config before every node had the one before."
    ),
    "ConfigRolloutFailed": Reason(Kind.HAPPENING, "A rollout ended because its pool is gone."),
    "ConfigRolloutUntold": Reason(
        Kind.HAPPENING, "The workflow of a rollout could not be told; the rollout itself goes on."
    ),
    "MachineLent": Reason(Kind.HAPPENING, "A machine was lent to a config pool, and counts as unavailable meanwhile."),
    "MachineReturned": Reason(Kind.HAPPENING, "A machine that was lent to a config pool is back."),
    "LoanExpired": Reason(
        Kind.HAPPENING, "A config pool has not spoken of a machine that it borrowed, which counts as back."
    ),
    "ObjectUnreadable": Reason(
        Kind.HAPPENING,
        "An object of the API server cannot be read, and counts as if it were not there.",
        do="Correct the object that the message names: `kubectl edit` it.",
        warning=True,
    ),
    "ConfigWritten": Reason(Kind.HAPPENING, "Rendering made, changed or deleted an object of the API server."),
    "ConfigsRemoved": Reason(Kind.HAPPENING, "The cluster's machine configs are no longer looked after."),
}
