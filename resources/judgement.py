"""What an API server, or a driver, would refuse of a manifest later: judged by one validator at every door (files, the
SDK, the messages and starts of workflows), for a state that holds it must be readable whatever it says.

Each function yields the path of what is wrong and why. Annotations' values are never quoted: they may be secrets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from pydantic import BaseModel

from resources.apimachinery import annotation_key, config_key, dns_label, dns_subdomain, label_value, qualified_name
from resources.base import cut, few
from resources.clouds import annotation_mistakes
from resources.control_plane.manifest import ControlPlaneMachineSet, ControlPlaneTemplate, domain_mistakes
from resources.control_plane.spec import ControlPlaneSpec
from resources.effects import inner_model
from resources.gardener import AUTO_PRESERVED
from resources.machine.manifest import (
    ClassRef,
    Machine,
    MachineSpec,
    MachineTemplate,
    ObjectMeta,
    SecretRef,
    Taint,
    TemplateMeta,
)
from resources.machine.preservation import PreserveValue
from resources.machine_config.judged import config_mistakes
from resources.machine_config.objects import ConfigMeta, ConfigObject
from resources.names import CLUSTER_ANNOTATION, PRESERVE_ANNOTATION
from resources.partial import Partial, readable
from resources.pool.manifest import MachineDeployment, MachineDeploymentSpec
from resources.spelling import did_you_mean
from resources.worker_pool.manifest import WorkerPool, WorkerPoolSpec

Mistakes = Iterator[tuple[str, str]]
QUOTED = 79
"""The most characters of a key or value in a message; scrubbers hide words of 80 (resources/redact.py)."""
NAMED = 3
"""How many mistakes a workflow's refusal names: a journal keeps it."""


def invalid(text: str, why: str) -> str:
    """Kubernetes' form of it."""
    return f'Invalid value: "{_quoted(text)}": {why}'


def _quoted(text: str) -> str:
    return cut(text if text.isprintable() else repr(text)[1:-1], QUOTED)


def _checked(path: str, text: str | None, why: str) -> Mistakes:
    if text is not None and why:
        yield path, invalid(text, why)


def labels(given: Mapping[str, str], path: str) -> Mistakes:
    for key, value in given.items():
        yield from _checked(path, key, qualified_name(key))
        yield from _checked(f"{path}.{_quoted(key)}", value, label_value(value))


def annotation_keys(given: Mapping[str, str], path: str) -> Mistakes:
    for key in given:
        yield from _checked(path, key, annotation_key(key))


def preserve(given: Mapping[str, str], path: str) -> Mistakes:
    """Judges annotations that ask for a preservation (seed 003, point 3)."""
    value = given.get(PRESERVE_ANNOTATION)
    known = tuple(map(str, PreserveValue))
    if value is not None and value not in (*known, AUTO_PRESERVED):
        words = f"supported values: {', '.join(known)}{did_you_mean(value[:QUOTED], known)}"
        yield f"{path}.{PRESERVE_ANNOTATION}", f'Unsupported value: "{_quoted(value)}": {words}'


def taints(given: list[Taint], path: str) -> Mistakes:
    seen = set()
    for n, taint in enumerate(given):
        yield from _checked(f"{path}[{n}].key", taint.key, qualified_name(taint.key))
        yield from _checked(f"{path}[{n}].value", taint.value, label_value(taint.value or ""))
        if (taint.key, taint.effect) in seen:
            yield f"{path}[{n}]", f'Duplicate value: "{_quoted(taint.key)}:{taint.effect}": taints are unique by both'
        seen.add((taint.key, taint.effect))


def secret_ref(ref: SecretRef | None, path: str) -> Mistakes:
    if ref is not None:
        yield from _checked(f"{path}.name", ref.name, dns_subdomain(ref.name))
        yield from _checked(f"{path}.namespace", ref.namespace, dns_label(ref.namespace))


def class_ref(ref: ClassRef, path: str) -> Mistakes:
    yield from _checked(f"{path}.name", ref.name, dns_subdomain(ref.name))


def machine_spec(spec: MachineSpec, path: str) -> Mistakes:
    node, below = spec.node_template, f"{path}.nodeTemplate"
    yield from class_ref(spec.class_, f"{path}.class")
    yield from labels(node.metadata.labels, f"{below}.metadata.labels")
    yield from annotation_keys(node.metadata.annotations, f"{below}.metadata.annotations")
    yield from preserve(node.metadata.annotations, f"{below}.metadata.annotations")
    for key, words in annotation_mistakes(node.metadata.annotations):
        yield f"{below}.metadata.annotations.{key}", words
    yield from taints(node.spec.taints, f"{below}.spec.taints")


def pool_spec(spec: MachineDeploymentSpec, path: str) -> Mistakes:
    if spec.selector is not None:
        yield from labels(spec.selector.match_labels, f"{path}.selector.matchLabels")
    yield from template(spec.template, f"{path}.template")


def template(given: MachineTemplate, path: str) -> Mistakes:
    yield from template_meta(given.metadata, f"{path}.metadata")
    yield from machine_spec(given.spec, f"{path}.spec")


def template_meta(meta: TemplateMeta, path: str) -> Mistakes:
    yield from labels(meta.labels, f"{path}.labels")
    yield from annotation_keys(meta.annotations, f"{path}.annotations")
    yield from preserve(meta.annotations, f"{path}.annotations")


