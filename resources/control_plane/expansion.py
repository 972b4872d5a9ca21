"""What a ControlPlaneMachineSet comes to: a MachineClass, where its template is OpenShift's, and the spec that its
workflow is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from resources.control_plane.manifest import (
    API,
    CLUSTER_LABEL,
    KIND,
    ROLE_LABEL,
    ControlPlaneMachineSet,
    ControlPlaneTemplate,
    OpenShiftTemplate,
)
from resources.control_plane.spec import ControlPlaneSpec
from resources.control_plane.translation import fields_of, provider_of_kind, translate
from resources.machine.manifest import (
    ClassRef,
    MachineTemplate,
    NodeTemplate,
    ObjectMeta,
    TemplateMachineSpec,
    TemplateMeta,
    TemplateSpec,
)
from resources.manifests import MachineClass
from resources.names import CLUSTER_ANNOTATION
from resources.selectors import LabelSelector

CLASS_NAME = "controlplane"
"""The name of the MachineClass that an OpenShift template becomes."""
MADE_FROM = "hostler.io/made-from"
"""On that class: the kind of manifest that it was made from. A class without it is a person's own."""


@dataclass(frozen=True)
class Expanded:
    machine_class: MachineClass | None
    """None: the template names a class that is applied on its own."""
    spec: ControlPlaneSpec


def expand(manifest: ControlPlaneMachineSet) -> Expanded:
    """Expands a manifest without mistakes."""
    spec = manifest.spec
    theirs = spec.template.machines_v1beta1_machine_openshift_io
    return Expanded(
        machine_class=_class_of(theirs, manifest.metadata) if theirs else None,
        spec=ControlPlaneSpec(
            replicas=spec.replicas,
            state=spec.state,
            strategy=spec.strategy.type,
            name_prefix=spec.machine_name_prefix or (_prefix(theirs.metadata.labels) if theirs else ""),
            failure_domains={domain.name: fields_of(domain) for domain in spec.template.domains},
            template=_from_openshift(theirs) if theirs else _from_ours(spec.template),
            selector=spec.selector,
            etcd_guard=spec.etcd.guard,
        ),
    )


def manifest_of(spec: ControlPlaneSpec, provider: str, metadata: ObjectMeta) -> ControlPlaneMachineSet:
    """The manifest, in our own form, that comes to this spec. `provider`: that of its class."""
    given: dict[str, Any] = {
        "replicas": spec.replicas,
        "state": spec.state,
        "strategy": {"type": spec.strategy},
        "template": {"metadata": spec.template.metadata, "spec": spec.template.spec},
    }
    if spec.name_prefix:
        given["machineNamePrefix"] = spec.name_prefix
    if spec.selector != LabelSelector():
        given["selector"] = spec.selector
    if spec.failure_domains:
        domains = list(spec.failure_domains.values())
        given["template"]["failureDomains"] = {"platform": provider, provider.lower(): domains}
    if spec.etcd_guard:
        given["etcd"] = {"guard": True}
    return ControlPlaneMachineSet.model_validate({"apiVersion": API, "kind": KIND, "metadata": metadata, "spec": given})


def _prefix(labels: dict[str, str]) -> str:
    """The beginning of names as OpenShift gives them: by cluster and role."""
    return f"{labels[CLUSTER_LABEL]}-{labels[ROLE_LABEL]}"


def _class_of(theirs: OpenShiftTemplate, meta: ObjectMeta) -> MachineClass:
    value = theirs.spec.provider_spec.value or {}
    provider = provider_of_kind(value.get("kind"))
    found = translate(theirs, provider, provider.openshift.model_validate(value), meta.namespace)
    cluster = {k: v for k, v in meta.annotations.items() if k == CLUSTER_ANNOTATION}
    return MachineClass(
        metadata=ObjectMeta(name=CLASS_NAME, namespace=meta.namespace, annotations={MADE_FROM: KIND, **cluster}),
        provider=found.provider,
        provider_spec=found.provider_spec,
        secret_ref=found.secret_ref,
        credentials_secret_ref=found.credentials_secret_ref,
    )


def _from_openshift(theirs: OpenShiftTemplate) -> MachineTemplate:
    spec = theirs.spec
    node = NodeTemplate(
        metadata=TemplateMeta(labels=spec.metadata.labels, annotations=spec.metadata.annotations),
        spec=TemplateSpec(taints=spec.taints),
    )
    return MachineTemplate(
        metadata=theirs.metadata,
        spec=TemplateMachineSpec(
            class_=ClassRef(name=CLASS_NAME), node_template=node, lifecycle_hooks=spec.lifecycle_hooks
        ),
    )


def _from_ours(template: ControlPlaneTemplate) -> MachineTemplate:
    assert template.spec is not None
    return MachineTemplate(metadata=template.metadata or TemplateMeta(), spec=template.spec)
