"""Machine configs on the command line, without a server: verdicts, pages, `mc render` and `mc diff`."""

from __future__ import annotations

import base64
import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from machine_configs.cases import config_node, config_pool
from paths import ROOT
from typer.testing import CliRunner

from resources.fleet.state import FleetWait
from resources.machine_config.state import ConfigDrain, MachineConfigPoolState, Reservation
from resources.machine_config.view import ConfigCounts
from starter.commands import config_pools
from starter.commands.config_pool_page import about, commands
from starter.commands.forms import Manner, form_of
from starter.commands.rows import show
from starter.commands.tree_view import _config_pool
from starter.main import app
from starter.sdk.errors import NotFound, Unreachable
from starter.sdk.fleet.waiting import Stand
from starter.sdk.machine_config.difference import differences
from starter.sdk.machine_config.results import ConfigPoolDescription, ConfigPoolListed, ConfigPoolShown, judge, numbers

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EXAMPLES = str(ROOT / "examples" / "machine-configs")


def found(*nodes: Any, waits: tuple[str, ...] = (), most: int = 1, **more: Any) -> ConfigPoolDescription:
    pool = more.pop("pool", None) or config_pool("worker", "v2")
    state = MachineConfigPoolState(
        name="worker",
        cluster="demo",
        most=most,
        waits=[FleetWait(reason=reason, message="why", since=NOW - timedelta(minutes=5)) for reason in waits],
        **more.pop("state", {}),
    )
    given = {"state": state, "running": True, "attended": True, **more}
    return ConfigPoolDescription("demo", pool, nodes, **given)


def node(name: str, current: str = "v2", desired: str = "", state: str = "done", **fields: Any) -> Any:
    return config_node(name, f"{current}{'>' if desired else '='}{desired or current} {state}", **fields)


# -- verdicts ----------------------------------------------------------------------------------------------------------

VERDICTS = [
    # nodes, what else -> how it stands, what is said
    ([node("a"), node("b")], {}, Stand.DONE, "mcp/worker is updated: all 2 nodes have v2"),
    ([node("a")], {}, Stand.DONE, "mcp/worker is updated: its node has v2"),
    ([], {}, Stand.DONE, "mcp/worker is updated: it has no nodes"),
    ([node("a"), node("b", "v1")], {}, Stand.GOING, ""),
    ([node("a", "v1", "v2", "working")], {}, Stand.GOING, ""),
    ([node("a")], {"renders": "changes are being rendered"}, Stand.GOING, ""),
    ([node("a"), node("b", "v1")], {"waits": ("ConfigPoolPaused",)}, Stand.STANDS, "blocked: ConfigPoolPaused: why"),
    ([node("a", "v1")], {"waits": ("NodesUpdating",)}, Stand.GOING, ""),
    ([node("a", "v1")], {"waits": ("MaxUnavailableInvalid",)}, Stand.STANDS, "blocked: MaxUnavailableInvalid"),
    # One that fails with the pool's config is in the way once nothing else can begin beside it.
    ([node("a", "v1", "v2", "degraded")], {}, Stand.STANDS, "blocked: ConfigNodesDegraded: a is degraded"),
    ([node("a", "v1", "v2", "degraded"), node("b", "v1")], {}, Stand.STANDS, "ConfigNodesDegraded"),
    ([node("a", "v1", "v2", "degraded"), node("b", "v1")], {"most": 2}, Stand.GOING, ""),
    ([node("a", "v1", "v2", "degraded"), node("b", "v1", "v2", "working")], {}, Stand.GOING, ""),
    # It failed with another config: it will be given the pool's.
    ([node("a", "v0", "v1", "degraded")], {}, Stand.GOING, ""),
    ([node("a", "v1")], {"running": False, "state_": None}, Stand.GOING, ""),
    ([node("a", "v1")], {"running": False, "attended": False}, Stand.STANDS, "has no workflow"),
    ([node("a", "v1")], {"state": {"parked": "ValueError: x"}}, Stand.STANDS, "blocked: InternalError: ValueError: x"),
]


