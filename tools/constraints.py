"""Prints constraints.txt: the exact versions, in this environment, of what pyproject.toml needs, and of nothing else.

    python tools/constraints.py > constraints.txt

Whatever else happens to be installed is left out, and so are index addresses: they are the reader's own matter.
"""

from __future__ import annotations

from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "hostler"
EXTRA = "dev"


def needed(project: str, extra: str) -> dict[str, str]:
    """Version by name of everything that `project[extra]` needs here, itself excluded."""
    versions: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    todo = [(project, ""), (project, extra)]
    while todo:
        name, wanted = todo.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        distribution = metadata.distribution(name)
        if name != project:
            versions[name] = distribution.version
        for line in distribution.requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": wanted}):
                child = canonicalize_name(requirement.name)
                todo += [(child, e) for e in ("", *requirement.extras)]
    return versions


if __name__ == "__main__":
    print("# The versions that the tests ran with. Written by tools/constraints.py.")
    for name, version in sorted(needed(PROJECT, EXTRA).items()):
        print(f"{name}=={version}")
