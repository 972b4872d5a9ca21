"""What a control plane waits for, and does, where its etcd is guarded."""

from __future__ import annotations

from resources.reasons.reason import Kind, Reason

_SEE = (
    "`hostler describe controlplane --cluster {cluster}`: the message names the members. On a node of the control "
    "plane, `etcdctl member list -w table` and `etcdctl endpoint status --cluster -w table` show the same."
)

ETCD_WAITS: dict[str, Reason] = {
    "EtcdTrouble": Reason(
        Kind.WAIT,
        "A machine of the control plane is to go, and etcd could not be looked at or changed.",
        see=f"{_SEE} The activity look_at_etcd of the control plane's workflow has the error.",
        by_itself="Tries again on its own; the machine stays until etcd is seen.",
        do=(
            "Mend what the message says: the certificates and endpoints of clusters.{cluster}.etcd in the settings of "
            "the workers with the role cluster (docs/control-plane.md), or their way to port 2379 of the control "
            "plane. `hostler describe controlplane --cluster {cluster}` has the newest error."
        ),
        worry="When it lasts for minutes.",
        warning=True,
    ),
    "EtcdQuorumLost": Reason(
        Kind.WAIT,
        "No quorum of etcd's members answers, so none can be moved or removed, and no machine goes.",
        see=_SEE,
        by_itself="Goes on when enough members answer.",
        do=(
            "Start the members that the message names. If their data is lost, restore etcd: `etcdutl snapshot restore`."
        ),
        worry="At once: the cluster's API is down, or read-only.",
        warning=True,
    ),
    "EtcdQuorumAtRisk": Reason(
        Kind.WAIT,
        "Without the member of the machine that leaves, etcd would survive fewer failures than now.",
        see=_SEE,
        by_itself="Goes on when enough other members are healthy.",
        do=(
            "Bring back the members that the message names as not healthy, or delete their machines "
            "(`hostler get machines --cluster {cluster}` has them): a dead member goes first."
        ),
        worry="When no other machine is on its way.",
        warning=True,
    ),
    "EtcdReplacementNotVoting": Reason(
        Kind.WAIT,
        "The machine's replacement is ready, and has no healthy member of etcd with a vote yet.",
        see=_SEE,
        by_itself="Goes on as soon as the replacement's member votes.",
        do=(
            "Nothing, for the minute that `kubeadm join --control-plane` takes. After that look at its log on the new "
            "machine: etcd takes no new member while another one does not answer."
        ),
        worry="After some minutes: the new machine has joined as a node, and not as a member of etcd.",
    ),
    "EtcdMemberUnknown": Reason(
        Kind.WAIT,
        "The machine that leaves has no member of etcd, and a member that does not answer belongs to no known machine.",
        see=_SEE,
        by_itself="Goes on when that member is removed, or answers.",
        do=(
            "If nobody needs that member, remove it on a node of the control plane: `etcdctl member remove ID`, with "
            "the id of the message. It counts against the quorum."
        ),
        worry="At once: etcd survives fewer failures than its number of members says.",
        warning=True,
    ),
    "EtcdChanging": Reason(
        Kind.WAIT,
        "The leader of etcd is being moved, or a member removed, before its machine is drained.",
        see=_SEE,
        by_itself="Goes on when etcd's list of members says that it is done.",
        do="Nothing, unless it lasts for minutes.",
        worry="When it lasts for minutes: the activity change_etcd of the control plane's workflow has the error.",
    ),
}
ETCD_STEPS: dict[str, Reason] = {
    "EtcdLeaderMoved": Reason(
        Kind.HAPPENING, "Another member became etcd's leader, because the machine of the former one leaves."
    ),
    "EtcdMemberRemoved": Reason(
        Kind.HAPPENING, "A member was removed from etcd, because its machine leaves or is gone."
    ),
}
