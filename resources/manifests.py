"""Every kind of manifest, as Gardener writes them (machine.sapcloud.io/v1alpha1), and the loader that turns YAML into
them, with errors that say what, where and what to do."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, Field, SecretStr, ValidationError, field_serializer, field_validator

from resources.base import NAME_MOST, Document, Key, Manifest, Name, cut, few
from resources.clouds import UnknownProvider, annotation_mistakes, provider_of
from resources.documents import DocumentError, documents
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
from resources.names import CLUSTER_ANNOTATION
from resources.pool.manifest import MachineDeployment

__all__ = [
    "DEFAULT_NODE_CONDITIONS",
    "KINDS",
    "AnyManifest",
    "ClassNodeTemplate",
    "ClassRef",
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
    "check_provider_spec",
    "cluster_of",
    "load_manifests",
    "unknown_fields",
]


class ClassNodeTemplate(Manifest):
    """What an autoscaler that scales from zero expects of a node of this class."""

    capacity: Document = Field(default_factory=dict)
    virtual_capacity: Document = Field(default_factory=dict)
    instance_type: Key | None = None
    region: Name | None = None
    zone: Key | None = None
    architecture: Key | None = None


class MachineClass(Manifest):
    api_version: Literal["machine.sapcloud.io/v1alpha1"] = Field(default="machine.sapcloud.io/v1alpha1")
    kind: Literal["MachineClass"] = "MachineClass"
    metadata: ObjectMeta
    provider: Name
    provider_spec: Document
    secret_ref: SecretRef
    """Holds `userData`, and the credentials where there is no credentialsSecretRef."""
    credentials_secret_ref: SecretRef | None = None
    node_template: ClassNodeTemplate | None = None


class Secret(Manifest):
    """Never sent to Temporal: `hostler apply` writes it to the configured source of secrets."""

    api_version: Literal["v1"] = "v1"
    kind: Literal["Secret"] = "Secret"
    metadata: ObjectMeta
    type: Key = "Opaque"
    data: dict[Key, SecretStr] = Field(default_factory=dict)
    """Values in base64, as Kubernetes has them."""
    string_data: dict[Key, SecretStr] = Field(default_factory=dict)

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


AnyManifest = Machine | MachineClass | MachineDeployment | Secret
KINDS: dict[str, type[Manifest]] = {
    "Machine": Machine,
    "MachineClass": MachineClass,
    "MachineDeployment": MachineDeployment,
    "Secret": Secret,
}

ERROR_MOST = 500
"""The most characters of one error."""
ERRORS_SHOWN = 20


class ManifestError(ValueError):
    """Bad input; the message says where (file, document, field), what and what to do."""


@dataclass
class Loaded:
    machines: list[Machine] = field(default_factory=list)
    pools: list[MachineDeployment] = field(default_factory=list)
    classes: list[MachineClass] = field(default_factory=list)
    secrets: list[Secret] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def load_manifests(text: str, source: str) -> Loaded:
    """All documents of a YAML stream. `source` is the file's name, for messages.

    Raises ManifestError for the first document that is wrong, with all its wrong fields; nothing is half loaded.
    """
    loaded = Loaded()
    try:
        found = documents(text)
    except DocumentError as e:
        raise ManifestError(f"{source}{shown(str(e), ERROR_MOST)}") from None
    for n, document in enumerate(found, start=1):
        if document is None:
            continue
        for item, where in _items(document, f"{source} (document {n})"):
            _load_one(item, where, loaded)
    return loaded


def _items(document: Any, where: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The document, or the items of a List: `kubectl get -o yaml` of several objects."""
    if not isinstance(document, dict):
        raise ManifestError(f"{where}: a manifest is a mapping with apiVersion and kind, not {type(document).__name__}")
    if document.get("kind") == "List":
        items = document.get("items") or []
        if not isinstance(items, list):
            raise ManifestError(f"{where}: items: a List has a list of manifests, not {type(items).__name__}")
        for i, item in enumerate(items):
            yield from _items(item, f"{where} items[{i}]")
        return
    yield document, where


def _load_one(document: dict[str, Any], where: str, loaded: Loaded) -> None:
    kind = document.get("kind")
    model = KINDS.get(str(kind))
    if model is None:
        raise ManifestError(
            f"{where}: kind {cut(repr(kind), 100)} is not known; the known kinds are {', '.join(sorted(KINDS))}"
        )
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    where = f"{where}: {kind} {shown(str(name or '(no name)'), NAME_MOST)}"
    document = {k: v for k, v in document.items() if k != "status"}  # `get -o yaml` carries it; it is never input
    try:
        manifest = model.model_validate(document)
    except ValidationError as e:
        raise ManifestError(_explain(e, where)) from None
    loaded.warnings += [f"{where}: {path}: unknown field, ignored" for path in unknown_fields(manifest)]
    if isinstance(manifest, MachineClass):
        loaded.warnings += [f"{where}: providerSpec.{w}" for w in check_provider_spec(manifest, where)]
        loaded.classes.append(manifest)
    elif isinstance(manifest, Secret):
        loaded.secrets.append(manifest)
    elif isinstance(manifest, MachineDeployment):
        _check_annotations(manifest.spec.template.spec, f"{where}: spec.template.spec")
        loaded.pools.append(manifest)
    elif isinstance(manifest, Machine):
        _check_annotations(manifest.spec, f"{where}: spec")
        loaded.machines.append(manifest)


def _check_annotations(spec: MachineSpec, where: str) -> None:
    """Raises ManifestError for an annotation of the node template that a cloud's driver could not read."""
    wrong = annotation_mistakes(spec.node_template.metadata.annotations)
    if wrong:
        lines = [f"{where}.nodeTemplate.metadata.annotations.{key}: {words}" for key, words in wrong]
        raise ManifestError("\n".join(shown(line, ERROR_MOST) for line in lines))


def check_provider_spec(manifest: MachineClass, where: str) -> list[str]:
    """Warnings about the provider spec; raises ManifestError when it is wrong."""
    try:
        provider = provider_of(manifest.provider)
    except UnknownProvider as e:
        raise ManifestError(f"{where}: {e}") from None
    try:
        spec = provider.spec.model_validate(manifest.provider_spec)
    except ValidationError as e:
        raise ManifestError(_explain(e, where, "providerSpec.")) from None
    if mistakes := [*spec.mistakes(), *spec.crowding()]:
        lines = [shown(f"{where}: providerSpec.{path}: {words}", ERROR_MOST) for path, words in mistakes]
        raise ManifestError("\n".join(few(lines, ERRORS_SHOWN)))
    return [
        *(f"{path}: unknown field, ignored" for path in unknown_fields(spec)),
        *(f"{path}: {advice}" for path, advice in spec.deprecations()),
    ]


# Set by the API server or by Gardener's controllers; they mean nothing to us and deserve no warning.
_QUIET = {"creationTimestamp", "generation", "resourceVersion", "uid", "finalizers", "managedFields", "ownerReferences"}


def unknown_fields(model: BaseModel, prefix: str = "") -> Iterator[str]:
    """Paths of fields that the model does not know."""
    for key in model.model_extra or {}:
        if not (prefix.endswith("metadata.") and key in _QUIET):
            yield f"{prefix}{shown(key, NAME_MOST)}"
    for name, info in type(model).model_fields.items():
        path = f"{prefix}{info.alias or name}"
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from unknown_fields(value, f"{path}.")
        elif isinstance(value, list):
            for i, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from unknown_fields(item, f"{path}[{i}].")


def shown(text: str, most: int) -> str:
    """The text as part of a message: bounded, and without characters that do not belong in a line."""
    return cut(text if text.isprintable() else repr(text)[1:-1], most)


def _explain(error: ValidationError, where: str, prefix: str = "") -> str:
    """One line per wrong field. The input is never quoted: it may be a secret."""
    lines = []
    for e in error.errors(include_url=False):
        steps = (f"[{p}]" if isinstance(p, int) else f".{shown(p, NAME_MOST)}" for p in e["loc"])
        path = "".join(steps).lstrip(".")
        message = shown(e["msg"].removeprefix("Value error, "), ERROR_MOST)
        if e["type"] == "string_type" and isinstance(e["input"], bool | int | float):
            what = "true or false" if isinstance(e["input"], bool) else "a number"
            message += f"; YAML reads it as {what}: put it in quotes"
        lines.append(f"{where}: {prefix}{path}: {message}" if path else f"{where}: {prefix.rstrip('.')} {message}")
    return "\n".join(few(lines, ERRORS_SHOWN))


def cluster_of(manifest: Machine | MachineClass | MachineDeployment, option: str | None, default: str) -> str:
    """`--cluster`, else the annotation, else the default."""
    return option or manifest.metadata.annotations.get(CLUSTER_ANNOTATION) or default
