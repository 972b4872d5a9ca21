"""Times and errors are said in one way: nothing formats a time on its own, and an error without words has a name."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from paths import ROOT

from planners.cluster.news import troubles
from resources.cluster.news import Reachability
from resources.cluster.state import ClusterState
from resources.words import cause, utc, utc_clock

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOUSE = ("resources", "planners", "workflows", "activities", "drivers", "starter")
MAY_FORMAT = {
    "resources/words.py": "the one way",
    "resources/orders.py": "an order as it was sent",
    "starter/sdk/results.py": "Kubernetes' own form, for programs",
    "activities/drain/words.py": "its own short form, with UTC",
    "starter/local/demo_view.py": "the demo's own lines, which pass by",
    "starter/commands/rollout_history.py": "lines of a rollout's steps, with Z",
    "starter/commands/rollout_view.py": "lines of a rollout's steps, with Z",
    "starter/commands/events.py": "the first column of events, with Z",
}


def test_a_time_says_that_it_is_utc() -> None:
    time = datetime(2026, 3, 1, 15, 5, tzinfo=timezone(timedelta(hours=1)))
    assert (utc(time), utc_clock(time)) == ("2026-03-01 14:05:00 UTC", "14:05:00 UTC")
    assert utc(time.astimezone(UTC)) == utc(time)


def no_connection(why: OSError) -> aiohttp.ClientConnectorError:
    key = ConnectionKey("k8s.test", 443, True, True, None, None, None)
    return aiohttp.ClientConnectorError(key, why)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no"), "no"),
        (TimeoutError(), "no answer in time"),
        (ConnectionResetError(), "ConnectionResetError"),
        (no_connection(OSError(111, "Connect call failed ('10.0.0.1', 443)")), "k8s.test:443: Connection refused"),
        (no_connection(OSError(-2, "Name or service not known")), "k8s.test:443: Name or service not known"),
        (no_connection(OSError("Multiple exceptions: a, b")), "k8s.test:443: Multiple exceptions: a, b"),
    ],
)
def test_an_error_is_never_empty(error: Exception, words: str) -> None:
    assert cause(error) == words


def test_nobody_formats_times_on_its_own() -> None:
    found = {
        str(file.relative_to(ROOT))
        for folder in HOUSE
        for file in (ROOT / folder).rglob("*.py")
        if re.search(r":%Y-|:%H:", file.read_text())
    }
    assert found == set(MAY_FORMAT)


def test_nobody_asks_whether_an_error_is_true() -> None:
    """`{e or type(e).__name__}` is `{e}`: an exception is never false."""
    wrong = re.compile(r"\b(?:e|err|error|exc) or (?:type\(|f?\")")
    places = [*(f for folder in (*HOUSE, "simulator") for f in (ROOT / folder).rglob("*.py")), ROOT / "worker.py"]
    assert [f"{f.relative_to(ROOT)}: {m[0]}" for f in places for m in wrong.finditer(f.read_text())] == []


def test_an_outage_names_the_api_server_once() -> None:
    down = Reachability(reachable=False, message="the API server of a cannot be reached: no answer", time=NOW)
    assert down.words == "cannot be reached: no answer"
    assert troubles(ClusterState(name="a", api=down)) == {"": "the API server of a cannot be reached: no answer"}
    plain = down.model_copy(update={"message": "connection refused"})
    assert plain.words == "cannot be reached: connection refused"
    assert troubles(ClusterState(name="a", api=plain)) == {"": "the API server: connection refused"}
