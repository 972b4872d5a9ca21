"""The workflow of a cluster's control plane, on what every owner of machines does (workflows/fleet/)."""

from workflows.control_plane.workflow import ControlPlaneWorkflow

__all__ = ["ControlPlaneWorkflow"]
