"""Secrets on consoles and in errors: which forms are known, and what must stay legible around them."""

from __future__ import annotations

import pytest

from resources.intents import Intent
from resources.machine.facts import NodeFacts
from resources.redact import hide_secrets

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc=\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("login password: hunter2", "login password: ***"),
        ("The root password is: hunter2!", "The root password is: ***"),
        ("Password for user 'ubuntu': correct-horse", "Password for user 'ubuntu': ***"),
        ('{"password": "correct horse"}', '{"password": ***}'),
        ("DB_PASSWORD=hunter2 ./start", "DB_PASSWORD=*** ./start"),
        ("passphrase = 'a b c' done", "passphrase = *** done"),
        ("+ export API_TOKEN=abc", "+ export API_TOKEN=***"),
        ("clientSecret: s3cr3t", "clientSecret: ***"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "aws_secret_access_key = ***"),
        ("curl -H 'Authorization: Bearer abc.DEF.123456'", "curl -H 'Authorization: Bearer ***'"),
        ("Authorization: Basic dXNlcjpwYXNz==", "Authorization: Basic ***"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln end", "jwt *** end"),
        ("kubeadm join --token abcdef.0123456789abcdef", "kubeadm join --token abcdef.***"),
        ("proxy http://user:pa55@proxy.example:3128", "proxy http://user:***@proxy.example:3128"),
        (f"key:\n{PEM}\nend", "key:\n-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\nend"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEow", "-----BEGIN PRIVATE KEY-----***"),
        (f"data:\n{'QUJD' * 19}\r\n{'QUJD' * 10}\r\nend", "data:\n***\n***\nend"),
        ("Set the following 'random' passwords\r\nubuntu:Xy7\r\nroot:a:b\r\nok", None),
    ],
)
def test_a_secret_of_a_known_form_is_hidden(text: str, shown: str | None) -> None:
    if shown is None:
        shown = "Set the following 'random' passwords\r\nubuntu:***\r\nroot:***\r\nok"
    assert hide_secrets(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "kubelet: failed to get the bootstrap token: connection refused",
        "could not read secret: no such file",
        "Started Forward Password Requests to Wall Directory Watch.",
        "sshd[812]: Failed password for root from 10.0.0.7 port 22 ssh2",
        "chpasswd: PAM: Authentication failure",
        "Reached target Basic System. basic initialization",
        "ip-10-0-0-7 login: ",
        "i-0123456789abcdef0 in eu-west-1a: http://10.0.0.1:8080/healthz: 503",
        "x509: certificate has expired",
        "Unit kubelet.service entered failed state",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ],
)
def test_what_tells_of_a_trouble_stays(text: str) -> None:
    assert hide_secrets(text) == text


def test_what_it_does_not_know() -> None:
    """docs/security.md says so."""
    assert hide_secrets("hunter2") == "hunter2"
    assert hide_secrets("pass\x1b[0mword: x") == "pass\x1b[0mword: x"


def test_what_people_and_kubelets_say_is_looked_through() -> None:
    """It is shown in pages, journals and Events like a console."""
    secret = "kubeadm join --token abcdef.0123456789abcdef failed"
    shown = "kubeadm join --token abcdef.*** failed"
    assert Intent(reason=secret).reason == shown
    facts = NodeFacts(epoch=1, seq=1, exists=True, reason=secret)
    assert facts.reason == shown
    assert NodeFacts.model_validate_json(facts.model_dump_json()) == facts
