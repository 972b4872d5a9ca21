"""The manifests in examples/ run as they are, in the simulated account that `hostler up` starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from resources.clouds.aws import AwsProviderSpec
from resources.manifests import Loaded, load_manifests
from resources.names import INSTANCE_NOT_READY_TAINT
from simulator.clouds.ec2 import World
from simulator.kubelet.userdata import UserDataError, parse_user_data
from starter.local.stack import FULL_NAME
from starter.local.up import EXAMPLES

FILES = sorted(EXAMPLES.glob("*.yaml"))
PLACEHOLDER = b"<<BOOTSTRAP_TOKEN>>"


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load_manifests("\n---\n".join(f.read_text() for f in FILES), "examples/aws")


@pytest.fixture(scope="module")
def spec(loaded: Loaded) -> AwsProviderSpec:
    return AwsProviderSpec.model_validate(loaded.classes[0].provider_spec)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_it_loads_without_a_warning(file: Path) -> None:
    loaded = load_manifests(file.read_text(), file.name)
    assert loaded.warnings == []
    assert len([*loaded.machines, *loaded.classes, *loaded.secrets]) == 1


def test_they_name_each_other(loaded: Loaded) -> None:
    (machine,), (machine_class,), (secret,) = loaded.machines, loaded.classes, loaded.secrets
    assert machine.metadata.name == "demo-1"
    assert machine.spec.class_.name == machine_class.metadata.name == "demo-m5-large"
    assert (machine_class.secret_ref.name, machine_class.secret_ref.namespace) == ("demo-aws", "default")
    assert (secret.metadata.name, secret.metadata.namespace) == ("demo-aws", "default")


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
    assert spec.must_tags() == {f"kubernetes.io/cluster/{FULL_NAME}": "1", "kubernetes.io/role/node": "1"}
    assert spec.tags_for("vm").items() > spec.must_tags().items()
    assert spec.tags_for("nic")
    assert spec.tags_for("disk") == {"team": "platform", "backup": "no"}


def test_the_secret_opens_the_simulated_account(loaded: Loaded) -> None:
    plain = loaded.secrets[0].plain()
    key, secret = plain["providerAccessKeyId"].decode(), plain["providerSecretAccessKey"].decode()
    assert World().access_keys[key] == secret


def test_the_user_data_makes_a_kubelet_join_with_its_token_and_taint(loaded: Loaded) -> None:
    user_data = loaded.secrets[0].plain()["userData"]
    with pytest.raises(UserDataError, match="token"):
        parse_user_data(user_data)
    config = parse_user_data(user_data.replace(PLACEHOLDER, b"abcdef.0123456789abcdef"))
    assert config.token == "abcdef.0123456789abcdef"
    assert config.taints == ({"key": INSTANCE_NOT_READY_TAINT, "effect": "NoSchedule"},)
