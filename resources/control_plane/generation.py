"""A manifest for the control plane that a cluster has already.

Source: OpenShift's controlplanemachinesetgenerator. It always writes 3 replicas, which a control plane of 5 machines
does not fit; here there are as many as there are machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from resources.base import EARLIEST
from resources.clouds import FailureDomain, provider_of
from resources.control_plane.manifest import API, KIND, NAME, ROLE_LABEL, ControlPlaneMachineSet
from resources.control_plane.spec import HOLD
from resources.control_plane.translation import fields_of
from resources.machine.state import MachineState
from resources.names import CLUSTER_ANNOTATION

FEWEST = 2
"""One machine is no control plane that could be replaced index by index."""
ROLES = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""Labels that a Node of the control plane has."""


def is_control_plane(machine: MachineState) -> bool:
    """Whether its labels, or those of its node template, say that it is one of the control plane."""
    node = machine.spec.node_template.metadata.labels
    return machine.labels.get(ROLE_LABEL) == "master" or any(role in node for role in ROLES)


def generated(machines: Sequence[MachineState]) -> ControlPlaneMachineSet:
    """The manifest, Inactive and in our own form: the newest machine's template, and the failure domains that the
    machines are in. Raises ValueError, in words."""
    if len(machines) < FEWEST:
        raise ValueError(f"a control plane has 3 or 5 machines, and {len(machines)} was found: name them")
    newest = max(machines, key=lambda m: (m.created or EARLIEST, m.name))
    given: dict[str, Any] = {
        "replicas": 5 if len(machines) > 3 else 3,
        "state": "Inactive",
        "strategy": {"type": "RollingUpdate"},
        "template": {"failureDomains": _domains(sorted(machines, key=lambda m: m.name)), **_template(newest)},
    }
    metadata = {"name": NAME, "annotations": {CLUSTER_ANNOTATION: newest.cluster}}
    return ControlPlaneMachineSet.model_validate({"apiVersion": API, "kind": KIND, "metadata": metadata, "spec": given})


def _template(newest: MachineState) -> dict[str, Any]:
    spec = newest.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"provider_id"})
    hooks = [h for h in newest.spec.lifecycle_hooks.pre_drain if h.name != HOLD]
    spec.get("lifecycleHooks", {}).pop("preDrain", None)
    if hooks:
        spec["lifecycleHooks"]["preDrain"] = [h.model_dump() for h in hooks]
    if not spec.get("lifecycleHooks"):
        spec.pop("lifecycleHooks", None)
    return {"metadata": {"labels": newest.labels, "annotations": newest.annotations}, "spec": spec}


def _domains(machines: Sequence[MachineState]) -> dict[str, Any]:
    found: dict[str, FailureDomain] = {}
    clouds = set()
    for machine in machines:
        of = machine.machine_class
        if of is None:
            raise ValueError(f"machine {machine.name} has no class yet, so it is not known where it is")
        domain = provider_of(of.provider).spec.model_validate(of.provider_spec).domain()
        found.setdefault(domain.name, domain)
        clouds.add(of.provider)
    if len(clouds) > 1:
        raise ValueError(f"the machines are on several clouds: {', '.join(sorted(clouds))}")
    (cloud,) = clouds
    return {"platform": cloud, cloud.lower(): [fields_of(found[name]) for name in sorted(found)]}
