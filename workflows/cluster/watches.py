"""The watches of a cluster: of its nodes, and of the cloud accounts that its classes name."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from workflows.calls import Urgency, failure_of, poller, share, watching
from workflows.entity import Entity

with workflow.unsafe.imports_passed_through():
    from activities.cloud.instances import InstancesActivities
    from activities.temporal.uses import UsesActivities
    from activities.watch.nodes import WatchActivities
    from planners.cluster.accounts import UNKNOWN, classes_only_of, found_unused, owners, silent, used_by
    from resources.attributes import MEMO_OWNERS
    from resources.base import format_duration, whole_seconds
    from resources.calls.cloud import InstancesInput, InstancesOutput, VmsTold
    from resources.calls.watch import Cursor, WatchInput
    from resources.clouds import provider_key
    from resources.cluster.accounts import AccountUse, Announcement
    from resources.cluster.news import CloudReachability, Reachability
    from resources.cluster.state import ClusterState, UsesFound, UsesInput
    from resources.names import cloud_queue, watch_queue, workflow_queue

WATCH_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))
LOOK_AGAIN = timedelta(minutes=1)
"""The time between two looks for who uses which account, while one does not answer or the last look left doubts."""


class Watches(Entity):
    """What the workflow's loop starts and collects; the handlers only record."""

    s: ClusterState

    def __init__(self, state: ClusterState) -> None:
        super().__init__(state.journal, state.intents, state.deadlines)
        self.s = state
        self.by_class = workflow.patched("cluster-classes")
        """Whether accounts are known by class, and no machine is known. Not in a run that an older worker began: it
        goes on as it began until its end, and the next run finds all it needs."""
        if self.by_class:
            state.machines = {}
            if state.accounts and not state.classes:
                state.classes[UNKNOWN] = sorted(state.accounts)
        self._nodes: workflow.ActivityHandle[Cursor] | None = None
        self._clouds: dict[str, workflow.ActivityHandle[InstancesOutput]] = {}
        self._resting: set[str] = set()
        """Accounts whose watch has failed, until it begins again."""
        self._looking: workflow.ActivityHandle[UsesFound] | None = None
        self._owners: dict[str, str] = workflow.memo_value(MEMO_OWNERS, {}, type_hint=dict[str, str])
        """The owners as told to those that are about to make a VM."""
        self._heard_of: set[str] = set()
        """Classes that were announced since that look began."""

    # -- starting -----------------------------------------------------------------------------------------------------

    def _watch_nodes(self) -> None:
        """Starts one activity that lists and follows until it returns or is asked to; the next one continues with its
        cursor."""
        s = self.s
        if self._nodes is not None or "retry" in self.deadlines:
            return
        self._nodes = workflow.start_activity_method(
            WatchActivities.watch_nodes,
            WatchInput(
                cluster=s.name,
                workflow_id=workflow.info().workflow_id,
                queue_prefix=s.queue_prefix,
                cursor=s.cursor,
                duration=s.watch_duration,
            ),
            task_queue=watch_queue(s.name, s.queue_prefix),
            **watching(s.watch_duration, s.heartbeat),
            summary=f"watch the nodes of {s.name}",
        )

    def _watch_clouds(self) -> None:
        """Starts one retrying activity for each account in use, and ends that of an account which is no longer used."""
        s = self.s
        for key in self._unused():
            self.drop(self._clouds.pop(key))
        for key in self._unwatched():
            account, last = s.accounts[key], s.vms.get(key, InstancesOutput())
            self._clouds[key] = workflow.start_activity_method(
                InstancesActivities.watch_instances,
                InstancesInput(
                    cluster=s.name,
                    account=account,
                    told=last.told,
                    owner=last.owner,
                    opened=last.opened,
                    remember=classes_only_of(s, key) if s.ended and key not in s.vms else [],
                    interval=s.cloud_watch,
                    duration=s.watch_duration,
                ),
                task_queue=cloud_queue(account.provider, s.queue_prefix),
                start_to_close_timeout=timedelta(minutes=5),
                heartbeat_timeout=s.heartbeat,
                retry_policy=poller(s.cloud_watch),
                summary=f"watch the VMs of {key}",
                priority=share(Urgency.POLL, account),
            )

    def _look_for_uses(self) -> None:
        """Looks once for everything that was there before this workflow, and then from time to time whether what it
        knows still holds."""
        s = self.s
        if not self._to_look():
            if s.looked and s.classes and self._looking is None:
                self.deadlines.setdefault("uses", workflow.now() + s.watch_duration)
            return
        self.deadlines.pop("uses", None)
        self._heard_of.clear()
        known = sorted(name for name in s.classes if name != UNKNOWN)
        self._looking = workflow.start_activity_method(
            UsesActivities.find_uses,
            UsesInput(cluster=s.name, classes=known if s.looked and UNKNOWN not in s.classes else None),
            task_queue=workflow_queue(s.queue_prefix),
            start_to_close_timeout=timedelta(minutes=5),
            heartbeat_timeout=s.heartbeat,
            retry_policy=WATCH_RETRY,
            summary=f"find the cloud accounts that the classes of {s.name} use",
            priority=Urgency.POLL,
        )

    # -- what there is to do ------------------------------------------------------------------------------------------

    def _unwatched(self) -> list[str]:
        s = self.s
        there = sorted(k for k in s.accounts if k not in self._clouds and k not in self._resting)
        return there if self.by_class or s.machines else []

    def _unused(self) -> list[str]:
        return sorted(self._clouds.keys() - self.s.accounts.keys()) if self.by_class else []

    def _to_look(self) -> bool:
        if not self.by_class or self._looking is not None:
            return False
        return self.due("uses") or (not self.s.looked and "uses" not in self.deadlines)

    def _watches_ended(self) -> bool:
        """Whether a watch has ended, or one is to begin or end."""
        handles = [self._nodes, self._looking, *self._clouds.values()]
        return any(h is not None and h.done() for h in handles) or bool(
            self._unwatched() or self._unused() or self._to_look()
        )

    # -- collecting ---------------------------------------------------------------------------------------------------

    async def _collect_watches(self) -> None:
        """Takes the results of watches that ended; a failed one begins again after a while."""
        s = self.s
        if self.due("retry"):
            del self.deadlines["retry"]
        if self.due("clouds"):
            del self.deadlines["clouds"]
            self._resting.clear()
        if self._nodes is not None and self._nodes.done():
            try:
                s.cursor = await self._nodes
            except ActivityError as e:
                failure = failure_of(e)
                self.note("WatchFailed", failure.info.message)
                s.api = Reachability(reachable=False, message=failure.info.message, time=workflow.now())
                self.deadlines["retry"] = workflow.now() + 3 * s.heartbeat
            self._nodes = None
        for key in sorted(k for k, h in self._clouds.items() if h.done()):
            try:
                returned = await self._clouds.pop(key)
                if key in s.accounts:
                    s.vms[key] = returned
            except ActivityError as e:
                self._watch_failed(key, failure_of(e).info.message)
        if self._looking is not None and self._looking.done():
            handle, self._looking = self._looking, None
            try:
                self._found(await handle)
            except ActivityError as e:
                self.note_news("WatchFailed", failure_of(e).info.message)
                self.deadlines["uses"] = workflow.now() + LOOK_AGAIN

    def _watch_failed(self, key: str, words: str) -> None:
        self.note_news("WatchFailed", words)
        if not self.by_class:
            del self.s.accounts[key]
            return
        if key in self.s.accounts:
            self.s.clouds[key] = Reachability(reachable=False, message=words, time=workflow.now())
            self._resting.add(key)
            self.deadlines["clouds"] = workflow.now() + LOOK_AGAIN

    def _found(self, found: UsesFound) -> None:
        """Takes what the look found. What a class says of itself counts more than what its machines were once told, but
        less than what was heard since the look began."""
        s = self.s
        for use in found.uses:
            if use.machine_class not in self._heard_of:
                self._use(use)
        for name, why in found.unplaced.items():
            words = f"the VMs of class {name} are not watched: {why}"
            if all(happening.message != words for happening in s.journal):  # looks are repeated
                self.note("WatchFailed", words)
        gone, s.unused = found_unused(s, found, self._heard_of)
        for name in gone:
            del s.classes[name]
        self._forget_accounts()
        for key in s.clouds.keys() - s.accounts.keys():
            del s.clouds[key]  # the last word of a watch that had ended, heard by a former workflow
        s.looked = True
        if s.unused or found.unread or silent(s, s.accounts):
            self.deadlines["uses"] = workflow.now() + min(LOOK_AGAIN, s.watch_duration)

    def _use(self, use: AccountUse) -> None:
        s = self.s
        accounts = used_by(s, use)
        s.accounts |= {a.key: a for a in accounts}
        s.classes[use.machine_class] = [a.key for a in accounts]
        s.unused = [name for name in s.unused if name != use.machine_class]
        self._forget_accounts()

    def _forget_accounts(self) -> None:
        """Forgets accounts that are no longer used: the last word about one would hold up pools forever."""
        s = self.s
        used = {key for keys in s.classes.values() for key in keys}
        for key in sorted(s.accounts.keys() - used):
            del s.accounts[key]
            s.clouds.pop(key, None)
            s.vms.pop(key, None)
            self.note("AccountForgotten", f"{key}: no class uses it any longer")

    def _tell_owners(self) -> None:
        """Writes the owners where those who make VMs read them without asking a worker:
        `activities.temporal.announce.owner_of`."""
        if self._owners_changed():
            self._owners = owners(self.s)
            workflow.upsert_memo({MEMO_OWNERS: self._owners})

    def _owners_changed(self) -> bool:
        return self.by_class and owners(self.s) != self._owners and workflow.patched("account-owners")

    async def _stop_watches(self) -> None:
        """Asks the watches to return. One that can no longer answer is no loss: its last cursor serves."""
        for key in sorted(self._clouds):
            self.drop(self._clouds.pop(key))
        if self._looking is not None:
            self.drop(self._looking)
            self._looking = None
        if self._nodes is not None:
            self._nodes.cancel()
            try:
                self.s.cursor = await self._nodes
            except ActivityError:
                workflow.logger.info("the watch of %s ended without a cursor", self.s.name)
            self._nodes = None

    # -- what is told -------------------------------------------------------------------------------------------------

    def _stays(self, needed_by: str) -> None:
        raise NotImplementedError

    @workflow.signal
    def use_account(self, use: AccountUse) -> None:
        """VMs of a class are in this account. This comes with every first machine, and when a class has changed."""
        self.s.messages += 1
        self._stays(f"class {use.machine_class}" if use.machine_class else "a machine")
        if self.by_class:
            self._heard_of.add(use.machine_class)
            self._use(use)

    @workflow.signal
    def announce(self, announcement: Announcement) -> None:
        """An older worker's announcement, which also says which VM is which machine."""
        self.s.messages += 1
        self._stays(f"machine {announcement.machine}")
        account = announcement.account
        if self.by_class:
            if account is not None:
                self._heard_of.add(announcement.machine_class)
                self._use(AccountUse(machine_class=announcement.machine_class, account=account))
            return
        self.s.machines[provider_key(announcement.provider_id)] = announcement.machine
        if account is not None:
            self.s.accounts[account.key] = account

    @workflow.signal
    def forget(self, provider_id: str) -> None:
        """An older worker's signal."""
        self.s.messages += 1
        self.s.machines.pop(provider_key(provider_id), None)

    @workflow.query
    def resolve(self, keys: list[str]) -> dict[str, str]:
        """Answers an older worker's watch, in a run that still knows machines."""
        return {k: self.s.machines[k] for k in keys if k in self.s.machines}

    @workflow.signal
    def cloud_reachability(self, news: CloudReachability) -> None:
        self.s.messages += 1
        if self.by_class and news.account not in self.s.accounts:
            return  # the last word of a watch that has ended
        former = self.s.clouds.get(news.account)
        if former is not None and former.reachable == news.reachable:
            if former.reachable or former.message == news.message:
                return
            news = news.model_copy(update={"since": former.began})  # one outage, for which another cause is now known
        self.s.clouds[news.account] = Reachability(**news.model_dump(exclude={"account"}))
        if not news.reachable:
            self.note("APIUnreachable" if news.unasked else "CloudUnreachable", f"{news.account}: {news.message}")
            if self.by_class and self._looking is None:
                self.deadlines["uses"] = workflow.now()  # perhaps it is no longer used
        elif former is not None:
            lasted = format_duration(whole_seconds(news.time - former.began))
            self.note("CloudReachable", f"{news.account} answers again, after {lasted}")

    @workflow.signal
    def vms_told(self, news: VmsTold) -> None:
        """What machines were told of their VMs, when that has changed."""
        self.s.messages += 1
        if not self.by_class or news.account in self.s.accounts:
            self.s.vms[news.account] = InstancesOutput(**news.model_dump(exclude={"account"}))
