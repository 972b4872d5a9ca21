"""The table of kinds that are served, and the registry that custom resource definitions extend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from simulator.kube.objects import Obj

ResourceId = tuple[str, str]
"""API group (empty for core) and plural name: what storage is keyed by."""


@dataclass(frozen=True)
class CustomShape:
    """What a CustomResourceDefinition says of its objects."""

    schema: Obj
    """`openAPIV3Schema` of the served version."""
    scale: Obj | None = None
    """The scale subresource: `specReplicasPath`, `statusReplicasPath`, `labelSelectorPath`."""
    columns: tuple[Obj, ...] = ()
    """`additionalPrinterColumns`."""


@dataclass(frozen=True)
class Resource:
    """One served kind."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    subresources: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    """Fields a fieldSelector may name beside metadata.name and .namespace, each with the value of an unset one."""
    generation: bool = False
    """Whether metadata.generation counts changes of everything but metadata and status."""
    unconditional_update: bool = True
    """Whether a PUT may leave out metadata.resourceVersion (`AllowUnconditionalUpdate` upstream)."""
    create_on_update: bool = False
    """Whether a PUT of a missing object creates it (`AllowCreateOnUpdate` upstream)."""
    returns_deleted: bool = False
    """Whether DELETE answers with the object and not with a Status (`ReturnDeletedObject` upstream)."""
    virtual: bool = False
    """Whether it is only ever answered to a create, and nothing is stored."""
    singular: str = ""
    list_kind: str = ""
    custom: CustomShape | None = None

    @property
    def id(self) -> ResourceId:
        return self.group, self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name errors use: `nodes`, `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def kind_of_list(self) -> str:
        return self.list_kind or f"{self.kind}List"

    @property
    def kind_singular(self) -> str:
        return self.singular or self.kind.lower()

    def has_status(self) -> bool:
        return "status" in self.subresources


def _fields(*names: str, **defaults: str) -> dict[str, str]:
    return dict.fromkeys(names, "") | {name.replace("_", "."): value for name, value in defaults.items()}


_POD_FIELDS = _fields(
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
    spec_hostNetwork="false",
)
_EVENT_FIELDS = _fields(
    *(
        f"involvedObject.{f}"
        for f in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    ),
    "reason",
    "type",
    "source",
    "reportingComponent",
)
_STATUS = ("status",)
_SCALABLE = ("status", "scale")

NAMESPACES = Resource(
    "",
    "v1",
    "namespaces",
    "Namespace",
    False,
    _STATUS,
    ("ns",),
    _fields("status.phase"),
    returns_deleted=True,
)
NODES = Resource("", "v1", "nodes", "Node", False, _STATUS, ("no",), _fields(spec_unschedulable="false"))
PODS = Resource(
    "", "v1", "pods", "Pod", True, ("status", "eviction", "binding"), ("po",), _POD_FIELDS, returns_deleted=True
)
SECRETS = Resource("", "v1", "secrets", "Secret", True, fields=_fields("type"))
EVENTS = Resource("", "v1", "events", "Event", True, (), ("ev",), _EVENT_FIELDS, create_on_update=True)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, short_names=("cm",))
SERVICE_ACCOUNTS = Resource(
    "", "v1", "serviceaccounts", "ServiceAccount", True, short_names=("sa",), returns_deleted=True
)
PERSISTENT_VOLUMES = Resource(
    "", "v1", "persistentvolumes", "PersistentVolume", False, _STATUS, ("pv",), returns_deleted=True
)
PERSISTENT_VOLUME_CLAIMS = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, _STATUS, ("pvc",), returns_deleted=True
)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", True, _STATUS, ("ds",), generation=True)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", True, _SCALABLE, ("deploy",), generation=True)
REPLICA_SETS = Resource(
    "apps", "v1", "replicasets", "ReplicaSet", True, _SCALABLE, ("rs",), _fields("status.replicas"), generation=True
)
DISRUPTION_BUDGETS = Resource(
    "policy",
    "v1",
    "poddisruptionbudgets",
    "PodDisruptionBudget",
    True,
    _STATUS,
    ("pdb",),
    generation=True,
    unconditional_update=False,
)
LEASES = Resource(
    "coordination.k8s.io", "v1", "leases", "Lease", True, unconditional_update=False, create_on_update=True
)
SIGNING_REQUESTS = Resource(
    "certificates.k8s.io",
    "v1",
    "certificatesigningrequests",
    "CertificateSigningRequest",
    False,
    ("status", "approval"),
    ("csr",),
    _fields("spec.signerName"),
)
VOLUME_ATTACHMENTS = Resource("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False, _STATUS)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, short_names=("pc",))
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False, virtual=True
)
SELF_REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False, virtual=True)
DEFINITIONS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    False,
    _STATUS,
    ("crd", "crds"),
    generation=True,
    unconditional_update=False,
)

BUILT_IN = (
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    CONFIG_MAPS,
    EVENTS,
    SERVICE_ACCOUNTS,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    DAEMON_SETS,
    DEPLOYMENTS,
    REPLICA_SETS,
    DISRUPTION_BUDGETS,
    LEASES,
    SIGNING_REQUESTS,
    VOLUME_ATTACHMENTS,
    PRIORITY_CLASSES,
    ACCESS_REVIEWS,
    SELF_REVIEWS,
    DEFINITIONS,
)


class Resources:
    """Every kind served at the moment, in the order of discovery."""

    def __init__(self) -> None:
        self._by_id: dict[ResourceId, Resource] = {r.id: r for r in BUILT_IN}

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._by_id.values())

    def add(self, resource: Resource) -> None:
        self._by_id[resource.id] = resource

    def remove(self, resource_id: ResourceId) -> None:
        self._by_id.pop(resource_id, None)

    def by_id(self, resource_id: ResourceId) -> Resource | None:
        return self._by_id.get(resource_id)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        found = self._by_id.get((group, plural))
        return found if found is not None and found.version == version else None

    def group_versions(self) -> dict[str, list[str]]:
        """API group to its served versions, the core group first."""
        groups: dict[str, list[str]] = {}
        for resource in self:
            versions = groups.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        return groups

    def of(self, group: str, version: str) -> list[Resource]:
        return [r for r in self if (r.group, r.version) == (group, version)]
