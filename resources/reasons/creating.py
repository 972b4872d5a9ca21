"""What a machine waits for, and fails because of, until there is a VM."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

CREATING: dict[str, Reason] = {
    "Created": Reason(
        Kind.HAPPENING,
        "A machine or a pool began its life; a machine's creation deadline runs from here.",
    ),
    "ClassMissing": Reason(
        Kind.WAIT,
        "The machine was started without its class, and no class of that name answers.",
        see=(
            "`hostler describe {machine}`: *Seen last* says whether the class is not there, was deleted, or cannot "
            "answer; `hostler get classes`."
        ),
        by_itself=(
            "Asks the class's workflow every 5 s until the creation deadline; then the machine is Failed "
            "(CreationTimeout). It can be deleted meanwhile."
        ),
        do=(
            "Apply the MachineClass that the message names: `hostler apply -f FILE --cluster {cluster}`. The machine "
            "asks for it every 5 s, and makes nothing at the cloud until it has it."
        ),
        worry=(
            "When the class exists (`hostler get classes`) and the machine still waits: look at the class with "
            "`hostler describe class CLASS`."
        ),
        warning=True,
    ),
    "ClassTaken": Reason(
        Kind.HAPPENING,
        "The machine has asked for its class and got it.",
    ),
    "CreatingVM": Reason(
        Kind.WAIT,
        "The create call is under way.",
        see="`hostler describe {machine}`: *Pending activities* has attempt and time of the call.",
        by_itself=(
            "Makes one call with one token. Temporal retries it up to 5 times (1 to 15 s apart), and waits without "
            "limit while no worker is there."
        ),
        do=(
            "Nothing: the answer takes seconds, and no second call is made before it. After 6 minutes check whether a "
            "worker polls the cloud's queue: `hostler doctor`."
        ),
        worry="After 6 minutes: nobody polls the cloud's queue, or the cloud hangs.",
    ),
    "VMCreated": Reason(
        Kind.HAPPENING,
        "The cloud has made the VM; its id is recorded and never replaced.",
    ),
    "VMAdopted": Reason(
        Kind.HAPPENING,
        "A VM that carries this machine's uid already existed, after a lost answer or a crash, and is used.",
        do="Nothing: this is how a second VM is avoided.",
    ),
    "NameTaken": Reason(
        Kind.WAIT,
        "A VM at the cloud has this machine's name and the uid of another life; none is made beside it.",
        see=(
            "`hostler describe {machine}` names the VM and its uid; `hostler get orphans` lists it as "
            "*of-another-life*."
        ),
        by_itself=(
            "Looks again every 5 s and makes its VM when the other one is gone or being deleted, until the creation "
            "deadline; then the machine is Failed (CreationTimeout). A VM that a run of this workflow made before a "
            "reset is adopted at once (VMTakenOver)."
        ),
        do=(
            "If it is this machine: `hostler adopt {machine}`. Otherwise delete it at the cloud: Hostler looks every "
            "5 s, and a VM that is being deleted holds nothing up."
        ),
        worry="At once: somebody ended a workflow from outside while its VM ran, and nobody looks after that VM.",
        warning=True,
    ),
    "VMTakenOver": Reason(
        Kind.HAPPENING,
        (
            "The machine has taken over a VM of its name, and the VM's uid: a run of its workflow that a reset cut "
            "off had made it, or a person has said that it is the machine's own."
        ),
        do="Nothing: this is how a second VM is avoided.",
    ),
    "ClassChanged": Reason(
        Kind.WAIT,
        "The class was changed; the new one is tried when the cloud's lag window is over.",
        see="`hostler describe {machine}`: *Next try*.",
        by_itself=(
            "Tries the changed class with a new token after the lag window (1 minute), and adopts a VM that turns up "
            "meanwhile."
        ),
        do="Nothing: it takes a minute, so that a VM which the former call made after all is seen first.",
        worry="Never.",
    ),
    "AttemptIsOver": Reason(
        Kind.WAIT,
        "The attempt's token is bound to another request or to a dead VM, so it can no longer be used.",
        see="`hostler describe {machine}`; the attempts are in `hostler events {machine}`.",
        by_itself=(
            "Looks for the VM by its uid after the lag window (1 minute, doubled with each attempt) and adopts what "
            "it finds; otherwise a new attempt begins. There is never a second VM."
        ),
        do=(
            "Nothing: in a minute or more Hostler looks for the VM once more and adopts it, or begins a new attempt. "
            "If this comes again and again, somebody keeps changing the Secret with the user data."
        ),
        worry=(
            "The third time in a row, or when *token is bound to a dead VM* comes again and again: something kills "
            "the VM as it starts."
        ),
    ),
    "OutOfCapacity": Reason(
        Kind.WAIT,
        "The cloud has no capacity for such a VM in this place right now.",
        see="`hostler describe {machine}`: the cloud's code is in the message.",
        by_itself="Tries every 10 minutes until the creation deadline; then the machine is Failed (CreationTimeout).",
        do=(
            "Nothing: it is tried again every 10 minutes. To be faster, name another machine type or zone in the "
            "class and `hostler apply -f FILE --cluster {cluster}`; the changed class is tried within a minute."
        ),
        worry="When no other type or zone will do, or the deadline is near (*Times* in describe).",
        warning=True,
    ),
    "QuotaExceeded": Reason(
        Kind.WAIT,
        "The cloud account's quota for what the message names is used up.",
        see="`hostler describe {machine}`: the message names the quota.",
        by_itself="Tries every 10 minutes until the creation deadline.",
        do=(
            "Delete machines that are not needed, or raise the quota at the cloud; `hostler get orphans --cluster "
            "{cluster}` shows VMs that nobody owns. It is tried again every 10 minutes."
        ),
        worry="At once: it does not go away on its own.",
        warning=True,
    ),
    "NotAuthorized": Reason(
        Kind.WAIT,
        "The credentials are wrong or expired, or do not permit what the message names.",
        see=(
            "`hostler describe {machine}`; at AWS `aws sts get-caller-identity` with the same credentials; at the "
            "cluster `hostler doctor`."
        ),
        by_itself=(
            "Tries every 3 minutes: a creation until its deadline, a deletion without end; a hot update every 10 "
            "minutes. Nothing is taken to be gone meanwhile."
        ),
        do=(
            "At the cloud: correct the Secret that the message names, or the rights of its user. At the Kubernetes "
            "API: `hostler doctor` names the missing right. It is tried again every 3 minutes, a hot update every 10."
        ),
        worry="At once: it does not go away on its own, and the account's other machines have it too.",
        warning=True,
    ),
    "CredentialsMissing": Reason(
        Kind.WAIT,
        "A Secret with credentials or user data, or a key in it, is not where the worker looks for it.",
        see="`hostler describe {machine}`: the message names the Secret and the key; `hostler doctor`.",
        by_itself=(
            "Tries every 3 minutes: a creation until its deadline, a deletion without end; a hot update every 10 "
            "minutes. Where the class's credentials are missing, the account's default credentials of the worker's "
            "settings are used."
        ),
        do=(
            "Put it there, with the key that the message names: `hostler apply -f SECRET-FILE --cluster {cluster}`. "
            "`hostler doctor` checks the source of secrets. It is tried again every 3 minutes, a hot update every 10."
        ),
        worry=(
            "At once: a deletion that waits for credentials leaves a VM that costs money, also with `--force`, which "
            "ends the waits for pods but not the one for the cloud. Another Secret of the same account, named by the "
            "class, works as well. If the account is closed for good, make sure that the VM is gone, then end the "
            "machine's workflow with `temporal workflow terminate -w machine/{cluster}/{name}`, and delete its Node."
        ),
        warning=True,
    ),
    "WrongAccount": Reason(
        Kind.WAIT | Kind.CONDITION,
        (
            "The Secret's credentials open another cloud account than the one that has the machine's VM, may have one "
            "after a create call without an answer, or has the cluster's other VMs of this Secret."
        ),
        see=(
            "`hostler describe {machine}`: the message names the Secret, the account that it opens and the one that "
            "it should open; a machine that runs has it as a condition. For a cluster's account: `hostler describe "
            "cluster {cluster}` (CloudUnreachable)."
        ),
        by_itself=(
            "Tries every 3 minutes, a hot update every 10. A machine with a VM lives on as it is, and the condition "
            "goes within a minute of the right credentials. A machine without a VM makes none in the other account; "
            "it is Failed at its creation deadline, and its pool slows down as after any creation that fails."
        ),
        do=(
            "Give the Secret credentials of the account that has the VMs: `hostler apply -f SECRET-FILE --cluster "
            "{cluster}`; for new VMs in the other account make a class with another Secret. It is tried again every 3 "
            "minutes, a hot update every 10; until then nothing counts as gone, and nothing is made."
        ),
        worry=(
            "At once: VMs run, and cost money, in an account that nobody looks at. To move to another account, name a "
            "*new* Secret in a new class and let the pool roll; a Secret whose VMs are all gone may open any other "
            "account. If the old account is closed for good, nothing can be confirmed: make sure that the VM is gone, "
            "then end the machine's workflow with `temporal workflow terminate -w machine/{cluster}/{name}`, and "
            "delete its Node. When the last one has ended, the Secret may open another account."
        ),
        warning=True,
    ),
    "InvalidSpec": Reason(
        Kind.WAIT,
        "The cloud will never accept this request; the message says what is wrong with it.",
        see="`hostler describe {machine}`: the message is the cloud's own.",
        by_itself=(
            "Tries every 3 minutes until the creation deadline, a changed class a minute after the last call; in a "
            "hot update every 10 minutes, a changed class at once."
        ),
        do=(
            "Correct the class or machine and `hostler apply -f FILE --cluster {cluster}`; `hostler explain "
            "machineclass.providerSpec` describes the fields. A changed class is tried within a minute, the same one "
            "every 3 minutes, or every 10 in a hot update."
        ),
        worry="At once: only a change helps.",
        warning=True,
    ),
    "ReferenceNotFound": Reason(
        Kind.WAIT,
        "Something that the request names does not exist: an image, a subnet, a security group, a key, a profile.",
        see="`hostler describe {machine}`: the message names what is missing.",
        by_itself=(
            "Tries every 3 minutes until the creation deadline, a changed class a minute after the last call; in a "
            "hot update every 10 minutes, a changed class at once."
        ),
        do=(
            "Create it, or correct its name and `hostler apply -f FILE --cluster {cluster}`. A changed class is tried "
            "within a minute, the same one every 3 minutes, or every 10 in a hot update."
        ),
        worry="At once, unless what is missing is being made right now.",
        warning=True,
    ),
    "Throttled": Reason(
        Kind.WAIT,
        "The cloud or the API server says that it gets too many calls.",
        see="`hostler describe {machine}`; the metric `hostler_call_errors` shows which activities have it.",
        by_itself=(
            "Tries after 30 s, or later when the cloud says so. Creating goes before deleting, and deleting before "
            "looking."
        ),
        do=(
            "Nothing: it is tried again every 30 s, or when the cloud says. After 15 minutes find out who else uses "
            "up the account's calls, or lower `clouds.aws.callsPerSecond` in the worker's settings."
        ),
        worry="After 15 minutes, or when many machines have it.",
        warning=True,
    ),
    "Conflict": Reason(
        Kind.WAIT,
        "The resource is in a state that does not allow this now, or somebody else is changing it.",
        see="`hostler describe {machine}`: the message names the resource.",
        by_itself="Tries every 5 s: a deletion without end, a creation until its deadline.",
        do=(
            "If the message names a protection, remove it as it says: Hostler never does. Otherwise nothing: it is "
            "tried again every 5 s; worry after 10 minutes."
        ),
        worry="After 10 minutes: somebody must act.",
        warning=True,
    ),
    "ProviderUnavailable": Reason(
        Kind.WAIT,
        "The cloud or the Kubernetes API does not answer, or answers that it has a fault.",
        see=(
            "`hostler describe {machine}`: *Kubernetes API* in front of the message means the cluster's; `hostler "
            "doctor`."
        ),
        by_itself="Tries for half a minute, then every 5 s. Nothing is decided against a machine meanwhile.",
        do=(
            "Nothing: it is tried again every few seconds. After 10 minutes: `hostler doctor`, and the cloud's status "
            "page."
        ),
        worry="After 10 minutes, or when the cloud's status page says that all is well.",
        warning=True,
    ),
    "ProviderError": Reason(
        Kind.WAIT,
        "The cloud answered with an error code that Hostler does not know.",
        see="`hostler describe {machine}`: the code is in the message.",
        by_itself="Tries every 3 minutes: a creation until its deadline, a deletion without end.",
        do=(
            "Look the code up in the cloud's documentation and remove its cause; report it, so that Hostler learns "
            "it. It is tried again every 3 minutes."
        ),
        worry="At once: nobody knows whether it goes away on its own.",
        warning=True,
    ),
    "CreationTimeout": Reason(
        Kind.WAIT | Kind.FAILURE,
        "The machine was not Running by its creation deadline (spec.creationTimeout, 20 minutes by default).",
        see=(
            "`hostler describe {machine}`: the message has the last trouble and the console's last lines; `hostler "
            "events {machine}` has everything."
        ),
        by_itself=(
            "Does nothing more: the machine stays Failed, and its VM stays for you to look at. Where there is a VM, "
            "its Node was looked at twice before, so an outage does not cause this."
        ),
        do=(
            "Correct what the message names, or raise spec.creationTimeout; then {replace}. Look at the VM first: "
            "both delete it."
        ),
        worry="When it happens to several machines of a class: it is the class, its image, user data or network.",
        warning=True,
    ),
    "StaleNode": Reason(
        Kind.WAIT | Kind.FAILURE,
        "The cloud gave the new VM a node name that an older Node object has, so the VM is deleted.",
        see=(
            "`kubectl get node NODE -o yaml` for the Node in the message: its age and spec.providerID; `hostler "
            "events {machine}`: what became of it."
        ),
        by_itself=(
            "Deletes the new VM, so that it is never taken for the old Node. The machine stays Failed. The Node is "
            "removed if it is provably nobody's ([machine-life.md](machine-life.md#a-node-in-the-way))."
        ),
        do=(
            "If the journal says StaleNodeRemoved, the next VM can join. Otherwise find out whose Node the message "
            "names, and delete it when its VM is gone (`kubectl delete node NODE`); then {replace}."
        ),
        worry="When dead Nodes stay behind: whoever deletes VMs does not delete their Nodes.",
        warning=True,
    ),
    "StaleNodeRemoved": Reason(
        Kind.HAPPENING,
        (
            "The Node in the new VM's way was provably nobody's and was removed: the account has no VM of its id, and "
            "its kubelet was silent for as long as healthTimeout."
        ),
        do="Nothing: a pool's next machine can join.",
        warning=True,
    ),
    "StaleNodeStays": Reason(
        Kind.HAPPENING,
        (
            "The Node in the new VM's way stays, for the reason in the message: nobody could prove that no VM stands "
            "behind it, and each VM that gets its name is deleted again."
        ),
        do="Check whether a VM stands behind it, in any account and region; if none does, `kubectl delete node`.",
        warning=True,
    ),
}
