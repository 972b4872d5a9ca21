"""How many nodes of a config pool may be unavailable at a time.

Source: seed 004 (maxUnavailable, a percentage or a number, 1 where nothing is given); OpenShift (TestMaxUnavailable):
a percentage rounds down, and the least is 1. That a control plane never has more than one is ours (I14).
"""

from __future__ import annotations

import re

PERCENT = re.compile(r"(0|[1-9][0-9]{0,3})%")
MOST = 500
"""The most nodes under way at a time, whatever maxUnavailable says: each is remembered by its name."""


def max_unavailable(amount: int | str | None, nodes: int, control_plane: bool = False) -> int:
    """The number of nodes. Raises ValueError with what to write."""
    if amount is None:
        return 1
    if isinstance(amount, int):
        if amount < 0:
            raise ValueError(f"spec.maxUnavailable is {amount}; write a count like 2, or a percentage like 10%")
        found = amount
    else:
        percent = PERCENT.fullmatch(amount)
        if percent is None:
            raise ValueError(f"spec.maxUnavailable is {amount!r}; write a count like 2, or a percentage like 10%")
        found = nodes * int(percent[1]) // 100
    return 1 if control_plane else min(max(1, found), MOST)
