"""Which accounts have a task queue of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from resources.queues import Routes, queues
from resources.settings import Settings, SettingsError, load_settings

FILE = """
queuePrefix: h
clouds:
  aws:
    callsPerSecond: 9
    callsPerSecondPerAccount: 3
    queues:
      payments: {accounts: ["AWS/eu-west-1/payments/*", AWS/us-east-1/default/big], callsPerSecond: 5}
      west: {accounts: ["*/eu-west-1/*"]}
      former: {accounts: []}
  fake: {}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "settings.yaml").write_text(FILE)
    return load_settings(tmp_path / "settings.yaml")


@pytest.mark.parametrize(
    ("account", "queue"),
    [
        ("AWS/eu-west-1/payments/one", "h-cloud-aws-payments"),  # two fit: the first counts
        ("AWS/eu-west-1/default/one", "h-cloud-aws-west"),
        ("AWS/us-east-1/default/big", "h-cloud-aws-payments"),
        ("AWS/us-east-1/default/bigger", "h-cloud-aws"),
        ("aws/EU-west-1/payments/one", "h-cloud-aws-payments"),
        (f"AWS/eu-west-1/payments/{'x' * 200}", "h-cloud-aws-payments"),
    ],
)
def test_where_an_accounts_calls_go(settings: Settings, account: str, queue: str) -> None:
    assert Routes(settings).queue("h-cloud-aws", account) == queue


def test_no_other_queue_is_changed(settings: Settings) -> None:
    for other in ("h-cloud-fake", "h-cluster-demo", "h"):
        assert Routes(settings).queue(other, "AWS/eu-west-1/payments/one") == other


def test_they_are_polled_by_the_clouds_workers_at_their_own_rate(settings: Settings) -> None:
    found = {q.name: (q.role, q.per_second, q.per_account) for q in queues(settings, []) if "cloud" in q.name}
    assert found == {
        "h-cloud-aws": ("cloud", 9, 3),
        "h-cloud-aws-payments": ("cloud", 5, 3),
        "h-cloud-aws-west": ("cloud", None, 3),
        "h-cloud-aws-former": ("cloud", None, 3),  # for what still waits there
        "h-cloud-fake": ("cloud", None, None),
    }


def test_without_the_setting_there_is_nothing_to_route() -> None:
    assert not Routes(Settings(clouds={"aws": {"queues": {"former": {"accounts": []}}}}))  # type: ignore[dict-item]
    assert Routes(Settings(clouds={"aws": {"queues": {"own": {"accounts": ["*"]}}}}))  # type: ignore[dict-item]


def test_a_name_that_is_no_part_of_a_queues_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("clouds: {aws: {queues: {Pay/ments: {accounts: []}}}}")
    with pytest.raises(SettingsError, match=r"clouds\.aws\.queues\.Pay/ments"):
        load_settings(tmp_path / "settings.yaml")
