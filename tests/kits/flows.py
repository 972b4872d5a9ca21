"""The flows of the fault matrix, by name.

A flow joins by registering in one of these; its activity boundaries are found by running it once.
"""

from __future__ import annotations

from flowkit import Flow
from flows_class import CLASSES
from flows_later import LATER
from flows_machine import BIRTHS, DRAINS, PRESERVED
from flows_pool import POOLS

FLOWS: dict[str, Flow] = BIRTHS | LATER | CLASSES | DRAINS | PRESERVED | POOLS
