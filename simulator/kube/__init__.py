"""A simulated Kubernetes API server: what Hostler, its kubelets and controllers and kubectl use, over the real wire."""

from simulator.kube.server import KubeApi

__all__ = ["KubeApi"]
