"""What a changed class means for a running VM: what is updated in place, what needs a new VM, what is refused.

Only the Effect of each field of the provider's model decides, at whatever depth the field is: no cloud is named here.

Sources: seed 002 (fields marked `updatable`; must-tags; fewest calls), machine-controller-manager's proposal of
UpdateMachine (keys that the spec does not own are never touched), field case P69 (a changed tag replaces no machine).
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from resources.canonical import canonical
from resources.clouds import PROVIDERS, ProviderSpec
from resources.effects import Effect, effects, inner_model
from resources.machine.state import ClassSnapshot

Spec = Mapping[str, Any]

HASH_VERSION = 2
"""The version of the hashes made now, `2:<16 hex digits>`. Version 1, `<16 hex digits>`, covers every field of the
model, given or not, as it is spelled; it is still made for workers that know no other, and in runs that began with
it."""

_INDEX = re.compile(r"\[\d+\]")
_ABSENT = object()
_STEP = re.compile(r"[^.\[\]]+")


@dataclass(frozen=True)
class Difference:
    """The difference between the spec a VM carries and the one its class has now; sorted paths, such as
    `blockDevices[0].ebs.iops`."""

    hot: tuple[str, ...] = ()
    """Updatable fields: changed in place."""
    rolls: tuple[str, ...] = ()
    """Fields that only a new VM can have, including those of the post-start update."""
    refused: tuple[str, ...] = ()
    """What may not change while the machine lives: in words, with what to do. Nothing is applied then."""

    def __bool__(self) -> bool:
        return bool(self.hot or self.rolls or self.refused)


def compare(provider: str, applied: Spec, desired: Spec, version: int = HASH_VERSION) -> Difference:
    """What differs, by the effect of each field, with both specs in one form (resources/canonical.py): ignored and
    unknown fields are no difference, nor is another spelling. Never raises: if a spec is not valid, both are compared
    as written. For a provider without a model every difference rolls. `version`: that of the hash with which the result
    agrees.

    An updatable field of a part that only one of the two specs has, such as the labels of another disk, belongs to that
    part and rolls with it.
    """
    if applied == desired:
        return Difference()  # the usual case, and much cheaper than parsing both
    model = _model(provider)
    if model is None:
        keys = {*applied, *desired}
        return Difference(rolls=tuple(sorted(k for k in keys if applied.get(k) != desired.get(k))))
    if _parsed(model, applied) is None or _parsed(model, desired) is None:
        version = 1
    before, after = _read(model, applied, version), _read(model, desired, version)
    paths = sorted({*before.leaves, *after.leaves})
    differ = [p for p in paths if before.leaves.get(p, _ABSENT) != after.leaves.get(p, _ABSENT)]
    hot = {p for p in differ if _effect(model, p) is Effect.HOT and before.has_place(p) and after.has_place(p)}
    return Difference(
        hot=tuple(p for p in differ if p in hot),
        rolls=tuple(p for p in differ if p not in hot and _effect(model, p) is not Effect.NONE),
        refused=tuple(model.TAGS.refusals(_must_tags(model, applied, before), _must_tags(model, desired, after))),
    )


def applied_after(provider: str, applied: Spec, desired: Spec) -> dict[str, Any]:
    """What the VM carries after a hot update: the applied spec with the updatable fields of the desired one."""
    model = _model(provider)
    return dict(applied) if model is None else _merged(model, model, "", applied, desired)


def with_updatable(own: ClassSnapshot, wanted: ClassSnapshot) -> ClassSnapshot:
    """The class that machines go on with which are not to be replaced: what only a new VM can have stays their own, all
    else is the wanted one's."""
    spec = applied_after(own.provider, own.provider_spec, wanted.provider_spec)
    rolls = own.name == wanted.name and compare(own.provider, spec, wanted.provider_spec).rolls
    base = own.based_on if rolls and own.based_on != wanted.generation else 0
    return wanted.model_copy(update={"provider_spec": spec, "base": base})


