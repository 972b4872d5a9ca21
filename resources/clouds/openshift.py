"""OpenShift's MachineProviderSpecs (openshift/api, machine/v1beta1), which become provider specs of ours.

Each cloud has a model of its own one, whose every field carries a mark that says what becomes of it. The marks are the
table in docs/control-plane.md, and the rule: what is rejected where it is given is rejected by its mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel

from resources.base import Document, Key, Manifest, Name
from resources.clouds.domain import FailureDomain
from resources.effects import inner_model

Mistake = tuple[str, str]
"""A path below the spec, and words."""


@dataclass(frozen=True)
class Becomes:
    """A field that is translated."""

    path: str
    """The field of ours that it becomes; `secretRef` and `credentialsSecretRef` stand beside the provider spec."""
    but: str = ""
    """What of it is rejected, or how its values differ."""

    def __str__(self) -> str:
        return f"Becomes {self.path}{f' ({self.but})' if self.but else ''}."


@dataclass(frozen=True)
class Unused:
    """A field that is taken and does nothing."""

    why: str

    def __str__(self) -> str:
        return f"Without effect: {self.why}."


@dataclass(frozen=True)
class Rejected:
    """A field that is not taken: what it asks for would not be done."""

    why: str
    """The reason, and what to do."""

    def __str__(self) -> str:
        return f"Rejected: {self.why}."


Fate = Becomes | Unused | Rejected
"""What becomes of a field: the mark that it carries."""
SERVERS = Unused("an API server's own")
DEFAULT = Unused("what is done anyway")


class SecretName(Manifest):
    """A Secret, by name."""

    name: Name
    """The name of the Secret."""
    namespace: Name | None = None
    """The namespace; null: that of the manifest."""


class OpenShiftSpec(Manifest):
    """The base of the specs of all clouds."""

    KIND: ClassVar[str]
    """The kind that its manifests name."""

    api_version: Annotated[Key | None, SERVERS] = None
    """The version of the API, machine.openshift.io/v1beta1."""
    kind: Annotated[Name | None, SERVERS] = None
    """The kind of spec, which says which cloud's it is."""
    metadata: Annotated[Document | None, SERVERS] = None
    """An object's metadata, which the spec has no use for."""
    user_data_secret: Annotated[SecretName | None, Becomes("secretRef")] = None
    """The Secret that has the user data under the key `userData`."""
    credentials_secret: Annotated[SecretName | None, Becomes("credentialsSecretRef")] = None
    """The Secret with the account's credentials; null: the worker's own."""

    def translated(self, cluster_id: str) -> dict[str, Any]:
        """The provider spec that means the same, without what is rejected, and with a stand-in for a place that only
        failure domains name. `cluster_id`: OpenShift's name of the cluster, which its tools find machines by."""
        raise NotImplementedError

    def mistakes(self, domains: Sequence[FailureDomain]) -> list[Mistake]:
        """Path and words for what is wrong with it beside its marks. `domains`: the failure domains of the control
        plane, which may name what the spec does not."""
        return []


def rejected(given: BaseModel, path: str = "") -> Iterator[Mistake]:
    """Everything that is given and marked as rejected."""
    for at, mark in _given(given, path):
        if isinstance(mark, Rejected):
            yield at, mark.why


def unused(given: BaseModel, path: str = "") -> Iterator[Mistake]:
    """Everything that is given, does nothing, and is worth a word."""
    for at, mark in _given(given, path):
        if isinstance(mark, Unused) and mark not in (SERVERS, DEFAULT):
            yield at, mark.why


def _given(given: BaseModel, path: str) -> Iterator[tuple[str, Fate]]:
    """Path and mark of all that is given. What is empty or false is not: Go writes that for nothing."""
    for name, info in type(given).model_fields.items():
        value, at = getattr(given, name), f"{path}{info.alias or name}"
        if not value:
            continue
        if (mark := fate_of(info.metadata)) is not None:
            yield at, mark
        elif isinstance(value, BaseModel):
            yield from _given(value, f"{at}.")
        elif isinstance(value, list):
            for n, item in enumerate(value):
                yield from _given(item, f"{at}[{n}].")


def fate_of(metadata: Sequence[Any]) -> Fate | None:
    return next((m for m in metadata if isinstance(m, Becomes | Unused | Rejected)), None)


def marks(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, Fate | None]]:
    """Path and mark of every field, in the model's order; items of lists are written `[]`. A mark covers what is
    below it. None: a field that has been forgotten."""
    for name, info in model.model_fields.items():
        at = f"{path}{info.alias or name}"
        mark, (inner, suffix) = fate_of(info.metadata), inner_model(info.annotation)
        if mark is None and inner is not None:
            yield from marks(inner, f"{at}{suffix}.")
        else:
            yield at, mark


def some(**values: Any) -> dict[str, Any]:
    """What is given, alone."""
    return {key: value for key, value in values.items() if value is not None and value not in ("", {}, [])}
