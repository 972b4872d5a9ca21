"""The flows of the fault matrix, by name.

A flow joins by registering in one of these; its activity boundaries are found by running it once.
"""

from __future__ import annotations

from faults.class_flows import CLASSES
from faults.config_flows import CONFIGS
from faults.control_plane_flows import CONTROL_PLANES
from faults.flow import Flow
from faults.later_flows import LATER
from faults.machine_flows import BIRTHS, DRAINS, PRESERVED
from faults.pool_flows import POOLS

FLOWS: dict[str, Flow] = BIRTHS | LATER | CLASSES | DRAINS | PRESERVED | POOLS | CONTROL_PLANES | CONFIGS
