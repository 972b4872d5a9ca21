"""The manifests in examples/ run as they are, in the simulated clouds that `hostler up` starts."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from resources.clouds import provider_of, simulations
from resources.clouds.aws.spec import AwsProviderSpec
from resources.machine.manifest import SecretRef
from resources.manifests import Loaded, load_manifests
from resources.names import INSTANCE_NOT_READY_TAINT
from simulator.clouds.ec2 import World
from simulator.kubelet.userdata import UserDataError, parse_user_data
from starter.local.stack import FULL_NAME
from starter.local.up import examples_of

FILES = {cloud: sorted(examples_of(cloud).glob("*.yaml")) for cloud in simulations()}
PLACEHOLDER = b"<<BOOTSTRAP_TOKEN>>"


def read(cloud: str) -> Loaded:
    return load_manifests("\n---\n".join(f.read_text() for f in FILES[cloud]), f"examples/{cloud}")


@pytest.fixture(scope="module", params=FILES)
def loaded(request: pytest.FixtureRequest) -> Loaded:
    return read(request.param)


@pytest.fixture(scope="module")
def spec() -> AwsProviderSpec:
    return AwsProviderSpec.model_validate(read("aws").classes[0].provider_spec)


@pytest.mark.parametrize("file", [*chain(*FILES.values())], ids=lambda file: f"{file.parent.name}-{file.name}")
def test_it_loads_without_a_warning(file: Path) -> None:
    loaded = load_manifests(file.read_text(), file.name)
    assert loaded.warnings == []
    assert len([*loaded.machines, *loaded.classes, *loaded.secrets]) == 1


def test_they_name_each_other(loaded: Loaded) -> None:
    (machine,), (machine_class,), (secret,) = loaded.machines, loaded.classes, loaded.secrets
    assert machine.spec.class_.name == machine_class.metadata.name
    assert machine_class.secret_ref == SecretRef(name=secret.metadata.name, namespace=secret.metadata.namespace)


def test_those_of_all_clouds_fit_into_one_cluster() -> None:
    every = [read(cloud) for cloud in FILES]
    assert every[0].machines[0].metadata.name == "demo-1"  # the docs say so
    made = [m for loaded in every for m in (*loaded.machines, *loaded.classes, *loaded.secrets)]
    assert len({(m.kind, m.metadata.name) for m in made}) == len(made) == 3 * len(FILES)


def test_the_class_carries_the_must_tags_and_is_what_its_cloud_takes(loaded: Loaded) -> None:
    (machine_class,) = loaded.classes
    model = provider_of(machine_class.provider).spec
    spec = model.model_validate(machine_class.provider_spec)
    must = {f"kubernetes.io/cluster/{FULL_NAME}": "1", "kubernetes.io/role/node": "1"}
    assert spec.must_tags() == {model.TAGS.key(k): v for k, v in must.items()}
    assert list(spec.mistakes()) == list(spec.deprecations()) == []


def test_the_class_asks_for_what_the_simulated_account_has(spec: AwsProviderSpec) -> None:
    world = World()
    assert spec.region == world.region
    image = world.image(spec.ami)
    assert image is not None
    assert world.instance_types[spec.machine_type].architecture == image.architecture
    assert spec.key_name in world.key_pairs
    assert spec.iam is not None
    assert spec.iam.name in world.instance_profiles
    (interface,) = spec.network_interfaces
    assert world.subnet(interface.subnet_id) is not None
    assert all(world.security_group(g) is not None for g in interface.security_group_ids)


def test_the_class_carries_the_tags_that_never_change(spec: AwsProviderSpec) -> None:
    assert spec.tags_for("vm").items() > spec.must_tags().items()
    assert spec.tags_for("nic")
    assert spec.tags_for("disk") == {"team": "platform", "backup": "no"}


def test_the_secret_opens_the_simulated_account() -> None:
    plain = read("aws").secrets[0].plain()
    key, secret = plain["providerAccessKeyId"].decode(), plain["providerSecretAccessKey"].decode()
    assert World().access_keys[key] == secret


def test_the_user_data_makes_a_kubelet_join_with_its_token_and_taint(loaded: Loaded) -> None:
    user_data = loaded.secrets[0].plain()["userData"]
    with pytest.raises(UserDataError, match="token"):
        parse_user_data(user_data)
    config = parse_user_data(user_data.replace(PLACEHOLDER, b"abcdef.0123456789abcdef"))
    assert config.token == "abcdef.0123456789abcdef"
    assert config.taints == ({"key": INSTANCE_NOT_READY_TAINT, "effect": "NoSchedule"},)
