"""What is in deploy/, and docker-compose.yml beside it, says no more and no less than the code needs."""

from __future__ import annotations

import ast
import json
import re
import runpy
import tomllib
from typing import Any

import botocore.session
import pytest
import yaml
from paths import ROOT

from drivers.gcp.calls import METHODS
from resources.rights import CONFIG_NEEDS, NEEDS

COMPOSE = ROOT / "docker-compose.yml"
VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return read


def test_the_policy_for_aws_has_the_drivers_calls_and_no_other() -> None:
    operations = set(botocore.session.get_session().get_service_model("ec2").operation_names)
    called = {
        node.value
        for file in (ROOT / "drivers" / "aws").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and node.value in operations
    }
    policy = json.loads((ROOT / "deploy" / "aws" / "policy.json").read_text())
    actions = [a for s in policy["Statement"] for a in ([s["Action"]] if isinstance(s["Action"], str) else s["Action"])]
    # RunInstances with an instance profile passes its role; GetCallerIdentity needs no right.
    assert sorted(actions) == sorted([*(f"ec2:{name}" for name in called), "iam:PassRole"])


def test_the_roles_for_clusters_are_those_of_the_table() -> None:
    folder, tool = ROOT / "deploy" / "rbac", runpy.run_path(str(ROOT / "tools" / "rbac.py"))
    written = {file.name: file.read_text() for file in folder.glob("*.yaml") if file.name != "bootstrap-tokens.yaml"}
    assert written == tool["files"](), "make rbac"
    # Which accounts there are is no matter of the table: no role is without one, and few may read Secrets.
    bound = {
        (subject["name"], document["roleRef"]["name"])
        for text in written.values()
        for document in yaml.safe_load_all(text)
        if document["kind"].endswith("Binding")
        for subject in document["subjects"]
    }
    roles = {role for _, role in bound}
    assert roles == {need.granted_by for need in (*NEEDS, *CONFIG_NEEDS)}
    assert {role for account, role in bound if account == "hostler-all"} == roles
    assert {account for account, role in bound if role == "hostler-secrets"} == {"hostler-cloud", "hostler-all"}


def test_the_custom_resource_definitions_are_those_of_the_models() -> None:
    folder, tool = ROOT / "deploy" / "crds", runpy.run_path(str(ROOT / "tools" / "crds.py"))
    assert {file.name: file.read_text() for file in folder.iterdir()} == tool["files"](), "make crds"


MAKING = {
    *("compute.disks.create", "compute.images.useReadOnly", "compute.instances.setServiceAccount"),
    *("compute.networks.use", "compute.networks.useExternalIp", "compute.storagePools.use"),
    *("compute.subnetworks.use", "compute.subnetworks.useExternalIp"),
}
"""Permissions that `instances.insert` needs beside its own (Compute Engine API reference)."""


def test_the_role_for_google_cloud_has_the_drivers_calls_and_no_other() -> None:
    """A permission is called like its call, but `insert` needs `create`, and `wait` what `get` needs."""
    role = yaml.safe_load((ROOT / "deploy" / "gcp" / "role.yaml").read_text())["includedPermissions"]
    calls = [method.replace(".insert", ".create").replace(".wait", ".get") for method in METHODS]
    assert sorted(role) == sorted({f"compute.{call}" for call in calls} | MAKING)


AZURES = {
    "VirtualMachines": "Microsoft.Compute/virtualMachines",
    "VirtualMachineImages": "Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions",
    "Disks": "Microsoft.Compute/disks",
    "NetworkInterfaces": "Microsoft.Network/networkInterfaces",
    "Subnets": "Microsoft.Network/virtualNetworks/subnets",
    "Subscriptions": "Microsoft.Resources/subscriptions",
    "ResourceGroups": "Microsoft.Resources/subscriptions/resourceGroups",
    "Resources": "Microsoft.Resources/subscriptions/resourceGroups/resources",
    "Tags": "Microsoft.Resources/tags",
}
"""Azure's name of the resource in a permission, by that in an operation; the resource graph shows what one may read."""
AZURES_VERBS = {"CreateOrUpdate": "write", "UpdateAtScope": "write", "Delete": "delete"}
AZURES_OPERATIONS = {"Microsoft.Compute/locations/operations/read", "Microsoft.Network/locations/operations/read"}
"""Where the operations of VMs and disks, and those of interfaces, are asked for."""
AZURES_LINKED = {
    "Microsoft.Compute/capacityReservationGroups/deploy/action",
    "Microsoft.Compute/galleries/images/versions/read",
    "Microsoft.Compute/images/read",
    "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
    "Microsoft.Network/networkInterfaces/join/action",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
}
"""Permissions on what the requests for interfaces, disks and VMs name."""


def test_the_role_for_azure_has_the_drivers_calls_and_no_other() -> None:
    called = {
        node.value
        for file in (ROOT / "drivers" / "azure").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and re.fullmatch(r"[A-Z][A-Za-z]+_[A-Z][A-Za-z]+", str(node.value))
    } - {"ResourceGraph_Resources", "Operations_Get"}
    pairs = [name.split("_") for name in called]
    needed = {f"{AZURES[resource]}/{AZURES_VERBS.get(verb, 'read')}" for resource, verb in pairs}
    role = json.loads((ROOT / "deploy" / "azure" / "role.json").read_text())
    assert sorted(role["Actions"]) == sorted(needed | AZURES_OPERATIONS | AZURES_LINKED)


def test_every_variable_of_the_compose_file_is_explained_with_its_default() -> None:
    explained = dict(re.findall(r"^#(\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert dict(VARIABLE.findall(COMPOSE.read_text())) == explained


def test_images_are_pinned_and_ports_are_on_loopback(services: dict[str, Any]) -> None:
    images = {service["image"] for service in services.values()}
    assert all(re.search(r":[\w.-]*\d", image) for image in images)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"hostler:${{HOSTLER_VERSION:-{version}}}" in images
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_hostlers_containers_may_do_nothing_that_they_need_not(services: dict[str, Any]) -> None:
    ours = [service for service in services.values() if service["image"].startswith("hostler:")]
    assert len(ours) == 8
    for service in ours:
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["read_only"] is True
        assert "privileged" not in service
    assert re.search(r"^USER 10001:10001$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)


def test_the_image_has_all_of_the_code_and_nothing_else() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    sources = {source for line in copied for source in line.split()}
    allowed = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    assert sources == set(allowed)
    assert {package.rstrip("*") for package in packages} <= sources
