"""What a changed class means for a VM that runs: what is updated in place, what needs a new VM, what is refused; and
the tags of one resource as a plan.

Sources: seed 002 (fields marked `updatable`; must-tags; fewest calls), machine-controller-manager's proposal of
UpdateMachine (keys that the spec does not own are never touched), field case P69 (a changed tag replaces no machine).
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from resources.canonical import canonical
from resources.effects import Effect, effects
from resources.manifests import PROVIDER_SPECS
from resources.names import MUST_PREFIXES

Spec = Mapping[str, Any]
Tags = Mapping[str, str]

HASH_VERSION = 2
"""The version of the hashes that are made now, `2:<16 hex digits>`. Version 1, `<16 hex digits>`, has every field of
the model, asked for or not, as it is spelled; it is still made for workers that know no other, and in runs that began
with it."""

_INDEX = re.compile(r"\[\d+\]")
_ABSENT = object()


@dataclass(frozen=True)
class Difference:
    """Between the spec a VM carries and the one its class has now; sorted paths, e.g. `blockDevices[0].ebs.iops`."""

    hot: tuple[str, ...] = ()
    """Updatable fields: changed in place."""
    rolls: tuple[str, ...] = ()
    """Fields that only a new VM can have, those of the post-start update among them."""
    refused: tuple[str, ...] = ()
    """What may not change as long as the machine lives: in words, with what to do. Nothing is applied then."""

    def __bool__(self) -> bool:
        return bool(self.hot or self.rolls or self.refused)


def compare(provider: str, applied: Spec, desired: Spec, version: int = HASH_VERSION) -> Difference:
    """What differs, by the effect of each field, in the one form of both specs (resources/canonical.py): ignored and
    unknown fields are no difference, nor is another spelling. Never raises: if a spec is not valid, both are compared
    as they are written. For a provider without a model every difference rolls. `version`: that of the hash which
    agrees."""
    if applied == desired:
        return Difference()  # of nearly every look at a machine, and much cheaper than to parse both
    known = _effects(provider)
    if known is None:
        keys = {*applied, *desired}
        return Difference(rolls=tuple(sorted(k for k in keys if applied.get(k) != desired.get(k))))
    if _parsed(provider, applied) is None or _parsed(provider, desired) is None:
        version = 1
    before, after = _leaves(provider, applied, version), _leaves(provider, desired, version)
    differ = sorted(p for p in {*before, *after} if before.get(p, _ABSENT) != after.get(p, _ABSENT))
    found = {path: known[_template(path)] for path in differ}
    return Difference(
        hot=tuple(p for p, effect in found.items() if effect is Effect.HOT),
        rolls=tuple(p for p, effect in found.items() if effect in (Effect.HASH, Effect.POST_START)),
        refused=tuple(_refused(_must_tags(provider, before), _must_tags(provider, after))),
    )


def applied_after(provider: str, applied: Spec, desired: Spec) -> dict[str, Any]:
    """What the VM carries after a hot update: the applied spec with the updatable fields of the desired one."""
    updatable = _updatable(provider)
    kept = {k: v for k, v in applied.items() if k not in updatable}
    return {**kept, **{k: v for k, v in desired.items() if k in updatable}}


def may_carry(provider: str, applied: Spec, attempted: Sequence[Spec], desired: Spec) -> dict[str, Any]:
    """The applied spec as the VM may carry it after updates to `attempted` that failed, perhaps half-way: what to give
    as last applied to the update to `desired`.

    Without it, a class that is set back after such a failure would look applied, and what the failed update had set
    already would stay for ever, as if it were somebody else's. Of each tag and option it has the value, among those
    that the VM may carry, that differs from the desired one; so whatever it carries is brought right, and a key of a
    failed update is ours. Must-tags are the applied spec's.
    """
    before, goal = _parsed(provider, applied), _parsed(provider, desired)
    tried = [s for s in (_parsed(provider, a) for a in attempted) if s is not None]
    if before is None or goal is None or not tried:
        return dict(applied)  # what is not valid was never sent to a cloud
    carried: dict[str, Any] = {k: v for k, v in applied.items() if k not in _updatable(provider) or k == "tags"}
    for kind in ("vm", "nic", "disk"):
        had = before.tags_for(kind)
        others = [{k: v for k, v in s.tags_for(kind).items() if not k.startswith(MUST_PREFIXES)} for s in tried]
        must = {k: v for k, v in had.items() if k.startswith(MUST_PREFIXES)}
        carried[f"{kind}Tags"] = {**_differing([had, *others], goal.tags_for(kind)), **must}
    options, wanted = [_options(s) for s in (before, *tried)], _options(goal)
    if any(options):  # one that a spec does not give stays what it was: its absence is no state
        carried["instanceMetadataOptions"] = _differing(options, wanted, absent=False)
    return carried


def updatable_hash(provider: str, spec: Spec) -> str:
    """A hash of the updatable fields alone: equal hashes need no call."""
    return _hash(_fields(provider, spec, (Effect.HOT,), HASH_VERSION))


def rolling_hash(provider: str, spec: Spec, version: int = HASH_VERSION) -> str:
    """A hash of the fields that only a new VM can have: two specs differ in it exactly where `compare` finds something
    that rolls (seed 002: WorkerPoolHash).

    A stored hash may have another version, or be from a model with other fields: whoever has the spec it was made from
    compares what that spec's hash is today. Those who have the hash alone use `is_hash_of`; for them a version's hashes
    stay the same from release to release.
    """
    if _effects(provider) is None:
        found = _hash({k: v for k, v in spec.items() if v is not None})
    else:
        found = _hash(_fields(provider, spec, (Effect.HASH, Effect.POST_START), version))
    return found if version == 1 else f"{version}:{found}"


def is_hash_of(stored: str, provider: str, spec: Spec) -> bool:
    """Whether a `rolling_hash` that another worker has made, in a version that is known here, is that of this spec."""
    number, colon, _ = stored.partition(":")
    version = int(number) if colon and number.isdecimal() else 1
    return version <= HASH_VERSION and rolling_hash(provider, spec, version) == stored


def _fields(provider: str, spec: Spec, wanted: Collection[Effect], version: int) -> dict[str, Any]:
    known = _effects(provider) or {}
    leaves = _leaves(provider, spec, version) if known else {}
    return {path: value for path, value in leaves.items() if known[_template(path)] in wanted}


def _hash(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


# -- the tags of one resource ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TagPlan:
    """The changes of one resource's tags."""

    set: dict[str, str] = field(default_factory=dict)
    """New keys, and keys with another value; sorted."""
    remove: tuple[str, ...] = ()
    """Sorted."""

    def __bool__(self) -> bool:
        return bool(self.set or self.remove)


