"""The hold in the template of a control plane's machines."""

from __future__ import annotations

from resources.machine.manifest import Hook, MachineTemplate


def with_hold(template: MachineTemplate, hold: Hook) -> MachineTemplate:
    others = [h for h in template.spec.lifecycle_hooks.pre_drain if h.name != hold.name]
    return _held_by(template, [*others, hold])


def without_hold(template: MachineTemplate, hold: Hook) -> MachineTemplate:
    return _held_by(template, [h for h in template.spec.lifecycle_hooks.pre_drain if h != hold])


def _held_by(template: MachineTemplate, hooks: list[Hook]) -> MachineTemplate:
    lifecycle = template.spec.lifecycle_hooks.model_copy(update={"pre_drain": hooks})
    return template.model_copy(update={"spec": template.spec.model_copy(update={"lifecycle_hooks": lifecycle})})
