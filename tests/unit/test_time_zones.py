"""A window's time zone is judged where it is applied, with what may have been meant."""

from __future__ import annotations

import pytest
import yaml
from paths import ROOT
from pools.behind_cli import pool_yaml

from resources.manifests import Loaded, MachineDeployment, WorkerPool
from starter.sdk.apply import time_zones
from starter.sdk.apply.time_zones import unknown_zones


def window(name: str) -> dict[str, object]:
    return {"windows": [{"begin": "22:00", "end": "04:00"}, {"begin": "22:00", "end": "04:00", "timezone": name}]}


WORDS = "the time zone database does not have {!r}; write a name like Europe/Berlin"
ZONES = [
    ("Europe/Berlin", None),
    ("+01:00", None),
    ("UTC", None),
    ("Europe/Berln", "; did you mean Europe/Berlin or "),
    ("europe/berlin", "; did you mean Europe/Berlin"),
    ("Berlin", "; did you mean Europe/Berlin?"),
    ("Xyzzyq", ""),
]


@pytest.mark.parametrize(("name", "meant"), ZONES, ids=[name for name, _ in ZONES])
def test_an_unknown_zone_is_said_with_its_path(name: str, meant: str | None) -> None:
    pool = MachineDeployment.model_validate(pool_yaml(maintenance=window(name)))
    workers = yaml.safe_load((ROOT / "examples" / "workerpool" / "aws.yaml").read_text())
    workers["spec"]["maintenance"] = window(name)
    found = unknown_zones(Loaded(pools=[pool], worker_pools=[WorkerPool.model_validate(workers)]))
    if meant is None:
        assert found == []
        return
    path = "spec.maintenance.windows[1].timezone"
    for line, where in zip(found, ("workerpool workers", "pool p1"), strict=True):
        assert line.startswith(f"{where}: {path}: {WORDS.format(name)}{meant}")
        assert line.endswith("?" if meant else "Europe/Berlin")


def test_without_a_database_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's may have it; it says what it does not know."""
    pool = MachineDeployment.model_validate(pool_yaml(maintenance=window("Europe/Berln")))
    monkeypatch.setattr(time_zones, "_known", set[str])
    assert unknown_zones(Loaded(pools=[pool])) == []
