"""A cluster's workflow: its watches, its pause, and the news that its pools and machines hear."""

from workflows.cluster.workflow import ClusterWorkflow

__all__ = ["ClusterWorkflow"]
