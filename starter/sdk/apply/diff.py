"""What `apply` would change, field by field, and what each change does to machines that run.

The class's workflow judges what a class's field does, as it will when it is applied; here that is only shown.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic.alias_generators import to_camel

from resources.control_plane.expansion import manifest_of
from resources.control_plane.manifest import ControlPlaneMachineSetSpec
from resources.effects import Effect, effects
from resources.fleet.rehearsal import Rehearsal
from resources.fleet.state import FleetState
from resources.machine.manifest import Machine
from resources.machine.state import ClassSnapshot, MachineState
from resources.machine_class.state import ClassPreview, users_words
from resources.names import WORKER_POOL_ANNOTATION
from resources.owner import is_owner
from resources.pool.intents import PoolQuestion
from resources.pool.manifest import MachineDeploymentSpec
from starter.sdk.apply import worker_pool_diff
from starter.sdk.apply.classes import ClassPlan, own_annotations, same_content
from starter.sdk.apply.control_planes import CONTROL_PLANE_KIND, ControlPlanePlan
from starter.sdk.apply.pools import POOL_KIND, PoolPlan
from starter.sdk.apply.steps import ApplyPlan, ApplyStep
from starter.sdk.apply.worker_pools import WorkerPoolPlan
from starter.sdk.classes import SOME
from starter.sdk.client import HostlerClient
from starter.sdk.errors import HostlerError
from starter.sdk.fleet import rehearsal
from starter.sdk.results import Verb, snapshot_fields

HOT = "hot update"
REPLACE = "needs replacement (Outdated)"
REFUSED = "refused"
IN_PLACE = "applied in place"
NOTHING = "affects no running VM"
ROLL = "needs replacement (a rollout)"
ROLL_OR_OUTDATED = "needs replacement (pools roll; single machines are Outdated)"
POOL = "pool: no machine is replaced"
CONTROL_PLANE = "control plane: no machine is replaced"
PROVIDER_SPEC = "providerSpec"
POOL_EFFECTS = dict(effects(MachineDeploymentSpec))
CONTROL_PLANE_EFFECTS = dict(effects(ControlPlaneMachineSetSpec))
EFFECT_WORDS = {Effect.POOL: POOL, Effect.HOT: HOT, Effect.HASH: ROLL, Effect.POST_START: ROLL, Effect.NONE: POOL}
SHOWN = 60
"""Characters of a value; a longer one is cut."""


@dataclass(frozen=True)
class FieldChange:
    path: str
    """The path as one reads it: `providerSpec.vmTags.team`, `providerSpec.blockDevices[0].ebs.iops`."""
    before: str
    after: str
    effect: str
    """HOT, REPLACE, REFUSED, IN_PLACE, NOTHING; or why nobody can tell."""

    def __str__(self) -> str:
        return f"{self.path}: {self.before} -> {self.after}: {self.effect}"


@dataclass(frozen=True)
class ManifestDiff:
    """One manifest that differs from what is there."""

    kind: str
    name: str
    verb: Verb
    fields: tuple[FieldChange, ...] = ()
    refusals: tuple[str, ...] = ()
    """Why it would not be accepted at all, and what to do."""
    machines: tuple[str, ...] = ()
    """Names of the single machines that a changed class touches."""
    note: str = ""
    more: tuple[str, ...] = ()
    """For a changed class, what it does to pools; for a pool, what it would do, step by step; for a custom resource of
    machine configs, what changes in it."""

    def lines(self) -> list[str]:
        found = [f"{self.kind}/{self.name} {self.verb}" + (f": {self.note}" if self.note else "")]
        found += [f"  {field}" for field in self.fields]
        found += [f"  {REFUSED}: {why}" for why in self.refusals]
        if self.kind == "machineclass" and self.fields and (self.machines or not self.more):
            found.append(f"  touches {users_words(self.machines, SOME)}")
        return found + [f"  {line}" for line in self.more]


async def differences(client: HostlerClient, plan: ApplyPlan) -> list[ManifestDiff]:
    """The differences of a plan, in the order in which it would be carried out; what is unchanged is left out."""
    return [await _of(client, step, plan) for step in plan.steps if step.verb is not Verb.UNCHANGED]


async def _of(client: HostlerClient, step: ApplyStep, run: ApplyPlan) -> ManifestDiff:
    of = step.machine_class
    if step.worker_pool is not None:
        return await _of_worker_pool(client, step, step.worker_pool, run)
    if step.removed is not None:
        where = {"cluster": step.removed.state.cluster}
        refusals, more = await _rehearsed(partial(client.pools.rehearse, step.name, PoolQuestion(delete=True), **where))
        return ManifestDiff(step.kind, step.name, step.verb, refusals=refusals, more=more, note=step.note)
    if step.kind == "machineclass" and of is not None:
        return _of_class(step, of)
    if step.pool is not None and step.pool.state is not None:
        return await _of_pool(client, step.pool)
    if step.control_plane is not None and step.control_plane.state is not None:
        return await _of_control_plane(client, step.control_plane)
    if step.former is not None and step.wanted is not None and of is not None:
        return await _of_machine(client, step, step.former, step.wanted, of)
    note = "its values, which are not shown" if step.kind == "secret" and step.verb is Verb.CONFIGURED else step.note
    return ManifestDiff(step.kind, step.name, step.verb, note=note, more=step.lines)


async def _of_worker_pool(client: HostlerClient, step: ApplyStep, plan: WorkerPoolPlan, run: ApplyPlan) -> ManifestDiff:
    before, after = worker_pool_diff.spec_of(plan)
    fields = []
    for path, old, new in changes(before, after) if before is not None else ():
        does = EFFECT_WORDS[worker_pool_diff.effect(plan, path)]
        fields.append(FieldChange(f"spec.{path}", old, new, does))
    more = tuple(await worker_pool_diff.zone_lines(plan, client.pools, run))
    return ManifestDiff(step.kind, step.name, step.verb, tuple(fields), note=step.note, more=more)


def _of_class(step: ApplyStep, of: ClassPlan) -> ManifestDiff:
    if of.state is None or of.manifest is None:
        return ManifestDiff(step.kind, step.name, step.verb, note=step.note)
    meta, refusals = of.manifest.metadata, tuple(of.refused)
    fields = list(class_changes(of.state.machine_class, of.snapshot, of.preview, of.no_answer))
    before = {"labels": of.state.labels, "annotations": of.state.annotations}
    after = {"labels": meta.labels, "annotations": own_annotations(meta.annotations)}
    fields += [FieldChange(*c, NOTHING) for c in changes(before, after, "metadata")]
    users = sorted(of.state.users) if of.new_content else []
    machines = tuple(u for u in users if not is_owner(u))
    if step.owners:
        fields = [replace(f, effect=ROLL_OR_OUTDATED) if f.effect == REPLACE else f for f in fields]
    note = f"generation {of.state.generation} -> {of.snapshot.generation}" if of.new_content else ""
    more = tuple(str(owner) for owner in step.owners)
    return ManifestDiff(step.kind, step.name, step.verb, tuple(fields), refusals, machines, note, more)


async def _of_machine(
    client: HostlerClient, step: ApplyStep, former: MachineState, wanted: Machine, of: ClassPlan
) -> ManifestDiff:
    meta = wanted.metadata
    before = {"spec": _plain(former.spec), "metadata": {"labels": former.labels, "annotations": former.annotations}}
    after = {
        "spec": _plain(wanted.spec),
        "metadata": {"labels": meta.labels, "annotations": own_annotations(meta.annotations)},
    }
    fields = [FieldChange(*c, IN_PLACE) for c in changes(before, after)]
    has = former.machine_class
    refusals: tuple[str, ...] = ()
    if has is not None and has.name != of.name and not same_content(has, of.snapshot):
        preview, why_not = await _preview(client, of, has)
        fields += class_changes(has, of.snapshot, preview, why_not)
        refusals = tuple(preview.refused) if preview else ()
    return ManifestDiff(step.kind, step.name, step.verb, tuple(fields), refusals, note=step.note)


async def _of_pool(client: HostlerClient, plan: PoolPlan) -> ManifestDiff:
    assert plan.state is not None
    before, after = _plain(plan.state.spec), _plain(plan.spec)
    fields = [FieldChange(*c, _pool_effect(c[0])) for c in changes(before, after, "spec")]
    rehearsed = partial(client.pools.rehearse, plan.name, plan.question, cluster=plan.cluster)
    return await _of_owner(client, POOL_KIND, plan, plan.state, fields, rehearsed)


async def _of_control_plane(client: HostlerClient, plan: ControlPlanePlan) -> ManifestDiff:
    """The lines in the words of a manifest with a class of ours, which both forms come to."""
    former = plan.state
    assert former is not None
    has = former.machine_class.provider if former.machine_class else plan.of.snapshot.provider
    before, after = (
        _plain(manifest_of(spec, provider, plan.manifest.metadata).spec)
        for spec, provider in ((former.spec, has), (plan.spec, plan.of.snapshot.provider))
    )
    fields = [FieldChange(*c, _marked(c[0], CONTROL_PLANE_EFFECTS)) for c in changes(before, after, "spec")]
    rehearsed = partial(client.control_planes.rehearse, plan.name, plan.question, cluster=plan.cluster)
    return await _of_owner(client, CONTROL_PLANE_KIND, plan, former, fields, rehearsed)


async def _of_owner(
    client: HostlerClient,
    kind: str,
    plan: PoolPlan | ControlPlanePlan,
    former: FleetState,
    fields: list[FieldChange],
    rehearsed: Callable[[], Awaitable[Rehearsal]],
) -> ManifestDiff:
    """`fields`: those of its spec that differ."""
    meta, of = plan.manifest.metadata, plan.of
    before = {"labels": former.labels, "annotations": _shown_ones(former.annotations), "namespace": former.namespace}
    after = {
        "labels": meta.labels,
        "annotations": _shown_ones(own_annotations(meta.annotations)),
        "namespace": meta.namespace,
    }
    fields = [*fields, *(FieldChange(*c, POOL) for c in changes(before, after, "metadata"))]
    has = former.machine_class
    if has is not None and has.name != of.name:
        preview, why_not = await _preview(client, of, has)
        fields += [
            replace(c, effect=ROLL) if c.effect == REPLACE else c
            for c in class_changes(has, of.snapshot, preview, why_not)
        ]
    if kind == CONTROL_PLANE_KIND:
        fields = [replace(f, effect=CONTROL_PLANE) if f.effect == POOL else f for f in fields]
    refusals, more = await _rehearsed(rehearsed)
    return ManifestDiff(kind, plan.name, plan.verb, tuple(fields), refusals, more=more, note=plan.note)


def _shown_ones(annotations: Mapping[str, str]) -> dict[str, str]:
    """Without the record of the worker pool, whose fields have lines of their own."""
    return {key: value for key, value in annotations.items() if key != WORKER_POOL_ANNOTATION}


async def _rehearsed(ask: Callable[[], Awaitable[Rehearsal]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Why the owner would not accept it, and what it would do."""
    try:
        found = await ask()
    except HostlerError as e:
        return (), (f"what it would do is not known: {e}",)
    return ((found.refused,), ()) if found.refused else ((), tuple(rehearsal.lines(found)))