@pytest.mark.parametrize(("nodes", "more", "stand", "said"), VERDICTS)
def test_a_rollout_is_done_goes_on_or_stands(nodes: list[Any], more: dict[str, Any], stand: Stand, said: str) -> None:
    more = {k: v for k, v in more.items() if k != "state_"}
    verdict = judge(found(*nodes, **more))
    assert verdict.stand is stand
    assert said in verdict.words


def test_a_paused_pool_stands_before_its_workflow_has_heard_of_it() -> None:
    paused = config_pool("worker", "v2", paused=True)
    assert judge(found(node("a", "v1"), pool=paused)).stand is Stand.STANDS
    assert judge(found(node("a"), pool=paused)).stand is Stand.DONE


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_says_who_is_where_who_blocks_and_what_to_do() -> None:
    asked = ConfigDrain(uid="u", wish="drain-v2", since=NOW - timedelta(minutes=7), blocker="PDB web allows none")
    page = found(
        node("a"),
        node("b", "v1", "v2", "working", unschedulable=True),
        node("c", "v1", "v2", "degraded", reason="disk is full"),
        node("d", "v1", zone="z1"),
        waits=("ConfigNodesDegraded",),
        state={"drains": {"b": asked}},
        contested=("e (infra, gpu)",),
    )
    text = "\n".join(about(page, NOW))
    assert numbers(page) == "1 of 4 nodes have v2, 1 unavailable, 1 degraded"
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ")}
    assert "disk is full" in rows["c"]
    assert "v1" in rows["d"]
    assert "has another config" in rows["d"]
    assert "PDB web allows none" in text
    assert "Nobody's, for several pools select it: e (infra, gpu)" in text
    assert "ConfigNodesDegraded" in text
    assert "What can be done" in text
    shown = [line for line in text.splitlines() if line.startswith(("  a ", "  b ", "  c ", "  d "))]
    assert [line.split()[0] for line in shown][:4] == ["b", "c", "d", "a"]  # what is well comes last
    assert any("hostler rollout pause mcp/worker --cluster demo" in line for line in commands(page))


def test_a_pool_that_nobody_looks_after_says_what_to_do() -> None:
    text = "\n".join(about(found(node("a", "v1"), running=False, attended=False, state={}), NOW))
    assert "clusters.demo.machineConfigs.enabled" in text


def test_the_tree_has_the_nodes_that_are_under_way() -> None:
    under_way = {
        "a": Reservation(uid="u", config="v2", at=NOW),
        "b": Reservation(uid="u", config="v2", at=NOW, failed=True),
    }
    drain = ConfigDrain(uid="u", wish="drain-v2", since=NOW, blocker="PDB web")
    state = found(state={"reservations": under_way, "drains": {"a": drain}}, waits=("NodesUpdating",)).state
    twig = _config_pool(ConfigPoolShown("worker", "Updating", "", state))
    assert (twig.name, twig.phase, twig.ready, twig.ailment.reason) == (
        "mcp/worker",
        "Updating",
        "0/0",
        "NodesUpdating",
    )
    assert [(t.name, t.phase, t.ailment.message) for t in twig.twigs] == [
        ("node/a", "Updating", "drain: PDB web"),
        ("node/b", "Failed", "v2"),
    ]
    assert _config_pool(ConfigPoolShown("infra", "Updated", "x", None)).ailment.reason == "x"


# -- get ---------------------------------------------------------------------------------------------------------------


