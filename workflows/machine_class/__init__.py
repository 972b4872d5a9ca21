"""A class's workflow: it tells its users of each change, a few at a time."""

from workflows.machine_class.workflow import MachineClassWorkflow

__all__ = ["MachineClassWorkflow"]
