"""Simulated controllers: API clients that do what a cluster's controller manager and scheduler do, as far as Hostler
depends on it. With a real API server the real ones take their place."""

from simulator.controllers.config_daemons import DaemonSettings
from simulator.controllers.manager import Controllers

__all__ = ["Controllers", "DaemonSettings"]
