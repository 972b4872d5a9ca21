"""OpenShift's machine spec in a template, as the MachineClass that it comes to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from resources.clouds import PROVIDERS, Provider, in_domain
from resources.clouds.openshift import Mistake, OpenShiftSpec, SecretName
from resources.control_plane.manifest import CLUSTER_LABEL, ControlPlaneTemplate, OpenShiftTemplate
from resources.machine.manifest import SecretRef
from resources.spelling import did_you_mean

PROVIDER_SPEC = "spec.providerSpec.value"
"""Where OpenShift's spec stands in its template."""


@dataclass(frozen=True)
class Translation:
    """A class without a name."""

    provider: str
    provider_spec: dict[str, Any]
    secret_ref: SecretRef
    credentials_secret_ref: SecretRef | None


def provider_of_kind(kind: Any) -> Provider:
    """The cloud whose machine spec OpenShift calls so. Raises ValueError, in words."""
    kinds = {provider.openshift.KIND: provider for provider in PROVIDERS.values()}
    if isinstance(kind, str) and kind in kinds:
        return kinds[kind]
    known = ", ".join(sorted(kinds))
    if not isinstance(kind, str) or not kind:
        raise ValueError(f"missing: it says which cloud's spec this is; those that can be translated are {known}")
    raise ValueError(f"cannot be translated; those that can are {known}{did_you_mean(kind[:79], kinds)}")


def mistakes(template: ControlPlaneTemplate, given: OpenShiftSpec) -> Iterator[Mistake]:
    """Path below OpenShift's spec, and words for what is wrong with it, beside its fields' marks."""
    yield from given.mistakes(template.domains)
    if given.user_data_secret is None:
        yield "userDataSecret", "missing: it names the Secret with the user data"


def translate(theirs: OpenShiftTemplate, provider: Provider, given: OpenShiftSpec, namespace: str) -> Translation:
    """The class of a spec without mistakes. Where failure domains name the place, it is in the first one by name:
    each machine's own takes its place."""
    domains = sorted(theirs.failure_domains.found if theirs.failure_domains else [], key=lambda d: d.name)
    spec = given.translated(theirs.metadata.labels[CLUSTER_LABEL])
    spec = in_domain(provider.name, spec, fields_of(domains[0]) if domains else {})
    assert given.user_data_secret is not None
    return Translation(
        provider.name,
        spec,
        _ref(given.user_data_secret, namespace),
        _ref(given.credentials_secret, namespace) if given.credentials_secret else None,
    )


def _ref(given: SecretName, namespace: str) -> SecretRef:
    return SecretRef(name=given.name, namespace=given.namespace or namespace)


def fields_of(domain: BaseModel) -> dict[str, Any]:
    """A failure domain's fields, as they were written."""
    return domain.model_dump(mode="json", by_alias=True, exclude_unset=True)
