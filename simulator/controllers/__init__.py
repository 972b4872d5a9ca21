"""Simulated controllers: API clients that do what a cluster's controller manager and scheduler do, where Hostler
rests on it. Beside a real API server the real ones take their place."""

from simulator.controllers.manager import Controllers

__all__ = ["Controllers"]
