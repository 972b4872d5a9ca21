"""What `apply` would change, field by field, and what each change does to machines that run.

The class's workflow judges what a class's field does, as it will when it is applied; here that is only shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic.alias_generators import to_camel

from resources.effects import Effect, effects
from resources.machine.manifest import Machine
from resources.machine.state import ClassSnapshot, MachineState
from resources.machine_class.state import ClassPreview, users_words
from resources.owner import is_owner
from resources.pool.intents import Rehearsal
from resources.pool.manifest import MachineDeploymentSpec
from starter.sdk.apply.classes import ClassPlan, own_annotations, same_content
from starter.sdk.apply.plan import ApplyPlan, ApplyStep
from starter.sdk.apply.pools import POOL_KIND, PoolPlan
from starter.sdk.classes import SOME
from starter.sdk.client import HostlerClient
from starter.sdk.errors import HostlerError
from starter.sdk.pools import rehearsal
from starter.sdk.results import Verb, snapshot_fields

HOT = "hot update"
REPLACE = "needs replacement (Outdated)"
REFUSED = "refused"
IN_PLACE = "applied in place"
NOTHING = "affects no running VM"
ROLL = "needs replacement (a rollout)"
ROLL_OR_OUTDATED = "needs replacement (pools roll; single machines are Outdated)"
POOL = "pool: no machine is replaced"
PROVIDER_SPEC = "providerSpec"
POOL_EFFECTS = dict(effects(MachineDeploymentSpec))
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
    """For a changed class, what it does to pools; for a pool, what it would do, step by step."""

    def lines(self) -> list[str]:
        found = [f"{self.kind}/{self.name} {self.verb}" + (f": {self.note}" if self.note else "")]
        found += [f"  {field}" for field in self.fields]
        found += [f"  {REFUSED}: {why}" for why in self.refusals]
        if self.kind == "machineclass" and self.fields and (self.machines or not self.more):
            found.append(f"  touches {users_words(self.machines, SOME)}")
        return found + [f"  {line}" for line in self.more]


async def differences(client: HostlerClient, plan: ApplyPlan) -> list[ManifestDiff]:
    """The differences of a plan, in the order in which it would be carried out; what is unchanged is left out."""
    return [await _of(client, step) for step in plan.steps if step.verb is not Verb.UNCHANGED]


async def _of(client: HostlerClient, step: ApplyStep) -> ManifestDiff:
    of = step.machine_class
    if step.kind == "machineclass" and of is not None:
        return _of_class(step, of)
    if step.pool is not None and step.pool.state is not None:
        return await _of_pool(client, step.pool)
    if step.former is not None and step.wanted is not None and of is not None:
        return await _of_machine(client, step, step.former, step.wanted, of)
    note = "its values, which are not shown" if step.kind == "secret" and step.verb is Verb.CONFIGURED else step.note
    return ManifestDiff(step.kind, step.name, step.verb, note=note)


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
    if step.pools:
        fields = [replace(f, effect=ROLL_OR_OUTDATED) if f.effect == REPLACE else f for f in fields]
    note = f"generation {of.state.generation} -> {of.snapshot.generation}" if of.new_content else ""
    more = tuple(str(pool) for pool in step.pools)
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
    former, meta, of = plan.state, plan.manifest.metadata, plan.of
    assert former is not None
    fields = [FieldChange(*c, _pool_effect(c[0])) for c in changes(_plain(former.spec), _plain(plan.spec))]
    fields = [replace(f, path=f"spec.{f.path}") for f in fields]
    before = {"labels": former.labels, "annotations": former.annotations, "namespace": former.namespace}
    after = {
        "labels": meta.labels,
        "annotations": own_annotations(meta.annotations),
        "namespace": meta.namespace,
    }
    fields += [FieldChange(*c, POOL) for c in changes(before, after, "metadata")]
    has = former.machine_class
    if has is not None and has.name != of.name:
        preview, why_not = await _preview(client, of, has)
        fields += [
            replace(c, effect=ROLL) if c.effect == REPLACE else c
            for c in class_changes(has, of.snapshot, preview, why_not)
        ]
    refusals, more = await _rehearsed(client, plan)
    return ManifestDiff(POOL_KIND, plan.name, plan.verb, tuple(fields), refusals, more=more, note=plan.note)


async def _rehearsed(client: HostlerClient, plan: PoolPlan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Why the pool would not accept it, and what it would do."""
    try:
        found: Rehearsal = await client.pools.rehearse(plan.name, plan.question, cluster=plan.cluster)
    except HostlerError as e:
        return (), (f"what it would do is not known: {e}",)
    return ((found.refused,), ()) if found.refused else ((), tuple(rehearsal.lines(found)))


def _pool_effect(path: str) -> str:
    """The effect of a field of a pool's spec: by its own mark, or that of the nearest field above it, or the strongest
    of those below."""
    plain = re.sub(r"\[\d+\]", "[]", path)
    above = [p for p in POOL_EFFECTS if _within(plain, p) and len(p) <= len(plain)]
    if above:
        return EFFECT_WORDS[POOL_EFFECTS[max(above, key=len)]]
    below = {e for p, e in POOL_EFFECTS.items() if _within(plain, p)}
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