def may_carry(provider: str, applied: Spec, attempted: Sequence[Spec], desired: Spec) -> dict[str, Any]:
    """The applied spec as the VM may carry it after updates to `attempted` that failed, perhaps half-way: the
    last-applied spec to give to the update to `desired`.

    Without it, a class that is set back after such a failure would look applied, and what the failed update had already
    set would stay forever, as if it were somebody else's. Each updatable field, and each key of one that is a table
    such as tags, has the value, among those the VM may carry, that differs from the desired one; so whatever the VM
    carries is brought right, and a key of a failed update is ours. Must-tags are the applied spec's.
    """
    model = _model(provider)
    parsed = [_parsed(model, s) for s in (applied, desired, *attempted)] if model else []
    first, last, *others = (p.settled() if p else None for p in parsed) if parsed else (None, None)
    tried = [p for p in others if p is not None]
    if model is None or first is None or last is None or not tried:
        return dict(applied)  # an invalid spec was never sent to a cloud
    carried = first.model_dump(mode="json", by_alias=True, exclude_unset=True)
    before, *after = (_read_model(p) for p in (first, *tried))
    wanted = _read_model(last).leaves
    for path in sorted({p for spec in (before, *after) for p in spec.leaves if _effect(model, p) is Effect.HOT}):
        if before.has_place(path):
            values = [spec.leaves.get(path) for spec in (before, *after) if spec.has_place(path)]
            _set(carried, path, _either(model, values, wanted.get(path)))
    return carried


def rolling_hash(provider: str, spec: Spec, version: int = HASH_VERSION) -> str:
    """A hash of the fields that only a new VM can have: two specs differ in it exactly where `compare` finds something
    that rolls (seed 002: WorkerPoolHash).

    A stored hash may have another version, or come from a model with other fields: callers that have the spec it was
    made from compare that spec's hash of today. Callers that have only the hash use `is_hash_of`; for them a version's
    hashes stay the same from release to release.
    """
    model = _model(provider)
    if model is None:
        found = _hash({k: v for k, v in spec.items() if v is not None})
    else:
        rolls = (Effect.HASH, Effect.POST_START)
        leaves = _read(model, spec, version).leaves.items()
        found = _hash({p: v for p, v in leaves if _effect(model, p) in rolls})
    return found if version == 1 else f"{version}:{found}"


def is_hash_of(stored: str, provider: str, spec: Spec) -> bool:
    """Whether a `rolling_hash` made by another worker, in a version known here, is that of this spec."""
    number, colon, _ = stored.partition(":")
    version = int(number) if colon and number.isdecimal() else 1
    return version <= HASH_VERSION and rolling_hash(provider, spec, version) == stored