def _pool_effect(path: str) -> str:
    return _marked(path, POOL_EFFECTS)


def _marked(path: str, known: Mapping[str, Effect]) -> str:
    """The effect of a field of an owner's spec: by its own mark, or that of the nearest field above it, or the
    strongest of those below."""
    plain = re.sub(r"\[\d+\]", "[]", path.removeprefix("spec."))
    above = [p for p in known if _within(plain, p) and len(p) <= len(plain)]
    if above:
        return EFFECT_WORDS[known[max(above, key=len)]]
    below = {e for p, e in known.items() if _within(plain, p)}
    worst = next((e for e in (Effect.HASH, Effect.HOT) if e in below), Effect.POOL)
    return EFFECT_WORDS[worst]


async def _preview(client: HostlerClient, of: ClassPlan, has: ClassSnapshot) -> tuple[ClassPreview | None, str]:
    """The preview by either class's workflow: the one that the machine will have may not be there yet."""
    why_not = ""
    for name in (of.name, has.name):
        try:
            return await client.classes.preview(name, of.snapshot, has, cluster=of.cluster), ""
        except HostlerError as e:
            why_not = str(e)
    return None, why_not


def class_changes(
    before: ClassSnapshot, after: ClassSnapshot, preview: ClassPreview | None, why_not: str = ""
) -> Iterator[FieldChange]:
    """Every field of the class that differs, with what its workflow says of it."""
    for path, old, new in changes(snapshot_fields(before), snapshot_fields(after)):
        yield FieldChange(path, old, new, _effect(path, preview, why_not))