class Behind:
    """Answers as the SDK does, for a cluster with an API that answers, or does not."""

    def __init__(self, shown: list[ConfigPoolShown], api: list[Any] | None) -> None:
        self.cluster = "demo"
        self.shown, self.api, self.asked = shown, api, 0
        self.config_pools = self

    async def states(self, **_: Any) -> list[ConfigPoolShown]:
        return self.shown

    async def list(self, **_: Any) -> list[ConfigPoolListed]:
        self.asked += 1
        if self.api is None:
            raise Unreachable("cluster demo: its API does not answer")
        return [ConfigPoolListed("demo", pool, pool.model_dump(by_alias=True)) for pool in self.api]


def shown() -> list[ConfigPoolShown]:
    counts = ConfigCounts(machines=3, updated=1, ready=2, unavailable=1, degraded=1)
    state = MachineConfigPoolState(name="worker", target="v2", completed="v1", most=2, counts=counts, created=NOW)
    silent = ConfigPoolShown("infra", "Updated", "", None, "demo")
    return [silent, ConfigPoolShown("worker", "Degraded", "ConfigNodesDegraded", state, "demo")]


async def test_get_all_has_what_the_workflows_of_config_pools_know_and_waits_for_no_api(
    capsys: pytest.CaptureFixture[str],
) -> None:
    behind: Any = Behind(shown(), None)
    await show([config_pools.known(behind, everywhere=False)], form_of("wide"), Manner())
    header, infra, worker = [line.split("   ") for line in capsys.readouterr().out.splitlines()]
    rows = [
        {k.strip(): v.strip() for k, v in zip(filter(None, header), filter(None, r), strict=True)}
        for r in (infra, worker)
    ]
    assert (rows[0]["NAME"], rows[0]["NODES"], rows[0]["PHASE"]) == ("infra", "<none>", "Updated")  # nobody answers
    assert list(rows[1].values())[:9] == [
        *("worker", "v2", "3", "1", "2", "1", "1", "Degraded", "ConfigNodesDegraded"),
    ]
    assert (rows[1]["MAXUNAVAILABLE"], rows[1]["ALL HAD"], behind.asked) == ("2", "v1", 0)
    with pytest.raises(Unreachable):  # an object is never half of one
        await show([config_pools.known(behind, everywhere=False)], form_of("yaml"), Manner())
    behind.api = [config_pool("worker", "v2")]
    await show([config_pools.known(behind, everywhere=False)], form_of("yaml"), Manner())
    assert [o["metadata"]["name"] for o in yaml.safe_load(capsys.readouterr().out)["items"]] == ["worker"]


async def test_get_mcp_shows_what_is_known_while_the_api_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    behind: Any = Behind(shown(), None)
    await show([config_pools.listing(behind, ["worker"], "")], form_of("table"), Manner())
    told = capsys.readouterr()
    assert "warning: cluster demo: its API does not answer; this is what Hostler knows of them\n" in told.err
    assert "worker" in told.out
    assert "infra" not in told.out
    with pytest.raises(NotFound, match=r"MachineConfigPool 'worke' of cluster 'demo' is not known: .* mean worker"):
        await show([config_pools.listing(behind, ["worke"], "")], form_of("table"), Manner())
    capsys.readouterr()
    for listing in (config_pools.listing(behind, [], "a=b"), config_pools.listing(Behind([], None), [], "")):  # type: ignore[arg-type]
        with pytest.raises(Unreachable):
            await show([listing], form_of("table"), Manner())
    behind.api = [config_pool("worker", "v2")]
    await show([config_pools.listing(behind, [], "")], form_of("table"), Manner())
    assert capsys.readouterr().err == ""


async def test_describe_mcp_shows_what_is_known_while_the_api_does_not_answer() -> None:
    class Described(Behind):
        async def describe(self, name: str) -> ConfigPoolDescription:
            raise Unreachable("cluster demo: its API does not answer")

        async def remembered(self, name: str, why: str) -> ConfigPoolDescription | None:
            known = next((s for s in self.shown if s.name == name and s.state is not None), None)
            return known.description(why) if known is not None else None

    behind: Any = Described(shown(), None)
    found = await config_pools.described(behind, "worker")
    text = "\n".join(about(found, NOW))
    assert "Not seen: cluster demo: its API does not answer.\nThis is what Hostler knew" in text
    assert "0 of 3 nodes have v2, 0 unavailable, 1 degraded" in text
    assert "Chosen by" not in text
    assert "No node belongs to it" not in text
    assert not found.done
    with pytest.raises(Unreachable):
        await config_pools.described(behind, "infra")


