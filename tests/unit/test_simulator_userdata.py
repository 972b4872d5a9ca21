"""What user data and knobs tell a simulated kubelet."""

from __future__ import annotations

import base64
import gzip

import pytest
from simulated.support import TOKEN, TOKEN_SECRET, user_data

from simulator.kubelet import KnobRule, Knobs
from simulator.kubelet.knobs import knobs_for
from simulator.kubelet.userdata import UserDataError, parse_user_data


def test_user_data_gives_token_labels_and_taints() -> None:
    args = "--node-labels=pool=a,node.kubernetes.io/x=1 --register-with-taints=k=v:NoExecute,plain:NoSchedule --v 4"
    config = parse_user_data(user_data(args=args))
    assert config.token == TOKEN
    assert config.labels == {"pool": "a", "node.kubernetes.io/x": "1"}
    assert config.taints == (
        {"key": "k", "value": "v", "effect": "NoExecute"},
        {"key": "plain", "effect": "NoSchedule"},
    )


@pytest.mark.parametrize("quote", ["", '"', "'"])
def test_kubelet_arguments_are_read_quoted_and_bare(quote: str) -> None:
    args = f"{quote}--node-labels=a=b --register-with-taints=t:NoSchedule{quote}"
    config = parse_user_data(user_data(args=args))
    assert config.labels == {"a": "b"}
    assert [t["key"] for t in config.taints] == ["t"]


def test_compressed_user_data_and_files_are_read() -> None:
    assert parse_user_data(gzip.compress(user_data())).token == TOKEN
    kubeconfig = f"users: [{{name: a, user: {{token: {TOKEN}}}}}]"
    packed = base64.b64encode(gzip.compress(kubeconfig.encode())).decode()
    text = f"#cloud-config\nwrite_files:\n- {{path: /x/bootstrap-kubeconfig, encoding: gz+b64, content: {packed}}}\n"
    assert parse_user_data(text.encode()).token == TOKEN


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no user data"),
        (b"#!/bin/sh\necho hello", "only #cloud-config"),
        (b"#cloud-config\nwrite_files: [", "failed loading yaml blob"),
        (b"#cloud-config\npackages: [vim]", "no write_files"),
        (b"#cloud-config\nwrite_files:\n- path: /etc/motd\n", "no file whose path ends with bootstrap-kubeconfig"),
        (b"#cloud-config\nwrite_files:\n- {path: /x, encoding: rot13}\n", "unknown encoding 'rot13'"),
        (b"#cloud-config\nwrite_files:\n- {path: /x, encoding: b64, content: '*'}\n", "not base64"),
        (user_data(token="too.short"), "not of the form id.secret"),
        (user_data(args="--register-with-taints=k=v:Sometimes"), "invalid taint spec: k=v:Sometimes"),
        (user_data(args="--node-labels=node-role.kubernetes.io/control-plane="), "unknown 'kubernetes.io'"),
        (user_data(args="--hostname-override=other"), "--hostname-override is not emulated"),
        (user_data(args="'--v=2"), "No closing quotation"),
    ],
)
def test_user_data_that_no_machine_can_join_with_says_why(data: bytes, why: str) -> None:
    with pytest.raises(UserDataError) as e:
        parse_user_data(data)
    assert why in str(e.value)


def test_no_user_data_error_shows_the_token() -> None:
    broken = f"#cloud-config\nwrite_files: [token: {TOKEN}, {{]".encode()
    with pytest.raises(UserDataError) as e:
        parse_user_data(broken)
    assert TOKEN_SECRET not in str(e.value)
    assert TOKEN_SECRET not in repr(parse_user_data(user_data()))


def test_later_knob_rules_win_field_by_field() -> None:
    rules = [
        KnobRule(match="m-*", knobs=Knobs(join_delay=3, unready=True)),
        KnobRule(match="i-7", knobs=Knobs(unready=False, no_taint=True)),
    ]
    assert knobs_for(rules, "m-1", "i-1") == Knobs(join_delay=3, unready=True)
    assert knobs_for(rules, "m-1", "i-7") == Knobs(join_delay=3, no_taint=True)
    assert knobs_for(rules, "other", "i-8") == Knobs()
