"""Writes deploy/crds: the CustomResourceDefinitions of machine configs, from resources/machine_config.

    python tools/crds.py deploy/crds

tests/unit/test_deploy.py holds the files to it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from resources.machine_config.crds import definitions

MADE = "# Made by `make crds` from resources/machine_config. What it is for: docs/machine-configs.md.\n"


def files() -> dict[str, str]:
    """The text of each file, by its name."""
    return {
        f"{d['spec']['names']['plural']}.yaml": MADE + yaml.safe_dump(d, sort_keys=False, width=120)
        for d in definitions()
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text)
