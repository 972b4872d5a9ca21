"""A pool's life: workflow.py has the handlers, life.py the loop; planners/pool decides what it does."""

from workflows.pool.workflow import MachineDeploymentWorkflow

__all__ = ["MachineDeploymentWorkflow"]
