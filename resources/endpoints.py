"""Where credentials may go: over TLS, or nowhere beyond this machine."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def in_clear(url: str) -> bool:
    """Whether what is sent there can be read on the way: not https, and another machine. Raises ValueError if it is not
    a URL."""
    parts = urlsplit(url)
    return parts.scheme.lower() != "https" and not _is_loopback(parts.hostname or "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
