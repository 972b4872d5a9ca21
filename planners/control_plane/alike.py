"""What makes two machines of a control plane alike: their provider specs within their failure domain, without boot
images, which matter at a machine's first start only.

Source: OpenShift's comparison of normalised provider specs (pkg/machineproviders/providers/openshift/machine/v1beta1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from planners.fleet.revisions import Wanted
from planners.machine.hot_update import compare
from resources.clouds import imaged_as, in_domain
from resources.machine.state import ClassSnapshot

Fields = Mapping[str, Any]


def differing(old: ClassSnapshot, new: ClassSnapshot, domain: Fields) -> tuple[str, ...]:
    """The fields in which a machine of the old class, in this failure domain, would be another VM if it were made from
    the new one; () where it would be the same."""
    if old.provider != new.provider:
        return ("provider",)
    specs = (json.dumps(spec, sort_keys=True) for spec in (old.provider_spec, new.provider_spec, dict(domain)))
    return _differing(new.provider, *specs)


@lru_cache(maxsize=256)
def _differing(provider: str, old: str, new: str, domain: str) -> tuple[str, ...]:
    """Specs as JSON, since every look at a set compares the same few: a workflow that is replayed looks hundreds of
    times."""
    there = in_domain(provider, json.loads(old), json.loads(domain))
    wanted = imaged_as(provider, in_domain(provider, json.loads(new), json.loads(domain)), there)
    found = compare(provider, there, wanted)
    return (*found.rolls, *found.refused)


@dataclass(frozen=True)
class SetWanted(Wanted):
    """What the machines of a control plane are to be made from."""

    domains: Mapping[str, Fields] = field(default_factory=dict)
    """The failure domains, by name. What they set of a class is no difference between two classes."""

    def made_like(self, of: ClassSnapshot) -> bool:
        domain = self.domains[min(self.domains)] if self.domains else {}
        return of.name == self.machine_class.name and not differing(of, self.machine_class, domain)
