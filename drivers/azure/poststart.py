"""What Azure cannot be told with the VM, applied once after the start (seed 000), and only where it differs: tags of
the disks that it made with the VM, which carry the VM's instead."""

from __future__ import annotations

from collections.abc import Iterator

from drivers.azure import tags
from drivers.azure.belongings import Belonging
from drivers.azure.calls import Arm
from drivers.azure.hot_update import belongings_of
from drivers.base import UpdateMachineRequest
from drivers.errors import DriverError
from drivers.failures import about, combine
from drivers.tags import launch_tags
from resources.clouds import Tags
from resources.clouds.azure.spec import AzureProviderSpec


def post_start(arm: Arm, spec: AzureProviderSpec, request: UpdateMachineRequest, vm: str) -> list[str]:
    """Applies it; returns what was changed, in words.

    Idempotent: what is there is read first. Where disks are to carry what Azure gives them anyway, no call is made. An
    error in one change does not stop the others; all errors are raised as one, of the class with the longest wait.
    """
    vms_own, wanted = (_without_installation(launch_tags(spec, request.machine, kind)) for kind in ("vm", "disk"))
    installation = request.untagged and bool(request.machine.installation)
    if vms_own == wanted and not installation:
        return []
    found = belongings_of(arm, request.machine.uid, vm)
    errors: list[DriverError] = []
    changed = _tag_installation(arm, request, found) if installation else []
    for disk in (b for b in found if b.kind == "disk"):
        try:
            changed += _retag(arm, disk, vms_own, wanted)
        except DriverError as e:
            errors.append(about(e, [disk.name]))
    if errors:
        raise combine(errors)
    return changed


def _without_installation(wanted: Tags) -> Tags:
    """A VM from before there was such a tag has it from elsewhere, or not at all."""
    return {k: v for k, v in wanted.items() if k != tags.INSTALLATION_KEY}


def _retag(arm: Arm, disk: Belonging, vms_own: Tags, wanted: Tags) -> Iterator[str]:
    carried = tags.spelled(disk.tags, [*vms_own, *wanted])
    if alien := {k: carried[k] for k in sorted(vms_own) if k in carried and k not in wanted}:
        tags.remove(arm, disk.id, alien)
        yield f"{disk.name}: removed {', '.join(alien)}"
    if missing := {k: v for k, v in wanted.items() if carried.get(k) != v}:
        tags.merge(arm, disk.id, missing)
        yield f"{disk.name}: set {', '.join(missing)}"


def _tag_installation(arm: Arm, request: UpdateMachineRequest, found: list[Belonging]) -> list[str]:
    """Puts the installation's tag on a VM from before there was such a tag, and on what belongs to it; returns that in
    words. Without it the machine lives as before, and the right to tag may be missing: an error is no trouble."""
    done: list[str] = []
    for belonging in found:
        if tags.INSTALLATION_KEY in belonging.tags:
            continue
        try:
            tags.merge(arm, belonging.id, {tags.INSTALLATION_KEY: request.machine.installation})
        except DriverError as e:
            return [*done, f"{belonging.name}: without the tag {tags.INSTALLATION_KEY}: {e.message}"]
        done.append(f"{belonging.name}: set {tags.INSTALLATION_KEY}")
    return done