def control_plane_template(given: ControlPlaneTemplate, path: str) -> Mistakes:
    for at, words in domain_mistakes(given):
        yield f"{path}.{at}", words
    theirs, below = given.machines_v1beta1_machine_openshift_io, f"{path}.{given.path}"
    if theirs is not None:
        node = theirs.spec.metadata
        yield from template_meta(theirs.metadata, f"{below}.metadata")
        yield from labels(node.labels, f"{below}.spec.metadata.labels")
        yield from annotation_keys(node.annotations, f"{below}.spec.metadata.annotations")
        yield from taints(theirs.spec.taints, f"{below}.spec.taints")
    elif given.spec is not None:
        yield from template_meta(given.metadata or TemplateMeta(), f"{below}.metadata")
        yield from machine_spec(given.spec, f"{below}.spec")


def worker_pool_spec(spec: WorkerPoolSpec, path: str) -> Mistakes:
    yield from labels(spec.labels, f"{path}.labels")
    yield from annotation_keys(spec.annotations, f"{path}.annotations")
    yield from preserve(spec.annotations, f"{path}.annotations")
    for key, words in annotation_mistakes(spec.annotations):
        yield f"{path}.annotations.{key}", words
    yield from taints(spec.taints, f"{path}.taints")


def metadata(meta: ObjectMeta | ConfigMeta) -> Mistakes:
    yield from _checked("metadata.name", meta.name, dns_subdomain(meta.name))
    if isinstance(meta, ObjectMeta):
        yield from _checked("metadata.namespace", meta.namespace, dns_label(meta.namespace))
    yield from labels(meta.labels, "metadata.labels")
    yield from annotation_keys(meta.annotations, "metadata.annotations")
    cluster = meta.annotations.get(CLUSTER_ANNOTATION)
    if cluster:
        yield from _checked(f"metadata.annotations.{CLUSTER_ANNOTATION}", cluster, dns_subdomain(cluster))


def mistakes(manifest: BaseModel) -> Mistakes:
    """What is wrong with a manifest of any kind, beside what its model refuses and its provider spec."""
    return of_parts(type(manifest), {name: getattr(manifest, name) for name in type(manifest).model_fields})


def written(model: type[BaseModel], given: Mapping[str, Any]) -> Mistakes:
    """The same of one that its model refuses, as it was written: of all in it that can be read."""
    parts: dict[str, Any] = {}
    touched: dict[str, Partial] = {}
    for name, info in model.model_fields.items():
        alias = info.alias or name
        below, _ = inner_model(info.annotation)
        if below is not None and isinstance(given.get(alias), dict):
            touched[alias] = found = readable(below, given[alias])
            parts[name] = found.model
        elif below is None and isinstance(given.get(alias), dict):
            parts[name] = given[alias]
    for path, words in of_parts(model, parts):
        top, _, rest = path.partition(".")
        if top not in touched or touched[top].judges(rest):
            yield path, words


def of_parts(model: type[BaseModel], parts: Mapping[str, Any]) -> Mistakes:
    """`parts`: the fields of a manifest of this kind by name; None, or none, for one that cannot be read."""
    meta, spec = parts.get("metadata"), parts.get("spec")
    if meta is not None:
        yield from metadata(meta)
    if issubclass(model, Machine):
        yield from preserve(meta.annotations if meta is not None else {}, "metadata.annotations")
        if spec is not None and spec.provider_id is not None:
            yield (
                "spec.providerID",
                "Hostler creates the VM; leave it out, or take over one of its own: `hostler adopt`",
            )
        yield from machine_spec(spec, "spec") if spec is not None else ()
    elif issubclass(model, MachineDeployment) and spec is not None:
        yield from pool_spec(spec, "spec")
    elif issubclass(model, WorkerPool) and spec is not None:
        yield from worker_pool_spec(spec, "spec")
    elif issubclass(model, ControlPlaneMachineSet) and spec is not None:
        yield from labels(spec.selector.match_labels, "spec.selector.matchLabels")
        yield from control_plane_template(spec.template, "spec")
    elif issubclass(model, ConfigObject):
        yield from config_mistakes(model, meta.name if meta is not None else "", spec)
    yield from secret_ref(parts.get("secret_ref"), "secretRef")
    yield from secret_ref(parts.get("credentials_secret_ref"), "credentialsSecretRef")
    for path, keys in (("data", parts.get("data")), ("stringData", parts.get("string_data"))):
        for key in keys or ():
            yield from _checked(path, str(key), config_key(str(key)))


def message(given: Any) -> str:
    """What is wrong with what a workflow is told or begins with, in words; "" for what holds no manifest.

    A machine of an owner is not judged: it is as its owner was told, which may have been before this was judged.
    """
    if not isinstance(given, BaseModel) or getattr(given, "owner", None) is not None:
        return ""
    spec, marks = getattr(given, "spec", None), getattr(given, "annotations", {})
    found: Mistakes = iter(())
    if isinstance(spec, MachineSpec):
        found = chain(machine_spec(spec, "spec"), preserve(marks, "annotations"))
    elif isinstance(spec, MachineDeploymentSpec):
        found = pool_spec(spec, "spec")
    elif isinstance(spec, ControlPlaneSpec):
        found = template(spec.template, "spec.template")
    elif getattr(given, "machine_class", None) is None:
        return ""
    every = chain(labels(getattr(given, "labels", {}), "labels"), annotation_keys(marks, "annotations"), found)
    return "; ".join(few([f"{path}: {words}" for path, words in every], NAMED))