def _effect(path: str, preview: ClassPreview | None, why_not: str) -> str:
    if path == "provider":
        return REFUSED
    if not path.startswith(f"{PROVIDER_SPEC}."):
        return NOTHING
    if preview is None:
        return f"hot update or replacement? {why_not or 'its workflow was not asked'}"
    key = path.partition('["')[2].removesuffix('"]')
    if key and any(why.startswith(f"the tag {key} ") for why in preview.refused):
        return REFUSED
    inner = _camel(path.removeprefix(f"{PROVIDER_SPEC}."))
    if any(_within(inner, hot) for hot in preview.hot):
        return HOT
    return REPLACE if any(_within(inner, roll) for roll in preview.rolls) else NOTHING


def _within(path: str, field: str) -> bool:
    """Whether the path is the field, or below or above it."""
    short, long = sorted((path, field), key=len)
    return long == short or (long.startswith(short) and long[len(short)] in ".[")


def _camel(path: str) -> str:
    """The path in camel case: a manifest may also use the fields' Python names. A tag's key is below a field, where it
    does no harm."""
    head, quoted, rest = path.partition('["')
    return ".".join(to_camel(part) if "_" in part else part for part in head.split(".")) + quoted + rest


# -- any two documents ------------------------------------------------------------------------------------------------


def changes(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Path, old and new value of everything that differs, down to the single values."""
    if before == after:
        return
    mappings = [v for v in (before, after) if isinstance(v, Mapping)]
    lists = [v for v in (before, after) if isinstance(v, list)]
    nothing = sum(v is None for v in (before, after))
    if mappings and len(mappings) + nothing == 2 and any(mappings):
        old, new = before or {}, after or {}
        for key in sorted({*old, *new}, key=str):
            yield from changes(old.get(key), new.get(key), _below(path, str(key)))
    elif lists and len(lists) + nothing == 2 and any(lists):
        old, new = before or [], after or []
        for n in range(max(len(old), len(new))):
            yield from changes(_at(old, n), _at(new, n), f"{path}[{n}]")
    else:
        yield path, _shown(before), _shown(after)


def _at(values: list[Any], n: int) -> Any:
    return values[n] if n < len(values) else None


def _below(path: str, key: str) -> str:
    if not key.replace("_", "").replace("-", "").isalnum():
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key


def _shown(value: Any) -> str:
    if value is None:
        return "(none)"
    text = str(value).lower() if isinstance(value, bool) else str(value) or '""'
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True)
