"""What the parts of a config pool's workflow share."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow

from workflows.machine_config.entity import ConfigEntity

with workflow.unsafe.imports_passed_through():
    from planners.fleet.steps import Wait
    from planners.machine_config.pool import ObservedConfigPool
    from planners.machine_config.steps import ConfigPlan
    from resources.machine_config.state import MachineConfigPoolState
    from resources.machine_config.view import ConfigPoolView
    from resources.names import cluster_queue

LOOK_SELDOM = timedelta(minutes=30)
"""The time between two looks where nobody says that anything has changed."""
LENDING = "config-lending-2"
"""In a run that began before, machines are asked for again by the clock and not by passes, one that belonged to nobody
is not looked up anew, and nothing is given back while maxUnavailable cannot be read."""
LOOK_OFTEN = timedelta(minutes=1)
"""The same while nodes are under way: the watch may have missed something."""


class ConfigPoolEntity(ConfigEntity):
    s: MachineConfigPoolState

    def __init__(self, state: MachineConfigPoolState) -> None:
        super().__init__(state)
        self.view: ConfigPoolView | None = None
        """The last look; None in a run that has not looked yet."""
        self.made: ConfigPlan | None = None
        """The plan that was made of it."""
        self.status_told: dict[str, Any] | None = None
        """The status that this run wrote last."""
        self.news_told: object = None
        """What the rollout's workflow was told last, without steps and time."""
        self.announced = False
        """Whether this run has told the cluster of the pool. Once is enough: a cluster's workflow that begins later
        looks for those that are there."""

    @property
    def ending(self) -> bool:
        return self.s.gone

    @property
    def cluster(self) -> str:
        return self.s.cluster

    @property
    def pool_name(self) -> str:
        return self.s.name

    @property
    def in_cluster(self) -> str:
        """The task queue of what is asked of the cluster."""
        return cluster_queue(self.s.cluster, self.s.queue_prefix)

    def nudge(self) -> None:
        """Looks again: at once, but not sooner after the last look than one pass takes."""
        now = workflow.now()
        self.no_later("look", now if self.s.seen is None else max(now, self.s.seen + self.s.timings.poll))

    # -- what the planner sees ----------------------------------------------------------------------------------------

    def observed(self, view: ConfigPoolView) -> ObservedConfigPool:
        s = self.s
        story = s.story if s.story is not None and not s.story.outcome else None
        return ObservedConfigPool(
            view=view,
            reservations=s.reservations,
            loans=s.loans,
            owners=s.owners,
            returning=not s.loans or workflow.patched(LENDING),
            held=self.held(workflow.now()),
            progress_at=story.progress_at if story is not None and story.held_since is None else None,
        )

    def held(self, now: datetime) -> Wait | None:
        """Why no node begins, and who wants that; None where nobody holds it."""
        news = self.s.news
        if news is None:
            words = f"waiting for cluster {self.s.cluster} to say whether it is paused or frozen"
            return Wait("ClusterSilent", words) if "news" in self.deadlines else None
        if news.paused:
            why = f" ({news.reason})" if news.reason else ""
            return Wait("ClusterPaused", f"{news.paused_by or 'somebody'} paused the cluster{why}")
        if news.freeze is not None and news.freeze.holds(now):
            return Wait("Frozen", f"the cluster is frozen {news.freeze.words}")
        return None
