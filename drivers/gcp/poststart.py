"""What is done once after the start. Google takes everything at the launch; only the tag of an installation may be
missing, on a VM from before there was such a tag."""

from __future__ import annotations

from drivers.base import UpdateMachineRequest
from drivers.errors import DriverError
from drivers.gcp import belongings, instances
from drivers.gcp.calls import Gce
from drivers.gcp.instances import VmId
from drivers.gcp.tags import KEY_INSTALLATION, labels_of
from resources.clouds.gcp.names import LABEL_RULES


def post_start(gce: Gce, request: UpdateMachineRequest) -> list[str]:
    """Applies it: puts the installation's label on the VM and on its disks that have none; returns that in words.

    Without it the machine lives as before, and the right to label may be given for launches alone: an error is no
    trouble.
    """
    machine, vm = request.machine, VmId.of(request.provider_id)
    if not machine.installation:
        return []
    label = {KEY_INSTALLATION: LABEL_RULES.value(machine.installation)}
    try:
        instance = instances.by_id(gce, request.provider_id)
        if instance is None:
            return []
        labels = {"labels": {**labels_of(instance), **label}, "labelFingerprint": instance.get("labelFingerprint", "")}
        begun = gce.call("instances.setLabels", labels, zone=vm.zone, instance=str(instance["id"]))
        gce.finish("instances.setLabels", begun, vm.zone)
        labelled = [vm.name]
        for disk in belongings.of_machine(gce, vm.zone, machine):
            if not disk.is_released(machine) and KEY_INSTALLATION not in disk.labels:
                belongings.set_labels(gce, vm.zone, disk, {**disk.labels, **label})
                labelled.append(disk.name)
    except DriverError as e:
        return [f"{vm.name}: without the tag {KEY_INSTALLATION}: {e.message}"]
    return [f"{', '.join(labelled)}: set {KEY_INSTALLATION}"]
