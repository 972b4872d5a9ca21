"""Where credentials and user data come from: Kubernetes, a directory, the environment, the account's default."""

from __future__ import annotations

import base64
import shutil
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from apiserver.simulated import World, new_world
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from activities.boundary import translated
from activities.deps import Deps
from activities.kube.client import ApiServers, KubeError
from activities.secrets import SecretMissing, Secrets
from drivers.base import GetMachineStatusRequest
from resources.calls.machine import MachineRef, Target
from resources.errors import MISSING_CREDENTIALS
from resources.machine.manifest import SecretRef
from resources.settings import CloudSettings, ClusterSettings, SecretsSettings, Settings, SettingsError, load_settings
from simulator.frame import FaultRule

Kind = Literal["kubernetes", "directory", "environment"]
KINDS: tuple[Kind, ...] = ("kubernetes", "directory", "environment")
REF = SecretRef(name="demo-aws", namespace="garden")
PATH = "/api/v1/namespaces/garden/secrets"
CANARY = "canary-not-to-be-seen"


class Source:
    """One source of secrets, and how a person puts something into it."""

    def __init__(self, kind: Kind, world: World, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kind, self.world, self.root, self.monkeypatch = kind, world, root, monkeypatch
        (root / "kubeconfig").write_text(world.kube.kubeconfig())
        self.settings = self.configured()
        self.clusters = ApiServers(self.settings)
        self.secrets = Secrets(self.settings, self.clusters)

    def configured(self, **fields: Any) -> Settings:
        """Settings in which the managed cluster is not the one that holds the Secrets."""
        return Settings(
            file=self.root / "settings.yaml",
            default_cluster="managed",
            clusters={"managed": ClusterSettings(), "control": ClusterSettings(kubeconfig=Path("kubeconfig"))},
            secrets=SecretsSettings(source=self.kind, cluster="control", directory=Path("secrets")),
            **fields,
        )

    async def put(self, **values: bytes) -> None:
        """Puts it in place of what was there."""
        if self.kind == "kubernetes":
            await self.world.kube.call("POST", "/api/v1/namespaces", {"metadata": {"name": "garden"}})
            await self.world.kube.call("DELETE", f"{PATH}/{REF.name}")
            data = {k: base64.b64encode(v).decode() for k, v in values.items()}
            await self.world.kube.create(PATH, {"metadata": {"name": REF.name}, "data": data})
        elif self.kind == "directory":
            folder = self.root / "secrets" / REF.namespace / REF.name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for key, value in values.items():
                (folder / key).write_bytes(value)
        else:
            for key, value in values.items():
                self.monkeypatch.setenv(f"HOSTLER_SECRET_GARDEN_DEMO_AWS__{key}", value.decode())

    async def read(self, key: str) -> str:
        return (await self.secrets.get(REF)).require(key, REF).get_secret_value()


@pytest.fixture(params=KINDS)
async def source(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Source]:
    async with new_world() as world:
        source = Source(request.param, world, tmp_path, monkeypatch)
        try:
            yield source
        finally:
            await source.clusters.close()


async def test_values_are_read_whole(source: Source) -> None:
    """They keep their line ends: user data is a script."""
    await source.put(userData="#cloud-config\nruncmd: [ü]\n".encode(), accessKeyID=b"AKIA")
    assert await source.read("userData") == "#cloud-config\nruncmd: [ü]\n"
    assert await source.read("accessKeyID") == "AKIA"


async def test_the_version_changes_with_the_content(source: Source) -> None:
    await source.put(userData=b"one")
    first = (await source.secrets.get(REF)).version
    assert (await source.secrets.get(REF)).version == first
    await source.put(userData=b"two")
    assert (await source.secrets.get(REF)).version != first


async def test_a_missing_secret_is_named(source: Source) -> None:
    where = {
        "kubernetes": "does not exist in cluster control",
        "directory": "is not in the directory with the secrets",
        "environment": "is not in the environment with the secrets",
    }
    with pytest.raises(SecretMissing) as caught:
        await source.secrets.get(REF)
    assert str(caught.value) == f"Secret garden/demo-aws {where[source.kind]}"
    await source.put(userData=b"x")
    assert await source.read("userData") == "x"


async def test_a_missing_key_is_named_and_no_value(source: Source) -> None:
    await source.put(accessKeyID=CANARY.encode())
    found = await source.secrets.get(REF)
    with pytest.raises(SecretMissing) as caught:
        found.require("userData", REF)
    assert str(caught.value) == "Secret garden/demo-aws has no key 'userData'"
    assert CANARY not in f"{found!r} {found.model_dump_json()}"
    assert found.require("accessKeyID", REF).get_secret_value() == CANARY


async def test_a_name_that_is_a_path_is_refused(source: Source) -> None:
    """A MachineClass must not reach other files, or other objects of the API, through its secretRef."""
    await source.put(userData=CANARY.encode())
    (source.root / "secrets" / "private").mkdir(parents=True, exist_ok=True)
    (source.root / "secrets" / "private" / "userData").write_text(CANARY)
    for name in ("../private", "..", "a/b", ""):
        with pytest.raises(SecretMissing, match="not a valid name for a Secret"):
            await source.secrets.get(SecretRef(name=name, namespace="garden"))
    assert await source.read("userData") == CANARY


@pytest.mark.parametrize("source", ["kubernetes", "directory"], indirect=True)
async def test_a_binary_key_hinders_nobody(source: Source) -> None:
    await source.put(userData=b"x", keystore=b"\xff\xfe\x00")
    assert await source.read("userData") == "x"
    with pytest.raises(SecretMissing, match="no key 'keystore'"):
        await source.read("keystore")


@pytest.mark.parametrize("source", ["kubernetes"], indirect=True)
async def test_a_server_that_cannot_say_is_not_a_missing_secret(source: Source) -> None:
    """Nothing may be concluded from an error: neither that credentials are gone, nor that they are there."""
    await source.put(userData=b"x")
    source.world.frame.faults.append(FaultRule(operation="get secrets", code="InternalError"))
    with pytest.raises(KubeError) as caught:
        await source.secrets.get(REF)
    assert caught.value.status == 500
    assert await source.read("userData") == "x"


@pytest.mark.parametrize("source", ["directory"], indirect=True)
async def test_a_mounted_secret(source: Source) -> None:
    """It is laid out as by the kubelet: links into a hidden folder, which is swapped as a whole."""
    folder = source.root / "secrets" / REF.namespace / REF.name
    (folder / "..2031_01_01").mkdir(parents=True)
    (folder / "..2031_01_01" / "userData").write_text("x")
    (folder / "..data").symlink_to("..2031_01_01")
    (folder / "userData").symlink_to("..data/userData")
    assert set((await source.secrets.get(REF)).values) == {"userData"}
    assert await source.read("userData") == "x"


@pytest.mark.parametrize("source", ["directory"], indirect=True)
async def test_a_mounted_secret_is_read_as_of_one_moment(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is mounted as by the kubelet: files of one generation behind `..data`, which is swapped while they are being
    read."""
    folder = source.root / "secrets" / "garden" / "demo-aws"
    folder.mkdir(parents=True)
    for generation in ("1", "2"):
        (folder / f"..{generation}").mkdir()
        for key in ("accessKeyID", "secretAccessKey"):
            (folder / f"..{generation}" / key).write_text(f"{key}-{generation}")
    for key in ("accessKeyID", "secretAccessKey"):
        (folder / key).symlink_to(f"..data/{key}")
    (folder / "..data").symlink_to("..1")
    read = Path.read_bytes

    def swapping(file: Path) -> bytes:
        content = read(file)
        (folder / "..data").unlink()
        (folder / "..data").symlink_to("..2")
        return content

    monkeypatch.setattr(Path, "read_bytes", swapping)
    for generation in ("1", "2"):
        found = (await source.secrets.get(REF)).values
        assert {v.get_secret_value() for v in found.values()} == {
            f"accessKeyID-{generation}",
            f"secretAccessKey-{generation}",
        }


async def test_a_directory_must_be_configured() -> None:
    settings = Settings(secrets=SecretsSettings(source="directory"))
    with pytest.raises(SettingsError, match=r"secrets\.directory: needed"):
        await Secrets(settings, ApiServers(settings)).get(REF)


async def test_variables_of_secrets_are_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They share the prefix HOSTLER_; settings refuse unknown names, and must not mistake these for settings."""
    file = tmp_path / "settings.yaml"
    file.write_text("secrets: {source: environment}\n")
    monkeypatch.setenv("HOSTLER_SECRET_GARDEN_DEMO_AWS__userData", "x")
    settings = load_settings(file)
    found = await Secrets(settings, ApiServers(settings)).get(REF)
    assert found.require("userData", REF).get_secret_value() == "x"


# -- the account's default ---------------------------------------------------------------------------------------------


def target(**fields: Any) -> Target:
    return Target(
        machine=MachineRef(cluster="managed", name="m-1", uid="u-1"),
        provider="AWS",
        provider_spec={},
        secret_ref=REF,
        consistency=timedelta(seconds=1),
        poll=timedelta(seconds=1),
        **fields,
    )


async def key_of(deps: Deps, target: Target) -> str:
    request = await deps.request(GetMachineStatusRequest, target)
    return request.secret["accessKeyID"].get_secret_value()


@pytest.mark.parametrize("source", ["directory"], indirect=True)
async def test_whose_credentials_count(source: Source, temporal: WorkflowEnvironment) -> None:
    """The credentials Secret where one is named, else the class's; where that is missing, the account's default."""
    cloud = CloudSettings(default_secret={"accessKeyID": Path("default-key")})
    (source.root / "default-key").write_text("of the account\n")
    deps = Deps(source.configured(clouds={"aws": cloud}), temporal.client)
    assert await key_of(deps, target()) == "of the account"
    await source.put(accessKeyID=b"of the class")
    assert await key_of(deps, target()) == "of the class"
    other = SecretRef(name="credentials", namespace="garden")
    assert await key_of(deps, target(credentials_secret_ref=other)) == "of the account"
    folder = source.root / "secrets" / "garden" / "credentials"
    folder.mkdir()
    (folder / "accessKeyID").write_text("its own")
    assert await key_of(deps, target(credentials_secret_ref=other)) == "its own"


@pytest.mark.parametrize("source", ["directory"], indirect=True)
async def test_without_a_default_it_is_missing(source: Source, temporal: WorkflowEnvironment) -> None:
    """The error has the class that the workflow waits for visibly, as CredentialsMissing."""
    deps = Deps(source.settings, temporal.client)
    with pytest.raises(ApplicationError) as caught, translated():
        await key_of(deps, target())
    assert caught.value.type == MISSING_CREDENTIALS
    assert caught.value.non_retryable
    assert "garden/demo-aws" in caught.value.message


@pytest.mark.parametrize("source", ["directory"], indirect=True)
async def test_a_default_that_cannot_be_read_is_a_wrong_setting(source: Source, temporal: WorkflowEnvironment) -> None:
    cloud = CloudSettings(default_secret={"accessKeyID": Path("not-there")})
    deps = Deps(source.configured(clouds={"aws": cloud}), temporal.client)
    with pytest.raises(SettingsError, match=r"clouds.aws.defaultSecret.accessKeyID: .*not-there cannot be read"):
        await key_of(deps, target())
