"""A pool's life: what people ask of it, and its rollouts. planners/pool decides what it does; the rest of its life is
that of any owner of machines (workflows/fleet)."""

from workflows.pool.workflow import MachineDeploymentWorkflow

__all__ = ["MachineDeploymentWorkflow"]
