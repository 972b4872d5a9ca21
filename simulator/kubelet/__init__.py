"""Simulated kubelets: clients of a Kubernetes API server, simulated or real, that join, heartbeat and run pods."""

from simulator.kubelet.knobs import KnobRule, Knobs, Timings
from simulator.kubelet.machine import Power, Size, Vm
from simulator.kubelet.pool import Kubelets

__all__ = ["KnobRule", "Knobs", "Kubelets", "Power", "Size", "Timings", "Vm"]
