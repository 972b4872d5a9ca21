"""A machine's deadlines in words: what comes at each time."""

from __future__ import annotations

TIMES: dict[str, str] = {
    "creation": "Failed, if not Running",
    "health": "Failed, if two fresh looks agree",
    "drain": "Drained by force",
    "confirm": "Next fresh look",
    "look": "First look at the VM",
    "settle": "Running, if healthy until then",
    "retry": "Next try",
    "update": "Next try of the hot update",
    "preserve": "Preserved until",
    "preserve-warning": "Warning that the preservation ends",
    "stale": "Last look at the stale node",
    "abandon": "Its Node is abandoned",
    "claim": "Next check whether the VM is gone",
    "protect": "Next try to write the Node",
}
"""The words for each key in status.deadlines; the first three end something, the others only say when to look or try
again."""
