"""What is wrong in a settings file: the field as one writes it, what is wrong with it, and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from resources.settings import Settings, SettingsError, load_settings


def said(folder: Path, content: str) -> str:
    file = folder / "settings.yaml"
    file.write_text(content)
    with pytest.raises(SettingsError) as e:
        load_settings(file)
    return str(e.value).replace(f"{file}: ", "")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("temporal: {adress: x}", "temporal.adress: there is no such field; did you mean address?"),
        ("defaultClster: x", "defaultClster: there is no such field; did you mean defaultCluster?"),
        ("secrets: {zzz: 1}", "secrets.zzz: there is no such field; there are source, cluster, directory"),
        ("clusters: {demo: {kubeconfg: x}}", "clusters.demo.kubeconfg: there is no such field; did you mean kubeco"),
        ("queuePrefix: 5", "queuePrefix: not a text: put it in quotes"),
        ("secrets: {source: kube}", "secrets.source: write kubernetes, directory or environment"),
        ("clouds: {aws: {callsPerSecond: abc}}", "clouds.aws.callsPerSecond: not a number"),
        ("clouds: {aws: {callsAtOncePerAccount: 0}}", "clouds.aws.callsAtOncePerAccount: must be at least 1"),
        ("clouds: {aws: {callTimeout: 5x}}", "clouds.aws.callTimeout: '5x' is not a duration; write it like 20m"),
        ("clouds: {aws: {queues: {a: {}}}}", "clouds.aws.queues.a.accounts: is missing"),
        ("clouds: {aws: {queues: {A/b: {accounts: []}}}}", "clouds.aws.queues.A/b: has other characters than"),
        ("clusters: {P R: {}}", "clusters.P R: no cluster has such a name: a lowercase RFC 1123 subdomain must"),
        ("defaultCluster: P/R", "defaultCluster: no cluster has such a name: a lowercase RFC 1123 subdomain must"),
        ("worker: {roles: [watch, dance]}", "worker.roles[1]: write workflows, cluster, watch, drain or cloud"),
        ("worker: {census: 0s}", "worker.census: must be more than 0s"),
        ("worker: {strictSandbox: maybe}", "worker.strictSandbox: write true or false"),
        ("timings: 3", "timings: not a mapping: write fields, each as `name: value`"),
    ],
)
def test_a_wrong_field_is_said_in_the_files_words(tmp_path: Path, content: str, words: str) -> None:
    assert said(tmp_path, content).startswith(words)


def test_an_empty_variable_names_no_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTLER_SETTINGS", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert load_settings().file is None


def test_each_wrong_field_has_a_line_and_a_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTLER_WORKER__MAX_CONCURRENT_ACTIVITIES", "many")
    monkeypatch.setenv("HOSTLER_DEFAULT_CLUSTER", "fine")
    lines = said(tmp_path, "temporal: 1\ndefaultCluster: also-fine").splitlines()
    assert lines == [
        "temporal: not a mapping: write fields, each as `name: value`",
        "HOSTLER_WORKER__MAX_CONCURRENT_ACTIVITIES: worker.maxConcurrentActivities: not a whole number",
    ]


def test_a_variable_with_a_field_that_nobody_knows_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of a variable's names are apart, MACHINE_CONFIGS; the file is not to blame for one where they are
    not."""
    monkeypatch.setenv("HOSTLER_CLUSTERS__DEMO__MACHINECONFIGS__ENABLED", "true")
    assert said(tmp_path, "clusters: {demo: {}}") == (
        "HOSTLER_CLUSTERS__DEMO__MACHINECONFIGS__ENABLED: clusters.demo.machineconfigs: there is no such field; "
        "did you mean machineConfigs?"
    )
    assert said(tmp_path, "clusters: {demo: {machineconfigs: {}}}").startswith("clusters.demo.machineconfigs:")


def test_a_cluster_that_is_not_in_the_settings() -> None:
    with pytest.raises(SettingsError, match=r"'dmeo' is not in the settings; .*: demo, other; did you mean demo\?"):
        Settings(clusters={"demo": {}, "other": {}}).cluster("dmeo")
