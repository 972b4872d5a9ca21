"""ControlPlaneMachineSet: what is taken, what is refused and in which words, and what it comes to.

The words are those of OpenShift's API (openshift/api, machine/v1, types_controlplanemachineset.go and its test suites)
where it has some.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import yaml
from paths import ROOT

from resources.control_plane.expansion import CLASS_NAME, Expanded, expand, manifest_of
from resources.control_plane.manifest import MACHINE_TYPE, ControlPlaneMachineSet
from resources.control_plane.spec import State, UpdateStrategy, refusals
from resources.machine.manifest import ObjectMeta
from resources.manifests import ManifestError, load_manifests
from resources.validation import Validate
from simulator.clouds.arm import world as arm
from simulator.clouds.ec2 import world as ec2
from simulator.clouds.gce import world as gce

EXAMPLES = {f.stem: yaml.safe_load(f.read_text()) for f in sorted((ROOT / "examples/controlplane").glob("*.yaml"))}
OURS, THEIRS = EXAMPLES["aws"], EXAMPLES["aws-openshift"]
TEMPLATE = f"spec.template.{MACHINE_TYPE}"


def put(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with the value at the path; None removes what is there."""
    found = deepcopy(document)
    *steps, last = path.split(".")
    here = found
    for step in steps:
        here = here[int(step)] if isinstance(here, list) else here[step]
    if value is None:
        del here[last]
    else:
        here[last] = value
    return found


def load(document: dict[str, Any], validate: Validate = Validate.STRICT) -> ControlPlaneMachineSet:
    (found,) = load_manifests(yaml.safe_dump(document), "set.yaml", validate).control_planes
    return found


def expanded(document: dict[str, Any]) -> Expanded:
    return expand(load(document))


def wrong(document: dict[str, Any]) -> str:
    with pytest.raises(ManifestError) as said:
        load(document)
    return str(said.value).replace("set.yaml (document 1): ControlPlaneMachineSet cluster: ", "")


# -- the examples ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_loads_without_a_warning(name: str) -> None:
    assert load_manifests(yaml.safe_dump(EXAMPLES[name]), name).warnings == []


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_both_forms_of_an_example_are_in_the_same_places(cloud: str) -> None:
    ours, theirs = expanded(EXAMPLES[cloud]), expanded(EXAMPLES[f"{cloud}-openshift"])
    assert ours.spec.failure_domains == theirs.spec.failure_domains
    assert len(ours.spec.failure_domains) == 3
    assert ours.machine_class is None
    assert theirs.machine_class is not None
    assert theirs.machine_class.metadata.name == theirs.spec.template.spec.class_.name == CLASS_NAME


def test_the_examples_ask_for_what_the_simulated_accounts_have() -> None:
    aws, azure, gcp = ec2.World(), arm.World(), gce.World()
    for fields in expanded(OURS).spec.failure_domains.values():
        subnet = aws.subnet(fields["subnet"]["id"])
        assert subnet is not None
        assert subnet.zone == fields["placement"]["availabilityZone"]
    of = expanded(THEIRS).machine_class
    assert of is not None
    assert of.provider_spec["machineType"] in aws.instance_types
    assert aws.image(of.provider_spec["ami"]) is not None
    of = expanded(EXAMPLES["azure-openshift"]).machine_class
    assert of is not None
    vm = of.provider_spec["properties"]
    assert vm["hardwareProfile"]["vmSize"] in azure.sizes
    image = vm["storageProfile"]["imageReference"]["id"]
    assert any(known.endswith(image) for known in azure.image_ids)
    of = expanded(EXAMPLES["gcp-openshift"]).machine_class
    assert of is not None
    assert of.provider_spec["machineType"] in gcp.machine_types
    assert set(expanded(EXAMPLES["gcp"]).spec.failure_domains) == set(gcp.zones)


# -- defaults ----------------------------------------------------------------------------------------------------------


def test_what_is_not_given() -> None:
    spec = {"template": {"spec": {"class": {"name": "c1"}}}}
    found = expanded({"kind": "ControlPlaneMachineSet", "metadata": {"name": "cluster"}, "spec": spec}).spec
    assert (found.replicas, found.state, found.strategy) == (3, State.INACTIVE, UpdateStrategy.ROLLING_UPDATE)
    assert (found.name_prefix, found.failure_domains, found.etcd_guard) == ("", {}, False)
    assert found.template.spec.class_.name == "c1"


def test_names_begin_with_cluster_and_role_unless_the_manifest_says_how() -> None:
    assert expanded(THEIRS).spec.name_prefix == "shoot--hostler--demo-master"
    assert expanded(put(THEIRS, "spec.machineNamePrefix", "cp")).spec.name_prefix == "cp"


