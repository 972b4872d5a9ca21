"""What the deletion of a machine config, of a kubelet config and of a pool means, as it is said before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from machine_configs.cases import config_node
from machine_configs.objects import NOW, OPTIONS, at_rest, config, controller_config, file, kubelet_config, named, pool

from planners.machine_config.objects import changed
from planners.machine_config.picture import Picture
from resources.machine_config.keys import (
    CONTROLLER_CONFIG,
    KUBELET_CONFIG,
    MACHINE_CONFIG,
    MACHINE_CONFIG_POOL,
    ConfigKind,
)
from resources.machine_config.node import ConfigNode
from starter.commands.machine_config_page import page
from starter.sdk.errors import Refused
from starter.sdk.machine_config.deletion import DeletionView, meant
from starter.sdk.machine_config.description import ConfigDescription

WORKERS = {"nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}}
INFRA = {"nodeSelector": {"matchLabels": {"infra": ""}}}


def rested() -> Picture:
    """A cluster with the pools worker and infra, and something for each, in which all is rendered."""
    return at_rest(
        controller_config(),
        pool("worker", **WORKERS),
        pool("infra", "worker", "infra", maxUnavailable=2, **INFRA),
        config("50-x", file("/etc/x", "1")),
        config("50-infra", file("/etc/y", "1"), role="infra"),
        config("60-gpu", file("/etc/z", "1"), role="gpu"),
        kubelet_config("small", maxPods=100),
    ).picture


def nodes(picture: Picture) -> list[ConfigNode]:
    """Two workers and one of infra, which have what their pools have."""
    has = {name: named(picture.pools, name)["spec"]["configuration"]["name"] for name in ("worker", "infra")}
    both = {"node-role.kubernetes.io/worker": "", "infra": ""}
    return [
        *(config_node(n, f"{has['worker']}={has['worker']}") for n in ("w1", "w2")),
        config_node("i1", f"{has['infra']}={has['infra']}", labels=both),
    ]


def said(picture: Picture, kind: ConfigKind, name: str, there: Sequence[ConfigNode] | None = None) -> list[str]:
    of: dict[str, Any] = {"machineconfig": picture.configs, "machineconfigpool": picture.pools}
    found = named(of.get(kind.singular, picture.kubelet_configs), name)
    view = DeletionView("demo", picture, nodes(picture) if there is None else there, {})
    return meant(view, OPTIONS, kind, found, NOW)


def test_every_pool_that_selects_a_config_says_how_many_nodes_are_updated() -> None:
    first, infra, worker = said(rested(), MACHINE_CONFIG, "50-x")
    assert first == "selected by pool infra, worker"
    assert infra.startswith("pool infra: 1 of 1 node updated to rendered-infra-")
    assert infra.endswith(", at most 2 at a time")
    assert worker.startswith("pool worker: 2 of 2 nodes updated to rendered-worker-")
    assert worker.endswith(", at most 1 at a time")
    assert said(rested(), MACHINE_CONFIG, "60-gpu") == ["no pool selects it", "no node is updated"]
    # What a paused pool gets is known, and comes later.
    picture = rested()
    pools = [changed(p, spec={"paused": p["metadata"]["name"] == "infra"}) for p in picture.pools]
    _, line = said(replace(picture, pools=pools), MACHINE_CONFIG, "50-infra")
    assert " once it is resumed (it is paused), at most 2 at a time" in line


def test_a_kubelet_config_takes_what_was_made_of_it_along() -> None:
    first, *more = said(rested(), KUBELET_CONFIG, "small")
    assert first == "it is for pool worker"
    assert [line.split(":")[0] for line in more] == ["pool infra", "pool worker"]  # infra has what every worker has


def test_the_nodes_of_a_deleted_pool_go_to_the_pool_of_all_others_or_to_none() -> None:
    picture = rested()
    [line] = said(picture, MACHINE_CONFIG_POOL, "infra")
    assert line.startswith("pool worker: it gets 1 node (i1); 1 of 3 nodes updated to rendered-worker-")
    alone = [config_node("i1", "V1=V1", labels={"infra": ""})]
    [line] = said(picture, MACHINE_CONFIG_POOL, "infra", alone)
    assert line == "1 node (i1) in no pool then, with the config that they have"
    assert said(picture, MACHINE_CONFIG_POOL, "infra", []) == ["no node is updated"]


def test_a_deletion_that_cannot_be_rendered_changes_no_node() -> None:
    """Only a pool's last MachineConfig is: nothing could be rendered without it."""
    picture = at_rest(pool("gpu", **INFRA), config("60-gpu", file("/etc/z", "1"), role="gpu")).picture
    _, line = said(picture, MACHINE_CONFIG, "60-gpu", [config_node("g1", labels={"infra": ""})])
    assert line.startswith("pool gpu keeps its config: NoMachineConfigs: ")


@pytest.mark.parametrize(
    ("kind", "name", "why"),
    [
        (
            MACHINE_CONFIG_POOL,
            "worker",
            "2 nodes (w1, w2) would be in no pool then; `hostler rollout pause mcp/worker`",
        ),
        (MACHINE_CONFIG, "00-worker", "it is made of ControllerConfig machine-config-controller, and would be made"),
        (MACHINE_CONFIG, "99-worker-kubelet-managed", "it is made of KubeletConfig small, and would be made again"),
        (MACHINE_CONFIG, "rendered-worker-", "pool worker and 2 nodes (w1, w2) need it, and daemons read it"),
    ],
)
def test_what_would_come_back_or_what_nodes_need_is_not_deleted(kind: ConfigKind, name: str, why: str) -> None:
    picture = rested()
    if name.endswith("-"):
        name = named(picture.pools, "worker")["spec"]["configuration"]["name"]
    with pytest.raises(Refused) as e:
        said(picture, kind, name)
    assert str(e.value).startswith(f"{kind.singular} {name} is not deleted: {why}")


def test_a_rendered_config_that_nobody_needs_may_go() -> None:
    picture = rested()
    name = named(picture.pools, "worker")["spec"]["configuration"]["name"]
    free = [p for p in picture.pools if p["metadata"]["name"] != "worker"]
    found = named(picture.configs, name)
    view = DeletionView("demo", Picture(configs=picture.configs, pools=free), [], {})
    assert meant(view, OPTIONS, MACHINE_CONFIG, found, NOW) == ["no node is updated"]


def test_the_page_of_a_controller_config_names_fields_that_may_hold_credentials_and_hides_their_values() -> None:
    whole = controller_config(internalRegistryPullSecret='{"auths": {"r": "hunter2"}}', platform="aws")
    text = "\n".join(page(ConfigDescription("demo", CONTROLLER_CONFIG, whole), NOW))
    assert "internalRegistryPullSecret" in text
    assert "hunter2" not in text
    assert "10.3.0.10" in text
