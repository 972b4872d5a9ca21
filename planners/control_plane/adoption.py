"""The place of a machine that a control plane finds: one made by hand, adopted, or of a former set.

Source: OpenShift's provider.go (the index is the number that a machine's name ends with, else that of its failure
domain), where a machine with neither stops everything; here it gets the lowest index that is free.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from planners.control_plane.alike import Fields, differing
from planners.machine.hot_update import compare
from resources.clouds import in_domain
from resources.fleet.revision import Revision
from resources.machine.placement import Placement
from resources.machine.state import ClassSnapshot

HIGHEST = 99
"""The highest index that a name is believed to end with: a random suffix of digits is none."""
_INDEX = re.compile(r"-([0-9]{1,2})$")


def index_in(name: str) -> int | None:
    """The index that a machine's name ends with: 2 for `demo-master-2`."""
    found = _INDEX.search(name)
    return int(found[1]) if found else None


def place_of(
    name: str,
    made_from: ClassSnapshot | None,
    taken: Collection[int],
    assigned: Mapping[int, str],
    domains: Mapping[str, Fields],
) -> Placement:
    """`taken`: the indexes that have machines; `assigned`: the failure domain of each index."""
    domain = domain_of(made_from, domains) if made_from else ""
    index = index_in(name)
    if index is None:
        index = next((i for i, name in sorted(assigned.items()) if name == domain and i not in taken), None)
    if index is None:
        index = next(i for i in range(HIGHEST + 1 + len(taken)) if i not in taken)
    return Placement(index=index, failure_domain=domain)


def domain_of(made_from: ClassSnapshot, domains: Mapping[str, Fields]) -> str:
    """The failure domain that a VM of this spec is in; "" where it is in none of them."""
    of, spec = made_from.provider, made_from.provider_spec
    return next((name for name in sorted(domains) if not compare(of, spec, in_domain(of, spec, domains[name]))), "")


def revision_of(made_from: ClassSnapshot | None, revisions: Sequence[Revision], domain: Fields) -> int:
    """The newest revision whose machines are made alike; 0 where there is none, which makes the machine outdated."""
    if made_from is None:
        return 0
    return next((r.counter for r in reversed(revisions) if not differing(made_from, r.machine_class, domain)), 0)
