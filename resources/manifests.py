"""Every kind of manifest, as Gardener (machine.sapcloud.io/v1alpha1) and OpenShift (machine.openshift.io/v1) write
them, and the loader that turns YAML into them, with errors that say what, where and what to do."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_serializer, field_validator

from resources import judgement
from resources.base import NAME_MOST, Document, Key, Manifest, Name, cut, few
from resources.control_plane.judged import judge_openshift_spec, judge_translation
from resources.control_plane.manifest import ControlPlaneMachineSet
from resources.documents import DocumentError, documents
from resources.gardener import NODE, TEMPLATE, kind_elsewhere, without_effect
from resources.judged import ERROR_MOST, ERRORS_SHOWN, Judged, explain, judge_provider_spec, lines_of, shown
from resources.judgement import mistakes
from resources.machine.manifest import (
    DEFAULT_NODE_CONDITIONS,
    ClassRef,
    Machine,
    MachineSpec,
    NodeTemplate,
    ObjectMeta,
    SecretRef,
    Taint,
    TemplateMeta,
    TemplateSpec,
)
from resources.machine_config.objects import CONFIG_MODELS, ConfigObject, translated
from resources.names import CLUSTER_ANNOTATION
from resources.pool.manifest import MachineDeployment
from resources.spelling import did_you_mean
from resources.typed import mistyped
from resources.unknown import ignored_fields, unknown_fields
from resources.validation import Validate
from resources.worker_pool.judged import judge_infrastructure, judge_worker_pool
from resources.worker_pool.manifest import Infrastructure, WorkerPool
from resources.worker_pool.shoot import SHOOT, NoWorkers, workers_of

__all__ = [
    "DEFAULT_NODE_CONDITIONS",
    "KINDS",
    "AnyManifest",
    "ClassNodeTemplate",
    "ClassRef",
    "ControlPlaneMachineSet",
    "Infrastructure",
    "Loaded",
    "Machine",
    "MachineClass",
    "MachineDeployment",
    "MachineSpec",
    "ManifestError",
    "NodeTemplate",
    "ObjectMeta",
    "Secret",
    "SecretRef",
    "Taint",
    "TemplateMeta",
    "TemplateSpec",
    "Validate",
    "WorkerPool",
    "check_provider_spec",
    "cluster_of",
    "complaints",
    "load_manifests",
]


class ClassNodeTemplate(Manifest):
    """What an autoscaler that scales from zero expects of a node of this class."""

    capacity: Document = Field(default_factory=dict)
    """Resources of a node: cpu, memory, gpu, and so on."""
    virtual_capacity: Document = Field(default_factory=dict)
    """Resources that a node has besides those of its VM."""
    instance_type: Key | None = None
    """The instance type, for the node's label."""
    region: Name | None = None
    """The region, for the node's label."""
    zone: Key | None = None
    """The zone, for the node's label."""
    architecture: Key | None = None
    """The architecture of the CPU: amd64 or arm64."""


class MachineClass(Manifest):
    """How VMs are made: the cloud, its account and the parameters of a VM."""

    api_version: Literal["machine.sapcloud.io/v1alpha1"] = Field(default="machine.sapcloud.io/v1alpha1")
    """The version of the API, as Gardener and Kubernetes write it."""
    kind: Literal["MachineClass"] = "MachineClass"
    """The kind of object."""
    metadata: ObjectMeta
    provider: Name
    """The cloud, which must have a driver."""
    provider_spec: Document
    secret_ref: SecretRef
    """Holds `userData`, and the credentials where there is no credentialsSecretRef."""
    credentials_secret_ref: SecretRef | None = None
    """The Secret with the account's credentials; null: they are in secretRef."""
    node_template: ClassNodeTemplate | None = None


class Secret(Manifest):
    """Never sent to Temporal: `hostler apply` writes it to the configured source of secrets."""

    api_version: Literal["v1"] = "v1"
    """The version of the API, as Gardener and Kubernetes write it."""
    kind: Literal["Secret"] = "Secret"
    """The kind of object."""
    metadata: ObjectMeta
    type: Key = "Opaque"
    """The type of the Secret, as Kubernetes has it."""
    data: dict[Key, SecretStr] = Field(default_factory=dict)
    """Values in base64, as Kubernetes has them."""
    string_data: dict[Key, SecretStr] = Field(default_factory=dict)
    """Values in plain text; they win over `data`."""

    @field_validator("data")
    @classmethod
    def base64_values(cls, value: dict[Key, SecretStr]) -> dict[Key, SecretStr]:
        for key, text in value.items():
            try:
                base64.b64decode(text.get_secret_value(), validate=True)
            except (binascii.Error, ValueError):
                raise ValueError(f"{key}: not base64; write plain text under stringData") from None
        return value

    @field_validator("string_data")
    @classmethod
    def can_be_written(cls, value: dict[Key, SecretStr]) -> dict[Key, SecretStr]:
        for key, text in value.items():
            try:
                text.get_secret_value().encode()
            except UnicodeEncodeError:
                raise ValueError(f"{key}: half a character (a lone surrogate), which UTF-8 cannot write") from None
        return value

    @field_serializer("data", "string_data")
    def never(self, value: dict[Key, SecretStr]) -> dict[str, str]:
        return dict.fromkeys(value, "**********")

    def plain(self) -> dict[str, bytes]:
        """The values, decoded; stringData wins, as on the API server."""
        data = {k: base64.b64decode(v.get_secret_value()) for k, v in self.data.items()}
        return data | {k: v.get_secret_value().encode() for k, v in self.string_data.items()}