# -- mc render, mc diff ------------------------------------------------------------------------------------------------


def run(tmp_path: Path, *args: str, code: int = 0, stdin: str = "") -> tuple[str, str]:
    settings = tmp_path / "settings.yaml"
    if not settings.exists():
        settings.write_text("{}")
    done = CliRunner().invoke(app, ["--settings", str(settings), "mc", *args], input=stdin, prog_name="hostler")
    assert done.exit_code == code, (done.stdout, done.stderr)
    return done.stdout, done.stderr


def test_the_examples_are_rendered_without_a_cluster(tmp_path: Path) -> None:
    out, err = run(tmp_path, "render", "--pool", "infra", "-f", EXAMPLES)
    rendered = yaml.safe_load(out)
    assert err == ""
    assert rendered["metadata"]["name"].startswith("rendered-infra-")
    files = {f["path"] for f in rendered["spec"]["config"]["storage"]["files"]}
    assert {"/etc/sysctl.d/50-inotify.conf", "/etc/kubernetes/kubelet.conf"} <= files
    again, _ = run(tmp_path, "render", "--pool", "infra", "-f", EXAMPLES)
    assert again == out
    names, _ = run(tmp_path, "render", "--pool", "worker", "-f", EXAMPLES, "-o", "name")
    assert names.split() == ["00-worker", "01-worker-kubelet", "50-worker-sysctl", "99-worker-kubelet-managed"]
    whole, _ = run(tmp_path, "render", "--pool", "worker", "-f", EXAMPLES, "--all")
    assert "99-worker-kubelet-managed" in {c["metadata"]["name"] for c in yaml.safe_load(whole)["items"]}


def test_the_settings_of_the_cluster_count(tmp_path: Path) -> None:
    """`worker` first, or purely by name: which of two wins (seed 004, and OpenShift since 2750c2f20)."""
    given = "\n---\n".join(
        [
            yaml.safe_dump(pool_of("infra", ["worker", "infra"])),
            yaml.safe_dump(config_of("aaa", "infra", "infra")),
            yaml.safe_dump(config_of("bbb", "worker", "worker")),
        ]
    )
    names, err = run(tmp_path, "render", "--pool", "infra", "-f", "-", "-o", "name", stdin=given)
    assert names.split() == ["aaa", "bbb"]
    assert "the templates are left out" in err
    (tmp_path / "settings.yaml").write_text(
        "{defaultCluster: demo, clusters: {demo: {machineConfigs: {workerFirst: true}}}}"
    )
    names, _ = run(tmp_path, "render", "--pool", "infra", "-f", "-", "-o", "name", stdin=given)
    assert names.split() == ["bbb", "aaa"]


def pool_of(name: str, roles: list[str]) -> dict[str, Any]:
    expression = {"key": "machineconfiguration.openshift.io/role", "operator": "In", "values": roles}
    spec = {"machineConfigSelector": {"matchExpressions": [expression]}}
    return {"kind": "MachineConfigPool", "metadata": {"name": name}, "spec": spec}


def config_of(name: str, role: str, text: str, path: str = "/etc/x") -> dict[str, Any]:
    files = [{"path": path, "mode": 420, "contents": {"source": f"data:,{text}"}}]
    return {
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": role}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files}}},
    }


