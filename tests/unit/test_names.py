"""Names: which are valid, and which must never become part of a URL's path."""

from __future__ import annotations

import pytest

from activities.kube.client import KubeError, node_path, secret_path
from activities.kube.volumes import VOLUME_ATTACHMENTS
from resources.endpoints import in_clear
from resources.names import id_parts, is_label, is_name, is_segment
from resources.settings import CloudSettings


@pytest.mark.parametrize("name", ["m-1", "a", "a.b-c", "0", "a" * 253])
def test_a_name(name: str) -> None:
    assert is_name(name)
    assert is_label(name) == (len(name) <= 63)
    assert is_segment(name)


NO_NAMES = ["m1\n", "\nm1", "m1\n\n", "", "M1", "-a", "a-", ".", "..", "a/b", "a b", "a" * 254, "é"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_no_name(name: str) -> None:
    assert not is_name(name)
    assert not is_label(name)


@pytest.mark.parametrize("name", ["", ".", "..", "../../../api/v1/secrets", "a/b", "%2e%2e", "a%2Fb"])
def test_what_no_object_can_be_called_is_not_asked_for(name: str) -> None:
    assert not is_segment(name)
    with pytest.raises(KubeError, match="not a valid name for an object") as e:
        node_path(name)
    assert e.value.status == 400
    if name:
        with pytest.raises(KubeError):
            secret_path("kube-system", name)
    with pytest.raises(KubeError):
        secret_path(name or "..", "x")


def test_every_other_sign_is_quoted() -> None:
    assert node_path("a?watch=true#x y\u202e") == "/api/v1/nodes/a%3Fwatch%3Dtrue%23x%20y%E2%80%AE"
    assert secret_path("ns") == "/api/v1/namespaces/ns/secrets"
    assert VOLUME_ATTACHMENTS.endswith("/volumeattachments")


@pytest.mark.parametrize(
    ("url", "clear"),
    [
        ("https://api.example", False),
        ("HTTPS://api.example", False),
        ("http://127.0.0.1:7644", False),
        ("http://127.8.9.10", False),
        ("http://[::1]:80/x", False),
        ("http://localhost:80", False),
        ("http://api.example", True),
        ("http://127.0.0.1.evil.example", True),
        ("http://localhost.evil.example", True),
        ("http://127.0.0.1@evil.example", True),
        ("http://10.0.0.1", True),
        ("ftp://127.0.0.1.example", True),
        ("api.example:6443", True),
        ("", True),
    ],
)
def test_what_is_sent_in_clear(url: str, clear: bool) -> None:
    assert in_clear(url) is clear


def test_a_clouds_endpoint_in_the_settings_is_not_in_clear() -> None:
    with pytest.raises(ValueError, match="would be sent unencrypted"):
        CloudSettings(endpoint="http://ec2.example")
    assert CloudSettings(endpoint="http://127.0.0.1:7644").endpoint == "http://127.0.0.1:7644"


@pytest.mark.parametrize(
    ("id", "parts"),
    [
        ("machine/demo/m-1", ["demo", "m-1"]),
        ("machine/demo/a/b", ["demo", "a/b"]),
        ("by-hand", ["", "by-hand"]),
        ("machine/m-1", ["", "machine/m-1"]),
    ],
)
def test_a_workflow_under_an_id_of_another_form_can_be_listed(id: str, parts: list[str]) -> None:
    assert id_parts(id, 2) == parts
