"""The lives of machine configs: of a cluster's, of each pool's, and of each rollout's."""

from workflows.machine_config.configs import MachineConfigsWorkflow
from workflows.machine_config.pool import MachineConfigPoolWorkflow
from workflows.machine_config.rollout import ConfigRolloutWorkflow

__all__ = ["ConfigRolloutWorkflow", "MachineConfigPoolWorkflow", "MachineConfigsWorkflow"]
