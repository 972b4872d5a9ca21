"""A machine's deadlines in words: what comes at each time."""

from __future__ import annotations

TIMES: dict[str, str] = {
    "creation": "Failed, if not Running",
    "health": "Failed, if two looks agree",
    "drain": "Drained by force",
    "confirm": "Next fresh look",
    "look": "First look at the VM",
    "settle": "Running, if healthy until then",
    "retry": "Next try",
    "update": "Next try of the hot update",
    "preserve": "Preserved until",
    "preserve-warning": "It is said that the preservation ends",
    "stale": "The stale node is not looked at any longer",
    "abandon": "Its node is abandoned",
    "claim": "Next look whether the VM is gone",
    "protect": "Next try to write what the Node shall carry",
}
"""The words for each key in status.deadlines; the first three end something, the others only say when to look or try
again."""
