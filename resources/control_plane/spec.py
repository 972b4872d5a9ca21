"""What a control plane is to be, as its workflow keeps it: OpenShift's ControlPlaneMachineSet and the same kind with a
MachineClass as template both become this (manifest.py)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter

from resources.base import Document, Name, Value
from resources.machine.manifest import Hook, MachineTemplate, as_kept
from resources.selectors import LabelSelector

HOLD = "ControlPlaneReplacement"
"""The preDrain hook of every machine of a control plane: one that is deleted stays until its index has a ready
replacement, whoever deletes it and whatever other hooks there are."""
DOMAINS_MOST = 50


FailureDomains = Annotated[dict[Name, Document], AfterValidator(TypeAdapter(Document).validate_python)]
"""Fields of failure domains by name, bounded together like one document: each spec in a state has them."""


class UpdateStrategy(StrEnum):
    ROLLING_UPDATE = "RollingUpdate"
    ON_DELETE = "OnDelete"


class State(StrEnum):
    INACTIVE = "Inactive"
    """It is only looked at."""
    ACTIVE = "Active"


class ControlPlaneSpec(Value):
    """What a control plane is to be."""

    replicas: Literal[3, 5] = 3
    """How many indexes there are."""
    state: State = State.INACTIVE
    """Whether it replaces machines, or only looks on."""
    strategy: UpdateStrategy = UpdateStrategy.ROLLING_UPDATE
    """What begins the replacement of an outdated machine: the set itself, or a person who deletes it."""
    name_prefix: Name = ""
    """How the names of its machines begin: `<prefix>-<5 random>-<index>`. "": the cluster's name and `master`."""
    failure_domains: FailureDomains = Field(default_factory=dict, max_length=DOMAINS_MOST)
    """The failure domains by name, each with the fields of the provider spec that it sets; {}: all machines are where
    the class says."""
    template: Annotated[MachineTemplate, BeforeValidator(as_kept)]
    """What each machine is made from, but for its failure domain."""
    selector: LabelSelector = Field(default_factory=LabelSelector)
    """Matches the template's labels; it may not change."""
    etcd_guard: bool = False
    """Whether Hostler itself moves leadership away from a member of etcd, and removes it, before its machine is
    drained: for clusters without an operator that does so, such as kubeadm's."""


def hold_of(user: str) -> Hook:
    """The hold of the machines of a control plane. `user`: its `Owner.user`."""
    return Hook(name=HOLD, owner=user)


def refusals(before: ControlPlaneSpec, after: ControlPlaneSpec) -> list[str]:
    """Why a control plane may not become another, in the words of OpenShift's API and with what to do; nothing where it
    may."""
    return list(_refusals(before, after))


def _refusals(before: ControlPlaneSpec, after: ControlPlaneSpec) -> Iterator[str]:
    anew = "delete the set, whose machines stay, and apply it anew"
    if after.replicas != before.replicas:
        yield f"spec.replicas: replicas is immutable: {before.replicas} cannot become {after.replicas}; {anew}"
    if after.selector != before.selector:
        yield f"spec.selector: selector is immutable; {anew}"
    if before.state is State.ACTIVE and after.state is not State.ACTIVE:
        yield (
            "spec.state: state cannot be changed once Active; to stop replacements, `hostler rollout pause "
            f"controlplane`, or {anew}"
        )