class TooManyTags(ValueError):
    """A resource would carry more tags than its cloud allows; nothing of its plan may be applied."""

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"it would carry {count} tags, with those of others, and may carry {limit}")
        self.count = count
        self.limit = limit


def plan_tags(last: Tags, desired: Tags, actual: Tags, protected: Collection[str], limit: int) -> TagPlan:
    """From what was applied last, what is desired and what the resource carries, the changes that are needed.

    A key is ours when the spec names it, now or last: only such are changed, and only last's are removed. What carries
    a desired key by somebody else's hand gets our value from now on. `protected` are keys of must-tags, which every
    resource carries: never in a plan, whatever the specs say. Raises TooManyTags.
    """
    wanted = {k: desired[k] for k in sorted(desired) if k not in protected}
    changes = {k: v for k, v in wanted.items() if actual.get(k) != v}
    removed = tuple(sorted(k for k in last if k in actual and k not in desired and k not in protected))
    carried = {*actual, *protected}
    count = len((carried | {*changes}) - {*removed})
    if count > limit and {*changes} - carried:  # a plan that adds nothing cannot be what is too much
        raise TooManyTags(count, limit)
    return TagPlan(set=changes, remove=removed)


# -- the fields of a spec ----------------------------------------------------------------------------------------------


@functools.cache
def _effects(provider: str) -> Mapping[str, Effect] | None:
    """By path; None for a provider without a model."""
    model = PROVIDER_SPECS.get(provider)
    return None if model is None else dict(effects(model))


