"""One machine's life, from the create call to the last deleted disk."""

from workflows.machine.workflow import MachineWorkflow

__all__ = ["MachineWorkflow"]
