"""What going back to a former revision leaves as it is."""

from __future__ import annotations

from resources.machine.manifest import MachineTemplate
from resources.pool.manifest import MachineDeploymentSpec


def gone_back_to(template: MachineTemplate, spec: MachineDeploymentSpec) -> MachineTemplate:
    """A former revision's template, for the pool as it is now. Its machinePreserveTimeout is a field of the pool, which
    an undo leaves as it is, so machines that have it from there keep it; a template's own timeout comes back."""
    timeout = spec.machine_preserve_timeout
    if spec.template.spec.machine_preserve_timeout != timeout:
        return template
    machine = template.spec.model_copy(update={"machine_preserve_timeout": timeout})
    return template.model_copy(update={"spec": machine})
