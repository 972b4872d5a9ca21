"""Columns and views for Temporal's web UI: what `hostler setup` prints, and whether the server takes the queries."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cli.place import Place, class_yaml, eventually, machine_yaml, place, text, working
from cli.standins import BECOMES
from paths import ROOT

from resources import attributes
from starter.sdk.webui import COLUMNS, VIEWS

__all__ = ["place", "working"]  # fixtures

PAGE = (ROOT / "docs" / "web-ui.md").read_text()


def literals(script: str) -> list[Any]:
    """The JSON in the script: namespace, views, columns."""
    found = re.findall(r'= ("[^"]+");|= (\[.*\]);|\(\) => (\[.*\])\);', script)
    return [json.loads(next(filter(None, groups))) for groups in found]


async def test_setup_prints_links_and_the_script(place: Place) -> None:
    plain = (await place.run("setup")).ok().splitlines()
    assert plain[-1] == f"namespace {place.client.namespace} is ready for Hostler"
    links = [line.partition(": http")[2] for line in plain[-1 - len(VIEWS) : -1]]
    assert [parse_qs(urlsplit(link).query)["query"] for link in links] == [[view.query] for view in VIEWS]

    ran = await place.run("setup", "--web-ui")
    assert ran.err.splitlines() == plain  # the script alone is what goes to the clipboard
    namespace, views, columns = literals(ran.ok())
    assert namespace == place.client.namespace
    assert [(v["name"], v["query"]) for v in views] == [(view.name, view.query) for view in VIEWS]
    assert [c["label"] for c in columns] == list(COLUMNS)

    place.write_settings(temporal={"address": place.client.service_client.config.target_host})  # no ui
    assert not [line for line in (await place.run("setup")).ok().splitlines() if "http" in line]


async def test_a_view_finds_what_it_is_for(working: Place) -> None:
    """The server takes its query, and a machine that is Failed is found, one that runs is not."""
    machines = machine_yaml("well"), machine_yaml("ill", **{BECOMES: "Failed"})
    (await working.run("apply", "-f", "-", stdin=text(class_yaml(), *machines))).ok()
    found: dict[str, set[str]] = {}

    async def look() -> bool:
        for view in VIEWS:
            query = f"{view.query} AND {attributes.CLUSTER.name}='{working.cluster}'"
            found[view.id] = {e.id.rpartition("/")[2] async for e in working.client.list_workflows(query)}
        return found["hostler-machines-not-well"] == {"ill"}

    await eventually(look, "the machine that is not well")
    assert found["hostler-pools-that-wait"] == set()


def test_the_page_names_what_the_script_makes() -> None:
    assert all(f"| {view.name} |" in PAGE for view in VIEWS)
    assert ", ".join(COLUMNS[:-1]) + f" and {COLUMNS[-1]}" in " ".join(PAGE.split())
    named = set(re.findall(r"`[^`]*?(Hostler\w+)", PAGE))
    assert named <= {key.name for key in attributes.ALL}
