"""The providerIDs of AWS."""

from __future__ import annotations

import re

from resources.clouds.base import ProviderIDs

_REGION = re.compile(r"[a-z]+(?:-[a-z]+)+-\d+")


def _key(provider_id: str) -> str:
    """Gardener writes `aws:///<region>/<id>`, the cloud-controller-manager `aws:///<zone>/<id>`: the id itself is
    unique."""
    return f"aws/{provider_id.partition('://')[2].rsplit('/', 1)[-1]}"


def _indexed(provider_id: str) -> str:
    """The providerID by region, as the driver writes it; a zone (`eu-west-1a`, `us-east-1-bos-1a`) begins with its
    region's name."""
    place, _, vm = provider_id.partition("://")[2].strip("/").rpartition("/")
    region = _REGION.match(place)
    return f"aws:///{region[0]}/{vm}" if region else provider_id


IDS = ProviderIDs("aws", _key, _indexed)