def test_why_a_pool_is_not_rendered_is_said(tmp_path: Path) -> None:
    _, err = run(tmp_path, "render", "--pool", "wroker", "-f", EXAMPLES, code=1)
    assert "no MachineConfigPool wroker is in these files; did you mean worker?" in err
    pool = yaml.safe_dump(pool_of("worker", ["worker"]))
    _, err = run(tmp_path, "render", "--pool", "worker", "-f", "-", stdin=pool, code=1)
    assert "MachineConfigPool worker is not rendered" in err
    assert "NoMachineConfigs" in err
    _, err = run(tmp_path, "render", "--pool", "infra", "-f", EXAMPLES, "--templates", str(tmp_path / "no"), code=1)
    assert "there is no such folder" in err
    _, err = run(tmp_path, "render", "--pool", "infra", "-f", EXAMPLES, "-o", "wide", code=2)
    assert "-o takes yaml, json, name" in err


def test_two_configs_in_files_are_compared(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(config_of("a", "worker", "old")))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(config_of("b", "worker", "new")))
    a, b = str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")
    out, _ = run(tmp_path, "diff", a, b, code=1)
    assert out.splitlines() == [
        f"--- {a}",
        f"+++ {b}",
        "file /etc/x: changed",
        "  contents:",
        "    @@ -1 +1 @@",
        "    -old",
        "    +new",
    ]
    assert run(tmp_path, "diff", a, a) == ("", "")
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(pool_of("p", ["worker"])))
    _, err = run(tmp_path, "diff", a, str(tmp_path / "c.yaml"), code=1)
    assert "there must be one MachineConfig in it, and there are 0" in err


def source(text: str, how: str) -> dict[str, Any]:
    plain = text.encode()
    if how == "gzip":
        return {"source": f"data:;base64,{base64.b64encode(gzip.compress(plain)).decode()}", "compression": "gzip"}
    return {"source": f"data:;base64,{base64.b64encode(plain).decode()}"}


def of_files(*files: dict[str, Any]) -> dict[str, Any]:
    return {"config": {"storage": {"files": list(files)}}}


DIFFERENCES = [
    ({}, {}, []),
    ({"fips": False}, {"fips": True}, ["fips: false -> true"]),
    ({}, {"kernelArguments": ["a", "b"]}, ['kernelArguments: nothing -> ["a", "b"]']),
    ({"kernelArguments": []}, {}, []),
    (of_files({"path": "/a"}), of_files(), ["file /a: removed"]),
    (
        of_files({"path": "/a", "mode": 0o644}),
        of_files({"path": "/a", "mode": 0o600}),
        ["file /a: changed", "  mode: 0644 -> 0600"],
    ),
    (
        of_files({"path": "/a", "contents": source("x\ny\n", "plain")}),
        of_files({"path": "/a", "contents": source("x\ny\n", "gzip")}),
        ["file /a: changed", "  contents: the same, written otherwise"],
    ),
    (
        of_files({"path": "/a", "contents": {"source": "https://h/a"}}),
        of_files({"path": "/a", "contents": {"source": "data:;base64,/w=="}}),
        ["file /a: changed", "  contents: https://h/a -> 1 bytes"],
    ),
    (
        {"config": {"systemd": {"units": [{"name": "a", "enabled": True}]}}},
        {"config": {"systemd": {"units": [{"name": "a", "enabled": False}]}}},
        ["unit a: changed", "  enabled: true -> false"],
    ),
    (
        {"config": {"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k1"]}]}}},
        {"config": {"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k1", "k2"]}]}}},
        ["user core: changed", '  sshAuthorizedKeys: ["k1"] -> ["k1", "k2"]'],
    ),
    (
        {"config": {"ignition": {"version": "3.4.0"}}},
        {"config": {"ignition": {"version": "3.5.0"}}},
        ["ignition.version: 3.4.0 -> 3.5.0"],
    ),
]


@pytest.mark.parametrize(("before", "after", "lines"), DIFFERENCES)
def test_a_difference_is_said_as_what_it_is(before: dict[str, Any], after: dict[str, Any], lines: list[str]) -> None:
    assert differences(before, after) == lines
