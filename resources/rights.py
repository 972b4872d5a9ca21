"""What workers must be allowed to do at API servers, by role: the one list of it.

`make rbac` writes deploy/rbac from it, and `hostler doctor` asks API servers about it. A test compares it with what an
API server's audit log says that whole lives have used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from resources.machine_config.keys import CONFIG_KINDS, GROUP
from resources.settings import Role

Feature = Literal["", "machineConfigs"]
"""What a cluster's settings may switch on, and what needs rights of its own."""
Where = Literal["target", "control"]
"""The target cluster is the one whose machines are looked after; the control cluster keeps the Secrets that classes
name. They may be the same."""


@dataclass(frozen=True)
class Right:
    """One verb on a resource: in a namespace, or (empty) in all of them and on resources without one; on the object of
    that name, or (empty) on every one."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {what}{named}" + (f" in {self.namespace}" if self.namespace else "")


@dataclass(frozen=True)
class Need:
    """A need of a role: what does not work without these rights."""

    role: Role
    purpose: str
    """What a worker does by these rights, as a verb phrase: it "cannot" do it without them."""
    resource: str
    """The resource's name in the API, with its subresource: `pods/eviction`."""
    verbs: tuple[str, ...]
    group: str = ""
    namespace: str = ""
    """"": all of them, or a resource that is in none."""
    where: Where = "target"
    name: str = ""
    """"": every object."""
    feature: Feature = ""
    """"": every cluster needs it."""

    @property
    def granted_by(self) -> str:
        """The name of the role in deploy/rbac that has it."""
        if self.feature:
            return f"hostler-{self.role}-configs"
        return "hostler-secrets" if self.where == "control" else f"hostler-{self.role}"

    @property
    def rights(self) -> tuple[Right, ...]:
        resource, _, subresource = self.resource.partition("/")
        where = (self.group, subresource, self.namespace, self.name)
        return tuple(Right(verb, resource, *where) for verb in self.verbs)

    def of(self, namespace: str, name: str) -> Need:
        """The same need of another namespace, and of one object there ("": of all)."""
        return replace(self, namespace=namespace, name=name)


LEASES, STORAGE, POLICY = "coordination.k8s.io", "storage.k8s.io", "policy"
CONFIGS, POOLS, KUBELETS, CONTROLLERS = (kind.plural for kind in CONFIG_KINDS)
TOKENS_IN, LEASES_IN, EVENTS_IN = "kube-system", "kube-node-lease", "default"
SECRETS_IN = "default"
"""Where the Secrets are that classes of the namespace `default` name."""

NEEDS: tuple[Need, ...] = (
    Need("cluster", "find the Nodes of machines", "nodes", ("get", "list")),
    Need("cluster", "write labels, annotations, taints and the cordon on Nodes", "nodes", ("patch",)),
    Need("cluster", "remove the Node of a VM that is gone", "nodes", ("delete",)),
    Need("cluster", "see by its Lease whether a kubelet lives", "leases", ("get",), LEASES, LEASES_IN),
    Need("cluster", "revoke bootstrap tokens", "secrets", ("get", "delete"), namespace=TOKENS_IN),
    Need("cluster", "detach the volumes of a VM that is gone", "volumeattachments", ("list", "delete"), STORAGE),
    Need("cluster", "tell a machine's story as Events", "events", ("create",), namespace=EVENTS_IN),
    Need("watch", "follow Nodes", "nodes", ("get", "list", "watch")),
    Need("watch", "write a machine's name on its Node", "nodes", ("patch",)),
    Need("watch", "see which of a VM's two Nodes has a kubelet that lives", "leases", ("get",), LEASES, LEASES_IN),
    Need("drain", "find the Nodes of machines", "nodes", ("get", "list")),
    Need("drain", "cordon Nodes", "nodes", ("patch",)),
    Need("drain", "see the pods on Nodes", "pods", ("list",)),
    Need("drain", "evict pods", "pods/eviction", ("create",)),
    Need("drain", "remove a pod by force, after the drain's deadline or where a person says so", "pods", ("delete",)),
    Need("drain", "wait for the budget that holds a pod", "poddisruptionbudgets", ("list",), POLICY),
    Need("drain", "move pods with volumes one at a time", "persistentvolumeclaims", ("get",)),
    Need("drain", "move pods with volumes one at a time", "persistentvolumes", ("get",)),
    Need("drain", "wait until volumes are detached", "volumeattachments", ("list",), STORAGE),
    Need("drain", "tell a machine's story as Events", "events", ("create",), namespace=EVENTS_IN),
    Need("cloud", "make bootstrap tokens", "secrets", ("get", "create"), namespace=TOKENS_IN),
    Need("cloud", "prolong the token of a machine with a later deadline", "secrets", ("patch",), namespace=TOKENS_IN),
    Need("cloud", "revoke the token of a machine that takes another VM over", "secrets", ("delete",), "", TOKENS_IN),
    Need("cloud", "tell a new VM's Node from one that an old VM has left", "nodes", ("get",)),
    Need("cloud", "read credentials and user data", "secrets", ("get",), "", SECRETS_IN, "control"),
)
"""The role workflows needs none."""


def _config(role: Role, purpose: str, resource: str, *verbs: str) -> Need:
    return Need(role, purpose, resource, verbs, GROUP, feature="machineConfigs")


CONFIG_NEEDS: tuple[Need, ...] = (
    *(_config("watch", "follow machine configs and their pools", kind, "list", "watch") for kind in (CONFIGS, POOLS)),
    *(_config("watch", "follow what is rendered", kind, "list", "watch") for kind in (KUBELETS, CONTROLLERS)),
    _config("cluster", "render machine configs", CONFIGS, "list", "create", "patch", "delete"),
    _config("cluster", "give pools their rendered config", POOLS, "get", "list", "patch"),
    _config("cluster", "merge kubelet configs, and hold on to what they have made", KUBELETS, "list", "patch"),
    _config("cluster", "fill in templates", CONTROLLERS, "list"),
    *(_config("cluster", "say how far they are", f"{kind}/status", "patch") for kind in (POOLS, KUBELETS, CONTROLLERS)),
    *(
        # OwnerReferencesPermissionEnforcement asks for it, where it is on.
        _config("cluster", "own what they have made", f"{kind}/finalizers", "update")
        for kind in (POOLS, KUBELETS, CONTROLLERS)
    ),
)
"""What machine configs need beside that, in a cluster whose settings have them on."""


def needs(role: Role, where: Where = "target", feature: Feature = "") -> list[Need]:
    return [need for need in (*NEEDS, *CONFIG_NEEDS) if (need.role, need.where, need.feature) == (role, where, feature)]
