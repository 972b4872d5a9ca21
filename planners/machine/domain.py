"""A class as a machine of a control plane takes it: within the machine's failure domain, and with the boot images that
its VM was made from, which matter at a first start only (OpenShift compares provider specs without them)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from resources.clouds import imaged_as, in_domain
from resources.machine.state import ClassSnapshot, MachineState


def taken(s: MachineState, of: ClassSnapshot) -> ClassSnapshot:
    """The class as this machine takes it; unchanged for one without an index."""
    if not s.counted:
        return of
    spec = in_domain(of.provider, of.provider_spec, s.domain)
    if (applied := s.status.last_applied_provider_spec) is not None:
        spec = imaged_as(of.provider, spec, applied.provider_spec)
    return of.model_copy(update={"provider_spec": spec})


def domain_digest(fields: Mapping[str, Any]) -> str:
    """A digest of a failure domain's fields, by which its owner sees where a machine was made; "" where it has none."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16] if fields else ""
