"""What people ask of a control plane. Each intent is an update and a signal of the same name."""

from __future__ import annotations

from pydantic import Field

from resources.base import Annotations, Labels, Name
from resources.control_plane.spec import ControlPlaneSpec
from resources.intents import Intent
from resources.machine.state import ClassSnapshot


class ApplyControlPlane(Intent):
    """The manifest as applied (`apply`)."""

    spec: ControlPlaneSpec
    machine_class: ClassSnapshot
    """The class that the template names, as it is now."""
    namespace: Name = "default"
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)


# `undo` is a pool's UndoIntent; pause, resume, delete and renew are plain ones. What it answers to queries: summary.py.