def _updatable(provider: str) -> set[str]:
    """Top-level fields that are updatable as a whole, by both names that a manifest may use."""
    model, known = PROVIDER_SPECS.get(provider), _effects(provider)
    if model is None or known is None:
        return set()
    rolling = {_top(path) for path, effect in known.items() if effect is not Effect.HOT}
    names = {name: info.alias or name for name, info in model.model_fields.items()}
    return {n for name, alias in names.items() if alias not in rolling for n in (name, alias)}


def _leaves(provider: str, spec: Spec, version: int) -> dict[str, Any]:
    """The value of every field that the model knows and the spec gives, by path."""
    parsed, known = _parsed(provider, spec), _effects(provider) or {}
    if parsed is not None and version > 1:
        return dict(_walk(canonical(parsed.in_one_spelling()), "", known))
    plain: Spec = spec if parsed is None else parsed.model_dump(mode="json", by_alias=True)
    return {path: value for path, value in _walk(plain, "", known) if value is not None}


def _walk(value: Any, path: str, known: Collection[str]) -> Iterator[tuple[str, Any]]:
    if _template(path) in known:
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _walk(inner, f"{path}.{key}" if path else str(key), known)
    elif isinstance(value, list):
        for n, item in enumerate(value):
            yield from _walk(item, f"{path}[{n}]", known)


def _parsed(provider: str, spec: Spec) -> Any:
    """The model of a spec, None for one that is not valid."""
    model = PROVIDER_SPECS.get(provider)
    try:
        return model.model_validate(spec) if model else None
    except ValidationError:
        return None


def _options(parsed: Any) -> dict[str, Any]:
    given = parsed.model_dump(by_alias=True, exclude_none=True)
    return dict(given.get("instanceMetadataOptions", {}))


def _differing(states: Sequence[Mapping[str, Any]], desired: Mapping[str, Any], absent: bool = True) -> dict[str, Any]:
    """Of each key, from the states that it may be in, one that is not the desired; `absent`: to be missing is one."""
    found: dict[str, Any] = {}
    for key in dict.fromkeys(k for state in states for k in state):
        if absent and key in desired and any(key not in state for state in states):
            continue
        values = [state[key] for state in states if key in state]
        found[key] = next((v for v in values if v != desired.get(key)), values[0])
    return found


def _template(path: str) -> str:
    return _INDEX.sub("[]", path)


def _top(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]


# -- must-tags ---------------------------------------------------------------------------------------------------------


def _must_tags(provider: str, leaves: Mapping[str, Any]) -> dict[str, str]:
    """Those of cluster and role, in whichever tag field the class has them."""
    known = _effects(provider) or {}
    fields = [v for p, v in leaves.items() if known[_template(p)] is Effect.HOT and isinstance(v, Mapping)]
    return {k: v for tags in fields for k, v in tags.items() if k.startswith(MUST_PREFIXES)}


def _refused(before: Tags, after: Tags) -> Iterator[str]:
    """They say whose a machine is: they never change as long as it lives (design drivers.md, *Tags*). A class that has
    named none may begin to: the driver knows what its machines carry."""
    for prefix in MUST_PREFIXES:
        had = {k: v for k, v in before.items() if k.startswith(prefix)}
        has = {k: v for k, v in after.items() if k.startswith(prefix)}
        if not had or had == has:
            continue
        for key in sorted({*had, *has}):
            what = "removed" if key not in has else "added" if key not in had else "changed"
            if had.get(key) != has.get(key):
                yield (
                    f"the tag {key} may not be {what}: by it the cluster's tools know whose the machine is; "
                    f"keep {' and '.join(sorted(had))} in one of the tag fields, or make a new class"
                )
