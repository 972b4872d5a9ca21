"""The manifest that is generated from the machines of a control plane (OpenShift's C-G01)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from paths import ROOT

from resources.clouds import in_domain
from resources.control_plane.expansion import expand
from resources.control_plane.generation import generated, is_control_plane
from resources.control_plane.spec import HOLD
from resources.machine.state import ClassSnapshot, MachineState
from resources.manifests import load_manifests

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CLOUDS = ("aws", "azure", "gcp")


def example(cloud: str) -> tuple[ClassSnapshot, dict[str, dict[str, Any]]]:
    """The class of an example, and its failure domains."""
    (of,) = load_manifests((ROOT / f"examples/{cloud}/class.yaml").read_text(), cloud).classes
    (given,) = load_manifests((ROOT / f"examples/controlplane/{cloud}.yaml").read_text(), cloud).control_planes
    return ClassSnapshot.of(of), expand(given).spec.failure_domains


def machines(cloud: str, count: int = 3, **spec: Any) -> list[MachineState]:
    """One in each failure domain, the later the newer."""
    of, domains = example(cloud)
    places = list(domains.values())
    return [
        MachineState(
            name=f"master-{n}",
            cluster="demo",
            created=NOW + timedelta(hours=n),
            labels={"number": str(n)},
            machine_class=of.model_copy(
                update={"provider_spec": in_domain(of.provider, of.provider_spec, places[n % len(places)])}
            ),
            spec={"class": {"name": f"class-{n}"}, "drainTimeout": "10m", **spec},  # type: ignore[arg-type]
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_it_loads_is_inactive_and_changes_nothing(cloud: str) -> None:
    """C-G01."""
    there = machines(cloud)
    printed = generated(there[::-1]).model_dump(mode="json", by_alias=True, exclude_unset=True)
    loaded = load_manifests(yaml.safe_dump(printed), "generated.yaml")
    assert loaded.warnings == []
    spec = expand(loaded.control_planes[0]).spec
    assert (spec.replicas, spec.state, spec.strategy) == (3, "Inactive", "RollingUpdate")
    assert spec.template.spec.class_.name == "class-2"
    assert spec.template.metadata.labels == {"number": "2"}
    assert spec.template.spec.drain_timeout == timedelta(minutes=10)
    newest = there[-1].machine_class
    assert newest is not None
    assert len(spec.failure_domains) == 3
    found = [in_domain(newest.provider, newest.provider_spec, fields) for fields in spec.failure_domains.values()]
    assert all(m.machine_class is not None and m.machine_class.provider_spec in found for m in there)


def test_five_machines_are_five_replicas_and_a_domain_stands_once() -> None:
    made = generated(machines("azure", 5))
    assert made.spec.replicas == 5
    assert [d.name for d in made.spec.template.domains] == ["1/nodes", "2/nodes", "3/nodes"]


def test_the_hold_of_a_control_plane_is_not_the_templates() -> None:
    hold, etcd = ({"name": name, "owner": "somebody"} for name in (HOLD, "EtcdQuorumOperator"))
    template = generated(machines("gcp", lifecycleHooks={"preDrain": [hold, etcd]})).spec.template.spec
    assert template is not None
    assert [h.name for h in template.lifecycle_hooks.pre_drain] == ["EtcdQuorumOperator"]
    template = generated(machines("gcp", lifecycleHooks={"preDrain": [hold]})).spec.template.spec
    assert template is not None
    assert template.lifecycle_hooks.pre_drain == []


def test_what_cannot_be_generated() -> None:
    with pytest.raises(ValueError, match="a control plane has 3 or 5 machines, and 1 was found: name them"):
        generated(machines("aws", 1))
    with pytest.raises(ValueError, match="the machines are on several clouds: AWS, GCP"):
        generated([*machines("aws", 1), *machines("gcp", 1)])
    unborn = machines("aws")
    unborn[1].machine_class = None
    with pytest.raises(ValueError, match="machine master-1 has no class yet"):
        generated(unborn)


@pytest.mark.parametrize(
    ("labels", "node", "is_one"),
    [
        ({}, {}, False),
        ({"machine.openshift.io/cluster-api-machine-role": "master"}, {}, True),
        ({"machine.openshift.io/cluster-api-machine-role": "worker"}, {}, False),
        ({}, {"node-role.kubernetes.io/control-plane": ""}, True),
        ({}, {"node-role.kubernetes.io/master": ""}, True),
        ({"node-role.kubernetes.io/master": ""}, {}, False),  # a machine's labels are not its Node's
    ],
)
def test_which_machines_are_of_the_control_plane(labels: dict[str, str], node: dict[str, str], is_one: bool) -> None:
    spec = {"class": {"name": "c1"}, "nodeTemplate": {"metadata": {"labels": node}}}
    machine = MachineState.model_validate({"name": "m1", "cluster": "demo", "labels": labels, "spec": spec})
    assert is_control_plane(machine) is is_one
