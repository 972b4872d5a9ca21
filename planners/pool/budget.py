"""Counts and percentages, turned into numbers of machines.

Sources: Kubernetes' ResolveFenceposts and MaxUnavailable (deployment_util.go), as machine-controller-manager has them:
maxSurge rounds up, maxUnavailable rounds down, and if both are 0, one may be unavailable; design *RollingUpdate* and
*Repair budget*.
"""

from __future__ import annotations

from dataclasses import dataclass

from resources.pool.manifest import MachineDeploymentSpec, percent_of

SMALLEST_STORM = 2
"""The least that a percentage of unhealthy machines comes to: otherwise one node would lock out a small pool (field
case P55)."""


def share(amount: int | str, replicas: int, up: bool) -> int:
    """A count as it is, or a percentage of the replicas, rounded up or down."""
    percent = percent_of(amount)
    if percent is None:
        return int(amount)
    return -(-replicas * percent // 100) if up else replicas * percent // 100


@dataclass(frozen=True)
class Limits:
    """A pool's limits, all in machines."""

    replicas: int
    """The number wanted now: 0 while the pool is hibernated."""
    surge: int
    unavailable: int
    rolled: int
    """How many new machines the rollout may reach before a person resumes it: the replicas, or fewer."""
    repairs: int
    storm: int
    """More unhealthy ones than this stop every replacement."""

    @property
    def ceiling(self) -> int:
        """The most VMs at the same time (I2); a repair may add one where the surge is 0."""
        return self.replicas + self.surge

    @property
    def floor(self) -> int:
        """The number of available machines that no voluntary action may go below (I3)."""
        return self.replicas - self.unavailable


def limits(spec: MachineDeploymentSpec, canary_passed: bool = False) -> Limits:
    """The limits of a pool. OnDelete has neither surge nor unavailability: nothing in it is voluntary."""
    replicas = 0 if spec.hibernated else spec.replicas
    surge, unavailable, rolled = 0, 0, replicas
    if (rolling := spec.strategy.rolling) is not None:
        surge = share(rolling.max_surge, replicas, up=True)
        unavailable = share(rolling.max_unavailable, replicas, up=False)
        if surge == 0 and unavailable == 0:
            unavailable = 1
        if rolling.pause_after is not None and not canary_passed:
            rolled = min(replicas, share(rolling.pause_after, replicas, up=True))
    amount = spec.repair.max_concurrent
    off = amount in (0, "0%")
    above = spec.repair.pause_above_unhealthy
    storm = share(above, replicas, up=False)
    return Limits(
        replicas=replicas,
        surge=surge,
        unavailable=min(unavailable, replicas),
        rolled=rolled,
        repairs=0 if off else max(1, share(amount, replicas, up=True)),
        storm=storm if percent_of(above) is None else max(SMALLEST_STORM, storm),
    )
