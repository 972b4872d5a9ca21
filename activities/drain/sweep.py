"""One pass over the pods of a VM's nodes: it does what can be done at once, and says what is in the way.

Pods without volumes go all at once. Pods with volumes go one at a time, the highest priority first: each is waited for
until its own volumes are detached here and attached elsewhere, so that a cloud never has to move them all together
(machine-controller-manager, pkg/util/provider/drain). A pod is evicted; only force deletes it (I12).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar

from activities.clock import ServerClock
from activities.drain import budgets, calls, pods, words
from activities.drain.memory import Memory, Move, RefusedEviction
from activities.drain.pods import Pod, name_of, uid_of
from activities.kube.client import Kube, KubeError
from activities.kube.volumes import AttachedVolumes, attachments, claim_of, disk_of, read_attachments
from resources.calls.drain import DrainInput, DrainOutput

T = TypeVar("T")

AT_ONCE = 16
"""Calls in flight: one pass over 250 pods, each refused by a budget, stays well below a minute."""
LONGEST_WAIT = 12
"""The longest wait of a refused pod, in passes: 60 s with one pass every 5 s."""
BEGINS = timedelta(seconds=15)
"""How long a pass goes on to take up more pods. An attempt has a minute (Timings.call_timeout), a call 20 s: where each
of many calls is slow, the pass must still say what was done and what failed."""


class Sweep:
    def __init__(
        self,
        kube: Kube,
        input: DrainInput,
        nodes: Sequence[dict[str, Any]],
        memory: Memory,
        clock: ServerClock,
        *,
        dead: bool,
    ) -> None:
        self.kube = kube
        self.input = input
        self.nodes = nodes
        self.memory = memory
        self.clock = clock
        self.dead = dead
        self.in_order = True
        """Whether the memory comes from the pass just before this one."""
        self._listed: list[Pod] = []
        self._moving: list[Pod] = []
        self._abandoned: list[Pod] = []
        self._volumes: list[str] = []
        self._queued = 0
        self._unknown = ""
        self._began = clock.now()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._budgets: dict[str, asyncio.Task[list[budgets.Budget]]] = {}
        self._attachments: AttachedVolumes | None = None

    async def look(self) -> None:
        self._listed = await calls.pods_of(self.kube, self.nodes)
        memory, going = self.memory, self._to_go
        memory.pods = max(memory.pods, len(going))
        memory.shared = sorted({*memory.shared, *(c for c, n in pods.in_use(self._listed).items() if n > 1)})
        uids = {uid_of(p) for p in going}
        memory.refused = {uid: r for uid, r in memory.refused.items() if uid in uids}
        if self.input.force or self.dead:  # nobody detaches a volume, so nobody waits for one
            memory.moves.clear()

    async def act(self) -> DrainOutput | None:
        """Acts on the pods. Returns None when the drain is not over: `words` says why."""
        memory = self.memory
        self._began = self.clock.now()
        if self.input.force:
            memory.refused.clear()
            await _all(self._force(pod) for pod in self._to_go)
        else:
            await self._gently()
        if len(self._abandoned) < len(self._to_go) or memory.moves:
            memory.idle = None
            return None
        return await self._end()

    @property
    def _blocked(self) -> list[tuple[str, RefusedEviction]]:
        refused = self.memory.refused
        return [(name_of(p), refused[uid_of(p)]) for p in self._to_go if uid_of(p) in refused]

    @property
    def stuck(self) -> str:
        """What is in the way, and was a pass ago: without what changes with each look."""
        now = self.clock.now()
        found = [f"{pod} {refused.words}" for pod, refused in self._blocked if refused.wait > self.input.poll]
        late = [p for p in self._moving if pods.is_going(p) and now > pods.grace_ends(p, now)]
        return words.first_of([*found, *(f"{name_of(p)} is terminating past its grace period" for p in late)])

    @property
    def words(self) -> str:
        memory, now, blocked = self.memory, self.clock.now(), self._blocked
        before = next((m.pod or f"volume {next(iter(m.volumes))}" for m in memory.moves.values()), "")
        scene = words.Scene(
            now=now,
            gone=memory.pods - len(self._to_go) + len(self._abandoned),
            total=memory.pods,
            blocked=blocked,
            going=[(name_of(p), pods.grace_ends(p, now)) for p in self._moving if pods.is_going(p)],
            volumes=self._volumes,
            queued=self._queued if before else 0,
            before=before,
            deadline=self.input.deadline,
        )
        return words.blocker(scene)

    @cached_property
    def _to_go(self) -> list[Pod]:
        if self.input.again:
            return []
        back = {uid_of(p) for p in self._back}
        return sorted((p for p in self._listed if not pods.left_alone(p) and uid_of(p) not in back), key=name_of)

    @cached_property
    def _back(self) -> list[Pod]:
        """Pods that evictions do not get rid of."""
        since = self.input.since
        if since is None:
            return []
        found = (p for p in self._listed if not pods.left_alone(p) and pods.came_back(p, since))
        return sorted(found, key=name_of)

    @property
    def _late(self) -> bool:
        return self.clock.now() - self._began > BEGINS

    # -- pods

    async def _gently(self) -> None:
        waiting = []
        # A living kubelet gets time to unmount. What is past that too waits for a finalizer, for example.
        due = self.clock.now() - (timedelta(0) if self.dead else self.input.detach_timeout)
        for pod in self._to_go:
            if not pods.is_going(pod):
                waiting.append(pod)
            elif pods.overdue(pod, due, self.dead):
                self._abandoned.append(pod)
            else:
                self._moving.append(pod)
        if self.dead:
            await _all(self._evict(pod) for pod in waiting)
            return
        without = [self._evict(pod) for pod in waiting if not pods.claims(pod)]
        await _all([*without, self._one_at_a_time([pod for pod in waiting if pods.claims(pod)])])

    async def _evict(self, pod: Pod) -> bool:
        refused = self.memory.refused.get(uid_of(pod))
        if refused and self.clock.now() < refused.again:
            return False
        async with self._slots:
            if self._late:
                return False
            refusal = await calls.evict(self.kube, pod, pods.SHORT_GRACE if self.dead else None)
            if refusal is None:
                self.memory.refused.pop(uid_of(pod), None)
                self._moving.append(pod)
                return True
            self.memory.refused[uid_of(pod)] = await self._refused(pod, refusal, refused)
        return False

    async def _refused(self, pod: Pod, refusal: KubeError, before: RefusedEviction | None) -> RefusedEviction:
        poll = self.input.poll
        wait = min(before.wait * 2, poll * LONGEST_WAIT) if before else poll
        # Our own back-off ends with the nearest pass. What the API server asks for is not cut short.
        again = timedelta(seconds=refusal.retry_after) if refusal.retry_after else wait - poll / 2
        selecting = await self._budgets_of(pod) if refusal.status in (429, 500) else []
        why, advice = budgets.refusal(refusal.status, refusal.message, selecting)
        return RefusedEviction(words=why, advice=advice, wait=wait, again=self.clock.now() + again)

    async def _budgets_of(self, pod: Pod) -> list[budgets.Budget]:
        """The budgets that select the pod; [] where they may not be read: they only make the words better."""
        namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
        if namespace not in self._budgets:
            self._budgets[namespace] = asyncio.create_task(calls.budgets_of(self.kube, namespace))
        found, _ = await _permitted(self._budgets[namespace], [])
        return [b for b in found if budgets.selects(b, labels)]

    async def _force(self, pod: Pod) -> None:
        """Forces the pod out; the eviction comes first (I12). The deadline has passed, or an operator insists."""
        async with self._slots:
            if self._late:
                return
            if not pods.is_going(pod):
                await calls.evict(self.kube, pod, None)
            await calls.kill(self.kube, pod)
        given_up = pods.overdue(pod, self.clock.now(), self.dead)
        (self._abandoned if given_up else self._moving).append(pod)

    # -- pods with volumes

    async def _one_at_a_time(self, waiting: list[Pod]) -> None:
        memory = self.memory
        if not self.in_order and waiting:
            await self._find_lost()
        for pod in [p for p in self._moving if pods.claims(p) and uid_of(p) not in memory.moves]:
            # Somebody else's deletion, or an eviction of ours that a worker did not live to note.
            if self.clock.now() <= self._until(pod):
                memory.moves[uid_of(pod)] = await self._move(pod)
        for uid, move in list(memory.moves.items()):
            if await self._has_arrived(uid, move):
                del memory.moves[uid]
        waiting.sort(key=pods.first)
        for n, pod in enumerate(waiting):
            if memory.moves:
                self._queued = sum(uid_of(p) not in memory.refused for p in waiting[n:])
                return
            refused = memory.refused.get(uid_of(pod))
            if self._late or (refused and self.clock.now() < refused.again):
                continue
            move = await self._move(pod)
            if await self._evict(pod):
                memory.moves[uid_of(pod)] = move

    def _until(self, pod: Pod) -> datetime:
        return pods.grace_ends(pod, self.clock.now()) + self.input.detach_timeout

    async def _move(self, pod: Pod) -> Move:
        """What is waited for after the pod's eviction. Its volumes are those that no other pod shares and that are
        attached (not every volume ever is)."""
        claims = {c: outlives for c, outlives in pods.claims(pod).items() if c not in self.memory.shared}
        found = await self._known_volumes(calls.claimed(self.kube, claims), {})
        attached = await self._attached() if found else None
        volumes = {v: disk for v, disk in found.values() if attached and attached.holds(v, disk)}
        outlive = [v for c, (v, _) in found.items() if claims[c] and v in volumes and pods.comes_again(pod)]
        return Move(pod=name_of(pod), volumes=volumes, outlive=outlive, until=self._until(pod))

    async def _has_arrived(self, uid: str, move: Move) -> bool:
        """Whether the pod has arrived, or is no longer waited for."""
        now = self.clock.now()
        pod = next((p for p in self._to_go if uid_of(p) == uid), None)  # one that has finished no longer holds a volume
        if pod is not None:
            # The pod may stay as it was: its eviction was answered with a conflict.
            return not pods.is_going(pod) or now > move.until
        attached = await self._attached() if move.volumes else None
        if self._unknown:
            return True
        here = [v for v, disk in move.volumes.items() if attached and attached.holds(v, disk)]
        coming = [v for v in move.outlive if attached and v not in attached.elsewhere]
        if not here and not coming:
            return True
        if not here:
            move.attach_until = move.attach_until or now + self.input.reattach_timeout
        until = move.until if here else move.attach_until or now
        if now > until:
            return True
        self._volumes.append(words.moving(here or coming, move.pod, until, away=not here))
        return False

    async def _find_lost(self) -> None:
        """Finds volumes that are being detached and whose pods have gone: a worker may have died before it noted the
        eviction."""
        known = {v for move in self.memory.moves.values() for v in move.volumes}
        used = pods.in_use(self._listed)
        for name in (await self._attached()).here.keys() - known:
            volume = await self._known_volumes(calls.volume_of(self.kube, name), None)
            if volume and claim_of(volume) not in used and (disk := disk_of(volume)):
                until = self.clock.now() + self.input.detach_timeout
                self.memory.moves[name] = Move(volumes={name: disk}, until=until)

    async def _attached(self) -> AttachedVolumes:
        if self._attachments is None:
            known = attachments((), self.nodes)
            self._attachments = await self._known_volumes(read_attachments(self.kube, self.nodes), known)
        return self._attachments

    async def _known_volumes(self, call: Awaitable[T], otherwise: T) -> T:
        """Awaits the call; `otherwise` without the right. Pods go even where the right that volumes need is missing."""
        found, refusal = await _permitted(call, otherwise)
        if refusal:
            self._unknown = self.memory.unknown = f"volumes are not known: {refusal}"
        return found

    # -- the end

    async def _end(self) -> DrainOutput | None:
        """Ends the drain. No pod is waited for any longer. What is still attached then goes with the VM, and not
        before: a pod that is out of reach may still write."""
        memory = self.memory
        left = [f"{name_of(pod)}: still terminating after its grace period" for pod in self._abandoned]
        if not self.input.again:  # otherwise it was said before
            left += [f"{name_of(pod)}: came back: it tolerates the cordon" for pod in self._back]
        if self.input.keep:
            return DrainOutput(pods=memory.pods, left=[*left, *filter(None, [memory.unknown])])
        attached = await self._attached()
        stays = [p for p in self._listed if pods.left_alone(p) and not pods.finished(p)] + self._back
        staying = await self._known_volumes(calls.claimed(self.kube, pods.in_use(stays)), {})
        volumes = [] if self._unknown else attached.left(dict(staying.values()))
        now = self.clock.now()
        memory.idle = memory.idle or now
        until = memory.idle + self.input.detach_timeout
        if volumes and not (self.dead or self.input.force) and now <= until:
            self._volumes.append(words.moving(volumes, "", until))
            return None
        left += [f"volume {v} still attached" for v in volumes]
        return DrainOutput(pods=memory.pods, left=[*left, *filter(None, [self._unknown])])


async def _permitted(call: Awaitable[T], otherwise: T) -> tuple[T, str]:
    """What the call answers, and ""; without the right to it `otherwise`, and the refusal."""
    try:
        return await call, ""
    except KubeError as e:
        if e.status != 403:
            raise
        return otherwise, e.message


async def _all(calls: Iterable[Awaitable[object]]) -> None:
    """Awaits all calls, even when one fails: what an eviction did must be noted."""
    for answer in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer
