"""How the simulated kubelets behave: how long things take, and what goes wrong with which machine."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from typing import Self

from pydantic import BaseModel, ConfigDict, Field


class Timings(BaseModel):
    """Durations in seconds. The defaults are those of `demo`: slow enough to be watched by a person, and the end of a
    VM as slow as EC2's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    launch: float = Field(default=2.0, ge=0)
    """From the cloud's call until the VM runs (EC2: pending)."""
    boot: float = Field(default=4.0, ge=0)
    """From then until its kubelet starts."""
    join: float = Field(default=2.0, ge=0)
    """From the Node's registration until Ready=True; also the wait before a deleted Node is registered again."""
    heartbeat: float = Field(default=2.0, gt=0)
    """Between two renewals of the kubelet's Lease (a real kubelet: 10)."""
    status: float = Field(default=10.0, gt=0)
    """Between two posts of an unchanged node status (a real kubelet: 300)."""
    grace: float = Field(default=10.0, gt=0)
    """Silence after which a node becomes Unknown (kube-controller-manager --node-monitor-grace-period: 50)."""
    pod_start: float = Field(default=1.0, ge=0)
    """From a pod's binding until it is Running and Ready."""
    pod_stop: float = Field(default=1.0, ge=0)
    """The time that a container takes to stop, at most the pod's grace period."""
    terminate: float = Field(default=40.0, ge=0)
    """From the cloud's call until the VM is terminated (EC2: shutting-down, half a minute to a minute)."""

    @classmethod
    def demo(cls) -> Self:
        return cls()

    @classmethod
    def fast(cls) -> Self:
        """Timings for tests. The grace period is several heartbeats long even on a busy machine."""
        return cls(
            launch=0.05,
            boot=0.05,
            join=0.1,
            heartbeat=0.3,
            status=0.3,
            grace=2.0,
            pod_start=0.05,
            pod_stop=0.05,
            terminate=0.1,
        )


class Knobs(BaseModel):
    """What is unusual about one machine. Every one of them may change while the machine lives."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    never_joins: bool = False
    """The kubelet never starts; it does when this is cleared at run time."""
    join_delay: float = Field(default=0.0, ge=0)
    """Additional seconds before the kubelet asks for its identity."""
    no_taint: bool = False
    """The Node is registered without the taints of --register-with-taints."""
    no_provider_id: bool = False
    """The Node is registered without spec.providerID."""
    node_name: str | None = None
    """A node name other than the private DNS name; with the name of an existing node: the stale-node case."""
    dies_after: float | None = Field(default=None, ge=0)
    """Seconds after Ready at which the kubelet falls silent for good (until the VM is started again)."""
    flaps: float | None = Field(default=None, gt=0)
    """Period in seconds: Ready is True for its first half and False for its second."""
    unready: bool = False
    """Ready stays False, as with a container runtime or network plugin that is down."""
    config_fails: bool = False
    """Its machine-config daemon cannot apply what it is given; it can when this is cleared."""
    config_delay: float = Field(default=0.0, ge=0)
    """Additional seconds that its machine-config daemon takes to apply a config."""
    config_reboots: bool = False
    """Its Node is not Ready while its machine-config daemon applies a config."""
    config_silent: bool = False
    """Its machine-config daemon does nothing and says nothing."""


class KnobRule(BaseModel):
    """Knobs for the machines whose name (the VM's tag Name) or instance id matches a shell pattern."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    match: str
    knobs: Knobs


def knobs_for(rules: Iterable[KnobRule], name: str, instance_id: str) -> Knobs:
    """All matching rules taken together; of two rules that set the same knob the later one counts."""
    merged: dict[str, object] = {}
    for rule in rules:
        if fnmatch.fnmatchcase(name, rule.match) or fnmatch.fnmatchcase(instance_id, rule.match):
            merged.update(rule.knobs.model_dump(exclude_unset=True))
    return Knobs.model_validate(merged)