ClusterManifest = Machine | MachineClass | MachineDeployment | ControlPlaneMachineSet | WorkerPool | ConfigObject
"""A manifest of something that belongs to a cluster."""
AnyManifest = ClusterManifest | Infrastructure | Secret
KINDS: dict[str, type[Manifest]] = {
    "ControlPlaneMachineSet": ControlPlaneMachineSet,
    "Machine": Machine,
    "MachineClass": MachineClass,
    "MachineDeployment": MachineDeployment,
    "Secret": Secret,
    "WorkerPool": WorkerPool,
    "Infrastructure": Infrastructure,
    **CONFIG_MODELS,
}
OF_CLOUD: Mapping[type[Manifest], Callable[[dict[str, Any], str, Judged], None]] = {
    MachineClass: lambda given, where, judged: judge_provider_spec(
        given.get("provider"), given.get("providerSpec"), where, judged
    ),
    ControlPlaneMachineSet: judge_openshift_spec,
    WorkerPool: judge_worker_pool,
    Infrastructure: judge_infrastructure,
}
"""What judges the parts of each kind whose fields depend on the cloud."""


class ManifestError(ValueError):
    """Bad input; the message says where (file, document, field), what and what to do."""

    def __init__(self, message: str, warnings: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.warnings = list(warnings)
        """What would have been warned of, had nothing been wrong."""


@dataclass
class Loaded:
    machines: list[Machine] = field(default_factory=list)
    pools: list[MachineDeployment] = field(default_factory=list)
    control_planes: list[ControlPlaneMachineSet] = field(default_factory=list)
    classes: list[MachineClass] = field(default_factory=list)
    secrets: list[Secret] = field(default_factory=list)
    worker_pools: list[WorkerPool] = field(default_factory=list)
    infrastructures: list[Infrastructure] = field(default_factory=list)
    configs: list[ConfigObject] = field(default_factory=list)
    """Custom resources of machine configs."""
    warnings: list[str] = field(default_factory=list)

    def add(self, manifest: Manifest) -> None:
        of_kind: dict[type[Manifest], list[Any]] = {
            Machine: self.machines,
            MachineDeployment: self.pools,
            ControlPlaneMachineSet: self.control_planes,
            MachineClass: self.classes,
            Secret: self.secrets,
            WorkerPool: self.worker_pools,
            Infrastructure: self.infrastructures,
            **dict.fromkeys(CONFIG_MODELS.values(), self.configs),
        }
        of_kind[type(manifest)].append(manifest)

    @property
    def manifests(self) -> list[AnyManifest]:
        """All of them, in the order in which `apply` sends them."""
        made: list[AnyManifest] = [*self.secrets, *self.configs, *self.classes, *self.infrastructures]
        return [*made, *self.worker_pools, *self.pools, *self.control_planes, *self.machines]


def load_manifests(text: str, source: str, validate: Validate = Validate.STRICT) -> Loaded:
    """All documents of a YAML stream. `source` is the file's name, for messages.

    Raises ManifestError with everything that is wrong in all of them; nothing is half loaded.
    """
    loaded = Loaded()
    try:
        found = documents(text)
    except DocumentError as e:
        raise ManifestError(f"{source}{shown(str(e), ERROR_MOST)}") from None
    judged = [
        _judged(item, where, loaded)
        for n, document in enumerate(found, start=1)
        if document is not None
        for item, where in _items(document, f"{source} (document {n})")
    ]
    wrong = [line for one in judged for line in one.errors]
    unknown = [line for one in judged for line in one.unknown]
    if validate == Validate.STRICT and unknown:
        way_out = "nothing is sent; correct the unknown fields, or go on without them: --validate=warn"
        wrong = [*few([*wrong, *unknown], ERRORS_SHOWN), f"{source}: {way_out}"]
    loaded.warnings += [w for one in judged for w in one.warnings]
    if validate == Validate.WARN:
        loaded.warnings += unknown
    if wrong:
        raise ManifestError("\n".join(few(wrong, ERRORS_SHOWN + 1)), few(loaded.warnings, ERRORS_SHOWN))
    return loaded


def _items(document: Any, where: str) -> Iterator[tuple[Any, str]]:
    """The document; or the items of a List, `kubectl get -o yaml` of several objects; or the workers of a Shoot."""
    if isinstance(document, dict) and document.get("kind") == SHOOT:
        try:
            yield from ((worker, f"{where}: {SHOOT} {at}") for worker, at in workers_of(document))
        except NoWorkers as e:
            yield e, f"{where}: {SHOOT}"
        return
    is_list = isinstance(document, dict) and document.get("kind") == "List"
    items = (document.get("items") or []) if is_list else None
    if not isinstance(items, list):
        yield document, where
        return
    for i, item in enumerate(items):
        yield from _items(item, f"{where} items[{i}]")


def _judged(document: Any, where: str, loaded: Loaded) -> Judged:
    """Judges one manifest, and loads it if nothing is wrong with it."""
    judged = Judged()
    if isinstance(document, NoWorkers):
        judged.errors += lines_of(where, [str(document)])
        return judged
    document = translated(document) if isinstance(document, dict) else document
    kind = document.get("kind") if isinstance(document, dict) else None
    model = KINDS.get(str(kind))
    if model is None:
        judged.errors += lines_of(where, [_no_manifest(document, kind)])
        return judged
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    where = f"{where}: {kind} {shown(str(name or '(no name)'), NAME_MOST)}"
    document = {k: v for k, v in document.items() if k != "status"}  # `get -o yaml` carries it; it is never input
    judged.unknown += lines_of(where, unknown_fields(model, document))
    judged.warnings += lines_of(where, ignored_fields(model, document))
    if model in OF_CLOUD:
        OF_CLOUD[model](document, where, judged)
    types = dict(mistyped(model, document))
    judged.errors += lines_of(where, (f"{path}: {words}" for path, words in types.items()))
    try:
        manifest = model.model_validate(document)
    except ValidationError as e:
        judged.errors += explain(e, where, known=types)
        judged.errors += lines_of(where, (f"{path}: {words}" for path, words in judgement.written(model, document)))
        return judged
    judged.errors += lines_of(where, (f"{path}: {words}" for path, words in mistakes(manifest)))
    judged.warnings += lines_of(where, _without_effect(manifest))
    if isinstance(manifest, ControlPlaneMachineSet) and not judged.errors:
        judge_translation(manifest, where, judged)
    loaded.add(manifest)
    return judged


def complaints(manifest: AnyManifest, validate: Validate = Validate.STRICT) -> list[str]:
    """What is wrong with a manifest that a program has made, in words; the loader has judged those of files."""
    judged, where = Judged(), f"{manifest.kind} {shown(manifest.metadata.name, NAME_MOST)}"
    given = manifest.model_dump(by_alias=True)
    judged.unknown += lines_of(where, unknown_fields(type(manifest), given))
    if type(manifest) in OF_CLOUD:
        OF_CLOUD[type(manifest)](given, where, judged)
    judged.errors += lines_of(where, (f"{path}: {words}" for path, words in mistakes(manifest)))
    if isinstance(manifest, ControlPlaneMachineSet) and not judged.errors:
        judge_translation(manifest, where, judged)
    return [*judged.errors, *(judged.unknown if validate == Validate.STRICT else [])]


def _no_manifest(document: Any, kind: Any) -> str:
    if not isinstance(document, dict):
        return f"a manifest is a mapping with apiVersion and kind, not {type(document).__name__}"
    if kind == "List":
        return f"items: a List has a list of manifests, not {type(document.get('items')).__name__}"
    why = ""
    if isinstance(kind, str) and len(kind) < NAME_MOST:
        there = kind_elsewhere(kind)
        why = f"; {there}" if there else did_you_mean(kind, KINDS)
    return f"kind {cut(repr(kind), 100)} is not known; the known kinds are {', '.join(sorted(KINDS))}{why}"


def _without_effect(manifest: Manifest) -> Iterator[str]:
    """What MCM would act on and Hostler does not, wherever labels and annotations stand in the manifest."""
    meta = manifest.metadata  # type: ignore[attr-defined]
    kind = type(manifest).__name__
    yield from without_effect(kind, meta.annotations, meta.labels, "metadata")
    if isinstance(manifest, MachineDeployment):
        template = manifest.spec.template
        at = template.metadata
        yield from without_effect(TEMPLATE, at.annotations, at.labels, "spec.template.metadata")
        yield from _of_node(template.spec, "spec.template.spec")
    elif isinstance(manifest, Machine):
        yield from _of_node(manifest.spec, "spec")
    elif isinstance(manifest, MachineClass) and manifest.node_template is not None:
        yield "nodeTemplate: without effect: cluster-autoscaler reads it from MCM's objects, and Hostler makes none"


def _of_node(spec: MachineSpec, path: str) -> Iterator[str]:
    at = spec.node_template.metadata
    yield from without_effect(NODE, at.annotations, at.labels, f"{path}.nodeTemplate.metadata")


def check_provider_spec(manifest: MachineClass, where: str) -> list[str]:
    """Warnings about the provider spec, unknown fields among them; raises ManifestError when it is wrong."""
    judged = Judged()
    judge_provider_spec(manifest.provider, manifest.provider_spec, where, judged)
    if judged.errors:
        raise ManifestError("\n".join(few(judged.errors, ERRORS_SHOWN)))
    return [line.removeprefix(f"{where}: providerSpec.") for line in (*judged.unknown, *judged.warnings)]


def cluster_of(manifest: ClusterManifest, option: str | None, default: str) -> str:
    """`--cluster`, else the annotation, else the default."""
    return option or manifest.metadata.annotations.get(CLUSTER_ANNOTATION) or default