def test_what_openshift_says_of_a_node_is_the_node_template_and_secrets_are_in_the_sets_namespace() -> None:
    given = put(put(THEIRS, "metadata.namespace", "openshift-machine-api"), "spec.etcd", {"guard": True})
    hooks = {"preDrain": [{"name": "EtcdQuorumOperator", "owner": "clusteroperator/etcd"}]}
    found = expanded(put(given, f"{TEMPLATE}.spec.lifecycleHooks", hooks))
    machine, made = found.spec.template.spec, found.machine_class
    assert machine.node_template.metadata.labels == {"node-role.kubernetes.io/master": ""}
    assert [t.key for t in machine.node_template.spec.taints] == ["node-role.kubernetes.io/master"]
    assert [h.name for h in machine.lifecycle_hooks.pre_drain] == ["EtcdQuorumOperator"]
    assert found.spec.etcd_guard
    assert made is not None
    assert made.credentials_secret_ref is not None
    assert made.secret_ref.namespace == made.credentials_secret_ref.namespace == "openshift-machine-api"


def test_failure_domains_that_name_the_same_place_are_one() -> None:
    twice = [{"zone": "1"}, {"zone": "2"}, {"zone": "1"}]
    given = put(EXAMPLES["azure"], "spec.template.failureDomains.azure", twice)
    assert sorted(expanded(given).spec.failure_domains) == ["1", "2"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_manifest_of_a_spec_comes_to_the_same_spec(name: str) -> None:
    """What `hostler get -o yaml` prints can be applied."""
    found = expanded(put(put(EXAMPLES[name], "spec.etcd", {"guard": True}), "spec.state", "Active")).spec
    cloud = {"aws": "AWS", "azure": "Azure", "gcp": "GCP"}[name.partition("-")[0]]
    made = manifest_of(found, cloud, ObjectMeta(name="cluster"))
    printed = made.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert set(printed) == {"apiVersion", "kind", "metadata", "spec"}
    assert expanded(printed) == Expanded(None, found)


# -- mistakes ----------------------------------------------------------------------------------------------------------

LABELS = f"{TEMPLATE}.metadata.labels"
ALL = THEIRS["spec"]["template"][MACHINE_TYPE]["metadata"]["labels"]
CLUSTER, ROLE, KIND = ALL
DOMAINS = f"{TEMPLATE}.failureDomains"
PROVIDER = f"{TEMPLATE}.spec.providerSpec"
NATIVE = "spec.template.failureDomains"
ONLY_PLATFORM = {"platform": "AWS"}
ANOTHERS = {"platform": "BareMetal", "aws": [{"placement": {"availabilityZone": "a"}}]}
MISTAKES = {
    "name": (THEIRS, "metadata.name", "other", "control plane machine set name must be cluster"),
    "replicas": (THEIRS, "spec.replicas", 4, "spec.replicas: Unsupported value: 4: supported values: 3, 5"),
    "one replica": (THEIRS, "spec.replicas", 1, "spec.replicas: Unsupported value: 1: supported values: 3, 5"),
    "state": (THEIRS, "spec.state", "Idle", "spec.state: Input should be 'Inactive' or 'Active'"),
    "strategy": (THEIRS, "spec.strategy.type", "Recreate", "spec.strategy.type: Input should be 'RollingUpdate' or"),
    "no prefix": (THEIRS, "spec.machineNamePrefix", "", "spec.machineNamePrefix: String should have at least 1 char"),
    "prefix": (THEIRS, "spec.machineNamePrefix", "inv@lid-", "a lowercase RFC 1123 subdomain must consist of"),
    "long prefix": (THEIRS, "spec.machineNamePrefix", "p" * 56, "56 characters; machines' names are 8 longer"),
    "selector": (THEIRS, "spec.selector.matchLabels", {"a": "b"}, "selector does not match template labels"),
    "role": (THEIRS, LABELS, {**ALL, ROLE: "worker"}, f"label '{ROLE}' is required, and must have value 'master'"),
    "type": (THEIRS, LABELS, {**ALL, KIND: ""}, f"label '{KIND}' is required, and must have value 'master'"),
    "cluster": (THEIRS, LABELS, {ROLE: "master", KIND: "master"}, f"label '{CLUSTER}' is required"),
    "machine type": (THEIRS, "spec.template.machineType", None, f"{MACHINE_TYPE} configuration is required when"),
    "no template": (OURS, "spec.template.spec", None, "give spec.class, the MachineClass of the machines"),
    "two templates": (OURS, "spec.template", {**THEIRS["spec"]["template"], **OURS["spec"]["template"]}, "stand under"),
    "no domains": (THEIRS, DOMAINS, ONLY_PLATFORM, "aws configuration is required when platform is AWS, and forbidden"),
    "platform": (THEIRS, DOMAINS, ANOTHERS, "aws configuration is required when platform is AWS, and forbidden"),
    "no driver": (OURS, NATIVE, {"platform": "VSphere"}, "there is no driver for it; there are drivers for AWS, Azure"),
    "other cloud": (THEIRS, DOMAINS, {"platform": "GCP", "gcp": [{"zone": "z"}]}, "platform: the machines are on AWS"),
    "subnet by arn": (
        OURS,
        NATIVE,
        {"platform": "AWS", "aws": [{"subnet": {"type": "ARN", "arn": "arn:x"}}]},
        "spec.template.failureDomains.aws[0].subnet.arn: EC2 cannot be asked for it",
    ),
    "subnet type": (
        OURS,
        NATIVE,
        {"platform": "AWS", "aws": [{"subnet": {"type": "ID", "arn": "arn:x"}}]},
        "spec.template.failureDomains.aws[0].subnet: id is required when type is ID, and forbidden otherwise",
    ),
    "nowhere": (OURS, NATIVE, {"platform": "AWS", "aws": [{}]}, "failureDomains.aws[0]: give placement.availability"),
    "zone": (
        EXAMPLES["azure"],
        NATIVE,
        {"platform": "Azure", "azure": [{"zone": "west"}]},
        "failureDomains.azure[0].zone: an availability zone of Azure is a number",
    ),
    "no spec": (THEIRS, PROVIDER, {}, f"{PROVIDER}.value: missing: it says what the VMs are made from"),
    "kind": (THEIRS, f"{PROVIDER}.value.kind", "AWSMachineProviderConfg", "did you mean AWSMachineProviderConfig"),
    "no kind": (THEIRS, f"{PROVIDER}.value.kind", None, f"{PROVIDER}.value.kind: missing: it says which cloud's"),
    "user data": (THEIRS, f"{PROVIDER}.value.userDataSecret", None, f"{PROVIDER}.value.userDataSecret: missing"),
    "typo": (THEIRS, f"{PROVIDER}.value.instanceTyp", "x", "instanceTyp: unknown field; did you mean instanceType"),
    "typo of domains": (OURS, f"{NATIVE}.aws.0.placment", {}, "aws[0].placment: unknown field; did you mean placement"),
    "label": (OURS, "spec.template.metadata.labels.role", "a b", "spec.template.metadata.labels.role"),
    "class": (OURS, "spec.template.spec.class.name", "A_b", 'spec.template.spec.class.name: Invalid value: "A_b"'),
    "taint": (THEIRS, f"{TEMPLATE}.spec.taints.0.key", "a b", f'{TEMPLATE}.spec.taints[0].key: Invalid value: "a b"'),
    "as a class": (
        THEIRS,
        f"{PROVIDER}.value.blockDevices.0.ebs.volumeType",
        "io2",
        f"{PROVIDER}.value: as a MachineClass: providerSpec.blockDevices[0].ebs.iops: missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told_with_its_place(case: str) -> None:
    """C-W01 (the name), C-W05 (the selector), C-D19 (the strategy) among them."""
    document, path, value, words = MISTAKES[case]
    said = wrong(put(document, path, value))
    assert words in said.replace("set.yaml (document 1): ControlPlaneMachineSet other: ", ""), said


def test_all_that_is_wrong_is_told_at_once() -> None:
    given = put(
        put(THEIRS, "spec.replicas", 4), f"{PROVIDER}.value.loadBalancers", [{"name": "api", "type": "network"}]
    )
    said = wrong(put(given, f"{PROVIDER}.value.instanceTyp", "m5.large"))
    for words in (
        "spec.replicas: Unsupported",
        "value.loadBalancers: Hostler registers no",
        "did you mean instanceType",
    ):
        assert words in said


# -- what may not change ----------------------------------------------------------------------------------------------


def test_what_may_not_change() -> None:
    """C-W03."""
    before = expanded(put(OURS, "spec.state", "Active")).spec
    assert refusals(before, before) == []
    for path, value, words in (
        ("spec.replicas", 5, "spec.replicas: replicas is immutable: 3 cannot become 5"),
        ("spec.selector.matchLabels", {}, "spec.selector: selector is immutable"),
        ("spec.state", "Inactive", "spec.state: state cannot be changed once Active"),
    ):
        (said,) = refusals(before, expanded(put(put(OURS, "spec.state", "Active"), path, value)).spec)
        assert said.startswith(words)
    for path, value in (
        ("spec.strategy.type", "OnDelete"),
        ("spec.machineNamePrefix", "other"),
        ("spec.template.spec.class.name", "other"),
        ("spec.template.failureDomains", None),
    ):
        assert refusals(before, expanded(put(put(OURS, "spec.state", "Active"), path, value)).spec) == []
    assert refusals(expanded(OURS).spec, before) == []  # activated
