"""What a machine waits for, and fails because of, until there is a VM."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

CREATING: dict[str, Reason] = {
    "Created": Reason(
        Kind.HAPPENING,
        "A machine or a pool was created; a machine's creation deadline counts from this time.",
    ),
    "ClassMissing": Reason(
        Kind.WAIT,
        "The machine was created without its class, and no class of that name answers.",
        see=(
            "`hostler describe {machine}`: *Seen last* says whether the class does not exist, was deleted, or "
            "cannot answer; `hostler get classes`."
        ),
        by_itself=(
            "Asks the class's workflow every 5 s until the creation deadline; then the machine is Failed "
            "with this reason. The machine can be deleted in the meantime."
        ),
        do=(
            "Apply the MachineClass that the message names: `hostler apply -f FILE --cluster {cluster}`. The machine "
            "keeps asking for it, and creates nothing in the cloud until it has the class."
        ),
        worry=(
            "When the class exists (`hostler get classes`) and the machine still waits: check the class with "
            "`hostler describe class CLASS`."
        ),
        warning=True,
    ),
    "ClassTaken": Reason(
        Kind.HAPPENING,
        "The machine has asked for its class and received it.",
    ),
    "CreatingVM": Reason(
        Kind.WAIT,
        "The create call is in progress.",
        see="`hostler describe {machine}`: *Pending activities* shows the attempt and the time of the call.",
        by_itself=(
            "Makes one call with one token. Temporal retries it up to 5 times (1 to 15 s apart), and waits without "
            "limit for a worker."
        ),
        do=(
            "Nothing: the answer takes seconds, and no second call is made before it arrives. After 6 minutes check "
            "whether a worker polls the cloud's queue: {doctor}."
        ),
        worry="After 6 minutes: no worker polls the cloud's queue, or the cloud hangs.",
    ),
    "VMCreated": Reason(
        Kind.HAPPENING,
        "The cloud has created the VM; its id is recorded and never replaced.",
    ),
    "UserDataDoubtful": Reason(
        Kind.HAPPENING,
        "The VM was made with user data in which something looks like a misspelled placeholder: as it was not filled, "
        "the VM may never join.",
        see="`hostler describe {machine}`: if the node does not come, this is why.",
        do=(
            "Correct the Secret's userData as the message says: `hostler apply -f SECRET-FILE --cluster {cluster}`; "
            "then {replace}."
        ),
        warning=True,
    ),
    "VMAdopted": Reason(
        Kind.HAPPENING,
        "A VM with this machine's uid already existed, because an answer was lost or a worker crashed, and is used.",
        do="Nothing: this is how a second VM is avoided.",
    ),
    "NameTaken": Reason(
        Kind.WAIT,
        "A VM in the cloud has this machine's name and another uid; no second VM is created beside it.",
        see=(
            "`hostler describe {machine}` names the VM and its uid; `hostler get orphans` lists it as "
            "*of-another-life*."
        ),
        by_itself=(
            "Looks again every 5 s, and creates its own VM once the other one is gone or is being deleted. At the "
            "creation deadline the machine is Failed with this reason. A VM that this workflow created before it "
            "was reset is adopted at once (VMTakenOver)."
        ),
        do=(
            "If it is this machine: `hostler adopt {machine}`. Otherwise delete it in the cloud: Hostler keeps "
            "looking, and does not wait for a VM that is being deleted."
        ),
        worry="Immediately: somebody terminated a workflow while its VM was running, and nothing manages that VM.",
        warning=True,
    ),
    "VMTakenOver": Reason(
        Kind.HAPPENING,
        "The machine has taken over a VM of its name, together with the VM's uid: its workflow created the VM "
        "before it was reset, or a user has confirmed that the VM belongs to this machine.",
        do="Nothing: this is how a second VM is avoided.",
    ),
    "ClassChanged": Reason(
        Kind.WAIT,
        "The class was changed; the new version is tried when the cloud's lag window is over.",
        see="`hostler describe {machine}`: *Next try*.",
        by_itself=(
            "Tries the changed class with a new token after the lag window (1 minute), and adopts a VM that appears "
            "in the meantime."
        ),
        do="Nothing: until the time shown it makes sure that a VM which the earlier call did create is seen first.",
        worry="Never.",
    ),
    "CreationGoesOn": Reason(
        Kind.HAPPENING,
        "The API server or the cloud account did not answer for a while; the creation deadline stood still meanwhile, "
        "and is later by as much.",
    ),
    "AttemptIsOver": Reason(
        Kind.WAIT,
        "The attempt's token is bound to another request or to a VM that no longer exists, so it cannot be used again.",
        see="`hostler describe {machine}`; the attempts are in `hostler events {machine}`.",
        by_itself=(
            "Looks for the VM by its uid after the lag window (1 minute, doubled with each attempt) and adopts a VM "
            "that it finds; otherwise it begins a new attempt. There is never a second VM."
        ),
        do=(
            "Nothing: {then} Hostler looks for the VM again and adopts it, or begins a new attempt. If this "
            "keeps happening, somebody keeps changing the Secret with the user data."
        ),
        worry=(
            "When it happens for the third time in a row, or *token is bound to a dead VM* keeps coming back: "
            "something kills the VM as it starts."
        ),
    ),
    "OutOfCapacity": Reason(
        Kind.WAIT,
        "The cloud has no capacity for this type of VM in this zone right now.",
        see="`hostler describe {machine}`: the cloud's code is in the message.",
        by_itself=(
            "Tries every 10 minutes until the creation deadline; then the machine is Failed, and this stays its reason."
        ),
        do="Nothing: it is tried again {then}. If you cannot wait: {cure} A changed class is tried soon.",
        cure="set another machine type or zone in the class and `hostler apply -f FILE --cluster {cluster}`.",
        worry="When no other type or zone is possible, or the deadline is near (*Times* in describe).",
        warning=True,
    ),
    "QuotaExceeded": Reason(
        Kind.WAIT,
        "The cloud account has used up its quota for what the message names.",
        see="`hostler describe {machine}`: the message names the quota.",
        by_itself="Tries every 10 minutes until the creation deadline.",
        do=("{cure} It is tried again {then}."),
        cure=(
            "Delete machines that you do not need, or have the cloud raise the quota; `hostler get orphans "
            "--cluster {cluster}` shows VMs without an owner."
        ),
        lasting=True,
        worry="At once: it does not go away on its own.",
        warning=True,
    ),
    "NotAuthorized": Reason(
        Kind.WAIT,
        "The credentials are wrong or have expired, or do not permit what the message names.",
        see=(
            "`hostler describe {machine}`; for AWS, `aws sts get-caller-identity` with the same credentials; for "
            "the cluster, `hostler doctor`."
        ),
        by_itself=(
            "Tries every 3 minutes: a creation until its deadline, a deletion without end; a hot update every 10 "
            "minutes. In the meantime nothing is considered gone."
        ),
        do="{cure} It is tried again {then}.",
        cure=(
            "If the cloud refuses: correct the Secret that the message names, or its user's permissions. If the "
            "Kubernetes API refuses: {doctor} names the missing permission."
        ),
        lasting=True,
        worry="Immediately: it does not go away on its own, and it affects all machines of the account.",
        warning=True,
    ),
    "CredentialsMissing": Reason(
        Kind.WAIT,
        "A Secret with credentials or user data, or a key in it, is missing where the worker looks for it.",
        see="`hostler describe {machine}`: the message names the Secret and the key; `hostler doctor`.",
        by_itself=(
            "Tries every 3 minutes: a creation until its deadline, a deletion without end, except of a machine that "
            "never asked for a VM; a hot update every 10 minutes. If the class's credentials are missing, the default "
            "credentials in the worker's settings are used."
        ),
        do="{cure} It is tried again {then}.",
        cure=(
            "Create what the message names, the Secret with all its keys or the missing key: `hostler apply -f "
            "SECRET-FILE --cluster {cluster}`. Whether the source of secrets can be read, {doctor} says."
        ),
        lasting=True,
        worry=(
            "Immediately: while a deletion waits for credentials, the VM costs money. `--force` does not help: it "
            "ends the wait for pods, not the wait for the cloud. You can also set another Secret of the same "
            "account in the class. If the account is closed for good, make sure that the VM is gone, then end the "
            "machine's workflow with `temporal workflow terminate -w machine/{cluster}/{name}`, and delete its Node."
        ),
        warning=True,
    ),
    "WrongAccount": Reason(
        Kind.WAIT | Kind.CONDITION,
        "The Secret's credentials are for the wrong cloud account: the machine's VM is in another one, a create "
        "call without an answer may have created it in another one, or the cluster's other VMs with this Secret "
        "are in another one.",
        see=(
            "`hostler describe {machine}`: the message names the Secret, its account and the expected account; a "
            "Running machine shows it as a condition. For a cluster's account: `hostler describe cluster {cluster}` "
            "(CloudUnreachable)."
        ),
        by_itself=(
            "Tries every 3 minutes, a hot update every 10. A machine with a VM keeps running, and the condition "
            "goes away within a minute once the credentials are right. A machine without a VM creates none in the "
            "wrong account; it is Failed at its creation deadline, and its pool slows down as after any failed "
            "creation."
        ),
        do="{cure} It is tried again {then}; until then nothing is considered gone, and nothing is created.",
        cure=(
            "Give the Secret credentials of the account that has the VMs: `hostler apply -f SECRET-FILE --cluster "
            "{cluster}`; for new VMs in the other account, create a class with another Secret."
        ),
        lasting=True,
        worry=(
            "Immediately: VMs run, and cost money, in an account that Hostler cannot see. To move to another "
            "account, set a *new* Secret in a new class and let the pool roll; a Secret whose VMs are all gone may "
            "be used for any other account. If the old account is closed for good, nothing can be confirmed: make "
            "sure that the VM is gone, then end the machine's workflow with `temporal workflow terminate -w "
            "machine/{cluster}/{name}`, and delete its Node. When the last machine has ended, the Secret may be "
            "used for another account."
        ),
        warning=True,
    ),
    "InvalidSpec": Reason(
        Kind.WAIT,
        "The cloud will never accept this request; the message says what is wrong with it.",
        see="`hostler describe {machine}`: the message is the cloud's own.",
        by_itself=(
            "Tries every 3 minutes until the creation deadline, a changed class a minute after the last call; in a "
            "hot update every 10 minutes, or at once with a changed class."
        ),
        do="{cure} A changed class is tried soon, an unchanged one {then}.",
        cure=(
            "Correct the class or the machine and `hostler apply -f FILE --cluster {cluster}`; `hostler explain "
            "machineclass.providerSpec` describes the fields."
        ),
        lasting=True,
        worry="Immediately: only a change helps.",
        warning=True,
    ),
    "ReferenceNotFound": Reason(
        Kind.WAIT,
        "Something that the request names does not exist: an image, a subnet, a security group, a key, a profile.",
        see="`hostler describe {machine}`: the message names what is missing.",
        by_itself=(
            "Tries every 3 minutes until the creation deadline, a changed class a minute after the last call; in a "
            "hot update every 10 minutes, or at once with a changed class."
        ),
        do="{cure} A changed class is tried soon, an unchanged one {then}.",
        cure="Create it, or correct its name and `hostler apply -f FILE --cluster {cluster}`.",
        lasting=True,
        worry="Immediately, unless what is missing is being created right now.",
        warning=True,
    ),
    "Throttled": Reason(
        Kind.WAIT,
        "The cloud or the API server reports too many calls.",
        see="`hostler describe {machine}`; the metric `hostler_call_errors` shows which activities are affected.",
        by_itself=(
            "Tries again after 30 s, or later if the cloud says so. Create calls go before delete calls, and these "
            "before reads."
        ),
        do=(
            "Nothing: it is tried again {then}. After 15 minutes find out who else "
            "uses up the account's calls, or lower `clouds.aws.callsPerSecond` in the worker's settings."
        ),
        worry="After 15 minutes, or when it affects many machines.",
        warning=True,
    ),
    "Conflict": Reason(
        Kind.WAIT,
        "The resource's state does not allow this now, or somebody else is changing it.",
        see="`hostler describe {machine}`: the message names the resource.",
        by_itself="Tries every 5 s: a deletion without end, a creation until its deadline.",
        do=(
            "If the message names a protection, remove it as the message says: Hostler never does. Otherwise "
            "nothing: it is tried again {then}."
        ),
        worry="After 10 minutes: a person must act.",
        warning=True,
    ),
    "ProviderUnavailable": Reason(
        Kind.WAIT,
        "The cloud or the Kubernetes API does not answer, or answers with an internal error.",
        see=(
            "`hostler describe {machine}`: a message that begins with *Kubernetes API* is about the cluster; "
            "`hostler doctor`."
        ),
        by_itself="Retries for half a minute, then every 5 s. No machine is failed or replaced because of it.",
        do=("Nothing: it is tried again {then}. After 10 minutes: {doctor}, and the cloud's status page."),
        worry="After 10 minutes, or when the cloud's status page shows no incident.",
        warning=True,
    ),
    "ProviderError": Reason(
        Kind.WAIT,
        "The cloud answered with an error code that Hostler does not know.",
        see="`hostler describe {machine}`: the code is in the message.",
        by_itself="Tries again after 3 minutes, later every 10: a creation until its deadline, a deletion without end.",
        do="{cure} It is tried again {then}.",
        cure=(
            "Look up the code in the cloud's documentation and remove the cause; report the code, so that it can be "
            "added to Hostler."
        ),
        lasting=True,
        worry="Immediately: it may not go away on its own.",
        warning=True,
    ),
    "CreationTimeout": Reason(
        Kind.WAIT | Kind.FAILURE,
        "The machine was not Running by its creation deadline (spec.creationTimeout, 20 minutes by default).",
        see=(
            "`hostler describe {machine}`: the message begins with what held it up, and has the last lines of the VM's "
            "console; `hostler events {machine}` shows everything."
        ),
        by_itself=(
            "Does nothing more: the machine stays Failed, and its VM is kept for you to inspect. If there is a VM, "
            "its Node was looked at twice before, so an outage does not cause this. Where it is known what held the "
            "machine up (OutOfCapacity, CredentialsMissing, NodeNotSeen), that is the reason that lists, describe and "
            "the web UI show; the journal and the condition Failed say CreationTimeout."
        ),
        do="Correct what the message names, or raise spec.creationTimeout; then {replace}.{inspect}",
        worry="When it affects several machines of a class: the cause is the class, its image, user data or network.",
        warning=True,
    ),
    "StaleNode": Reason(
        Kind.WAIT | Kind.FAILURE,
        "The cloud gave the new VM a node name that an older Node object already has, so the VM is deleted.",
        see=(
            "`kubectl get node NODE -o yaml` for the Node in the message: its age and spec.providerID; `hostler "
            "events {machine}` tells what happened to it."
        ),
        by_itself=(
            "Deletes the new VM, so that it is never mistaken for the old Node. The machine stays Failed. The Node "
            "is removed if it provably belongs to no VM ([machine-life.md](machine-life.md#a-node-in-the-way))."
        ),
        do=(
            "If the journal says StaleNodeRemoved, the next VM can join. Otherwise find out which VM the Node in "
            "the message belongs to, and delete the Node when that VM is gone (`kubectl delete node NODE`); then "
            "{replace}."
        ),
        worry="When dead Nodes are left behind: whoever deletes the VMs does not delete their Nodes.",
        warning=True,
    ),
    "StaleNodeRemoved": Reason(
        Kind.HAPPENING,
        "The Node in the new VM's way was removed, because it provably belonged to no VM: the account has no VM "
        "with its id, and its kubelet was silent for the whole healthTimeout.",
        do="Nothing: a pool's next machine can join.",
        warning=True,
    ),
    "StaleNodeStays": Reason(
        Kind.HAPPENING,
        "The Node in the new VM's way stays, for the reason in the message: Hostler cannot prove that it "
        "belongs to no VM, and deletes each new VM that gets its name.",
        do="Check whether it belongs to a VM, in any account and region; if not, `kubectl delete node`.",
        warning=True,
    ),
}