def _hash(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


# -- the fields of a spec ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fields:
    """The contents of a spec, by path."""

    model: type[BaseModel]
    leaves: dict[str, Any] = field(default_factory=dict)
    """The value of every field that the model knows."""
    parts: set[str] = field(default_factory=lambda: {""})
    """Objects, and items of lists, that are present."""

    def has_place(self, path: str) -> bool:
        """Whether the object that the field belongs to is there. An object that is updatable as a whole belongs to the
        one that contains it: its absence only says that it has no values."""
        while path:
            path = path.rpartition(".")[0]
            if _INDEX.sub("[]", path) not in _hot_as_a_whole(self.model):
                break
        return path in self.parts


def _model(provider: str) -> type[ProviderSpec] | None:
    found = PROVIDERS.get(provider)
    return None if found is None else found.spec


@functools.cache
def _effects(model: type[BaseModel]) -> Mapping[str, Effect]:
    """The effect of every field, by path."""
    return dict(effects(model))


@functools.cache
def _hot_as_a_whole(model: type[BaseModel]) -> Collection[str]:
    """Paths of objects that only have updatable fields."""
    below: dict[str, set[Effect]] = {}
    for path, effect in _effects(model).items():
        while path := path.rpartition(".")[0]:
            below.setdefault(path, set()).add(effect)
    return {part for part, found in below.items() if found == {Effect.HOT}}


def _effect(model: type[BaseModel], path: str) -> Effect | None:
    """The effect of the field at a path. None: it is not a field but an object with fields."""
    return _effects(model).get(_INDEX.sub("[]", path))


def _read(model: type[ProviderSpec], spec: Spec, version: int) -> _Fields:
    """The contents of a spec. Objects that only a default makes are there too, so that their fields have a place."""
    parsed = _parsed(model, spec)
    found = _walked(model, spec) if parsed is None else _read_model(parsed)
    if parsed is None or version == 1:
        return replace(found, leaves={path: value for path, value in found.leaves.items() if value is not None})
    return replace(found, leaves=_walked(model, canonical(parsed.in_one_spelling())).leaves)


def _read_model(parsed: ProviderSpec) -> _Fields:
    return _walked(type(parsed), parsed.model_dump(mode="json", by_alias=True))


def _parsed(model: type[ProviderSpec], spec: Spec) -> ProviderSpec | None:
    """The parsed spec; None for one that is not valid."""
    try:
        return model.model_validate(spec)
    except ValidationError:
        return None


def _walked(model: type[BaseModel], spec: Spec) -> _Fields:
    found = _Fields(model)

    def walk(value: Any, path: str) -> None:
        if _effect(model, path) is not None:
            found.leaves[path] = value
        elif isinstance(value, Mapping):
            found.parts.add(path)
            for key, inner in value.items():
                walk(inner, f"{path}.{key}" if path else str(key))
        elif isinstance(value, list):
            for n, item in enumerate(value):
                walk(item, f"{path}[{n}]")

    walk(spec, "")
    return found


def _merged(model: type[BaseModel], within: type[BaseModel], path: str, old: Spec, new: Spec) -> dict[str, Any]:
    """`old` with the updatable fields of `new`, which are both objects of the model `within` at `path`."""
    merged = dict(old)
    for name, info in within.model_fields.items():
        alias = info.alias or name
        inner, suffix = inner_model(info.annotation)
        here = f"{path}{alias}{suffix}"
        if here in _hot_as_a_whole(model) or _effect(model, here) is Effect.HOT:
            for key in (alias, name):
                merged.pop(key, None)
                if key in new:
                    merged[key] = new[key]
        elif inner is not None:
            key = name if name in old and alias not in old else alias
            before, after = _part(info, old.get(key)), _part(info, new.get(alias, new.get(name)))
            if isinstance(before, list) and isinstance(after, list):
                both = [
                    _merged(model, inner, f"{here}.", a, b) if isinstance(a, Mapping) and isinstance(b, Mapping) else a
                    for a, b in zip(before, after, strict=False)
                ]
                merged[key] = [*both, *before[len(both) :]]
            elif isinstance(before, Mapping) and isinstance(after, Mapping):
                part = _merged(model, inner, f"{here}.", before, after)
                if part or key in old:
                    merged[key] = part
    return merged


def _part(info: FieldInfo, given: Any) -> Any:
    """The given value, or an empty object where the spec gives none and the model makes one by default."""
    made = given is None and isinstance(info.get_default(call_default_factory=True, validated_data={}), BaseModel)
    return {} if made else given


def _set(spec: dict[str, Any], path: str, value: Any) -> None:
    """Sets the value at a path; None, of which nothing is known, sets nothing."""
    *steps, last = _STEP.findall(path)
    here: Any = spec
    for step in steps:
        if isinstance(here, list):
            here = here[int(step)]
        else:
            here[step] = here.get(step) or {}
            here = here[step]
    if value is not None:
        here[last] = value


def _either(model: type[ProviderSpec], values: Sequence[Any], desired: Any) -> Any:
    """A value that is not the desired one, from those that a field may have, the applied one first. A field that a spec
    does not give stays as it was, so its absence is no value; for a key of a table it is one."""
    if any(isinstance(v, list) for v in values):  # a set of words, such as network tags
        states = [dict.fromkeys(v or ()) for v in values]
        return list(_differing(states, dict.fromkeys(desired or ())))
    if not any(isinstance(v, Mapping) for v in values):
        given = [v for v in values if v is not None]
        return next((v for v in given if v != desired), given[0] if given else None)
    is_must = model.TAGS.is_must
    first, *others = (v or {} for v in values)
    ours = [{k: v for k, v in table.items() if not is_must(model.TAGS.key(k))} for table in others]
    must = {k: v for k, v in first.items() if is_must(model.TAGS.key(k))}
    return {**_differing([first, *ours], desired or {}), **must}


def _differing(states: Sequence[Mapping[str, Any]], desired: Mapping[str, Any]) -> dict[str, Any]:
    """A value for each key that is not the desired one, from the states the table may be in; absence counts as a
    value."""
    found: dict[str, Any] = {}
    for key in dict.fromkeys(k for state in states for k in state):
        if key in desired and any(key not in state for state in states):
            continue
        values = [state[key] for state in states if key in state]
        found[key] = next((v for v in values if v != desired.get(key)), values[0])
    return found


def _must_tags(model: type[ProviderSpec], spec: Spec, fields: _Fields) -> dict[str, str]:
    """The must-tags of cluster and role, from whichever tag field of the class has them, as the cloud writes them."""
    if (parsed := _parsed(model, spec)) is not None:
        return parsed.must_tags()
    tables = [v for p, v in fields.leaves.items() if _effect(model, p) is Effect.HOT and isinstance(v, Mapping)]
    written = [(model.TAGS.key(k), v) for table in tables for k, v in table.items()]
    return {k: v for k, v in written if model.TAGS.is_must(k)}
