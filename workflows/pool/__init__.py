"""A pool's life: workflow.py has the handlers, life.py the loop; what it does is decided in planners/pool."""

from workflows.pool.workflow import MachineDeploymentWorkflow

__all__ = ["MachineDeploymentWorkflow"]
