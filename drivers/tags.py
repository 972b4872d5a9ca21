"""Tags, the same for every cloud: what must be on everything, what a class asks for, and the plan of a change.

Must-tags are Gardener's (seed 002: Name, kubernetes.io/cluster/…, kubernetes.io/role/…) and our own five, each as the
cloud writes it (resources.clouds.TagRules). They win over the class's: a class that says `Name: x` must not break the
look-up (cluster-api-provider-aws#4629: 124 VMs for two).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from drivers.base import Identity
from drivers.errors import DriverError
from resources.clouds import ProviderSpec, TagRules, Tags
from resources.errors import ErrorClass
from resources.names import (
    CLUSTER_PREFIX,
    OWNER,
    ROLE_PREFIX,
    TAG_CLUSTER,
    TAG_INSTALLATION,
    TAG_MACHINE,
    TAG_OWNER,
    TAG_RELEASED,
    TAG_UID,
)


def must_tags(spec: ProviderSpec, machine: Identity) -> Tags:
    """The must-tags: cluster and role as the class has them, else as the settings have them; the cluster's name where
    neither does.

    Raises DriverError of class invalid when the class names two clusters, or another one than the settings.
    """
    rules, given = spec.TAGS, spec.must_tags()
    prefix, named = rules.key(CLUSTER_PREFIX), machine.cluster_full_name
    own = rules.key(f"{CLUSTER_PREFIX}{named or machine.cluster}")
    clusters = sorted(k for k in given if k.startswith(prefix))
    if len(clusters) > 1 or (clusters and named and clusters != [own]):
        raise DriverError(
            ErrorClass.INVALID,
            f"the class's tags name the cluster {' and '.join(c.removeprefix(prefix) for c in clusters)}, the "
            f"settings {named or 'none'}: there must be one tag {prefix}<full name>, for the machine's own cluster",
        )
    if not clusters:
        given[own] = "1"
    if not any(k.startswith(rules.key(ROLE_PREFIX)) for k in given):
        given[rules.key(f"{ROLE_PREFIX}{machine.role}")] = "1"
    ours = {TAG_OWNER: OWNER, TAG_CLUSTER: machine.cluster, TAG_MACHINE: machine.name, TAG_UID: machine.uid}
    if machine.installation:
        ours[TAG_INSTALLATION] = machine.installation
    return {**given, **rules.written(ours), **({rules.name: rules.value(machine.name)} if rules.name else {})}


def check_must_tags(last: ProviderSpec, goal: ProviderSpec, machine: Identity) -> None:
    """Checks a hot update beforehand. Raises DriverError of class invalid where a must-tag would change; a class that
    has named no cluster or role so far may name the one that its machines carry."""
    if refused := list(goal.TAGS.refusals(last.must_tags(), goal.must_tags())):
        raise DriverError(ErrorClass.INVALID, f"nothing is changed: {'; '.join(refused)}")
    carried, named = must_tags(last, machine), must_tags(goal, machine)
    if carried != named:
        differing = sorted(k for k in {*carried, *named} if carried.get(k) != named.get(k))
        raise DriverError(
            ErrorClass.INVALID,
            f"nothing is changed: the must-tags of {machine.name} would differ in {', '.join(differing)}; remove "
            "these keys from the class's tags",
        )


def class_tags(spec: ProviderSpec, resource: str) -> Tags:
    """What a class asks for on a kind of resource, without what is not its to give."""
    return {k: v for k, v in spec.tags_for(resource).items() if not spec.TAGS.is_protected(k)}


def launch_tags(spec: ProviderSpec, machine: Identity, resource: str, called: str = "") -> Tags:
    """What a new resource carries, sorted: a repeated request must match its token. `called`: the cloud's name for it.

    Raises DriverError of class invalid, with the count, when it would carry more than the cloud takes.
    """
    must, rules = must_tags(spec, machine), spec.TAGS
    wanted = {**spec.tags_for(resource), **must}
    wanted.pop(rules.key(TAG_RELEASED), None)  # it would mark a living machine's disk as nobody's
    if (over := len(wanted) - rules.limit) > 0:
        raise DriverError(
            ErrorClass.INVALID,
            f"{len(wanted)} tags for the {called or resource} ({len(must)} of them are required), but the cloud "
            f"accepts {rules.limit}: remove {over} from {spec.tag_fields(resource)}",
        )
    return {k: wanted[k] for k in sorted(wanted)}


def released_value(rules: TagRules, machine: Identity) -> str:
    """The value of TAG_RELEASED: exact by the uid, readable by the name, cut to what a tag may hold."""
    return rules.value(f"{machine.name[: rules.value_length - len(machine.uid) - 1]}/{machine.uid}")


# -- the plan of a change ----------------------------------------------------------------------------------------------


def plan_update(
    last: ProviderSpec, goal: ProviderSpec, machine: Identity, resource: str, carried: Mapping[str, str]
) -> TagPlan:
    """The changes of one resource in a hot update. The installation's tag is added where the resource shows other tags
    but not that one: it was made before there was such a tag, and one call writes both.

    Raises DriverError of class invalid when it would carry more tags than the cloud takes.
    """
    rules, must = goal.TAGS, must_tags(goal, machine)
    before, wanted = class_tags(last, resource), class_tags(goal, resource)
    try:
        plan = plan_tags(before, wanted, believed(before, wanted, rules.counted(carried)), must, rules.limit)
    except TooManyTags as e:
        where = f"{goal.tag_fields(resource)}, or from those that others have set"
        raise DriverError(ErrorClass.INVALID, f"{e}; remove {e.count - e.limit} from {where}") from None
    key = rules.key(TAG_INSTALLATION)
    if plan.set and carried and key in must and key not in carried:
        return TagPlan(set=dict(sorted({**plan.set, key: must[key]}.items())), remove=plan.remove)
    return plan


def believed(last: Tags, desired: Tags, actual: Tags) -> Tags:
    """What a resource carries, as far as a read can be believed: reads may lag behind the update before.

    A class that goes from `a` to `b` and back within seconds would otherwise find its `a` still there, skip the call,
    and leave `b` for ever. So where keys differ between the specs, the last applied spec is believed: a repeated update
    makes the same, idempotent call once more.
    """
    differing = {k for k in {*last, *desired} if last.get(k) != desired.get(k)}
    return {**{k: v for k, v in actual.items() if k not in differing}, **{k: last[k] for k in differing if k in last}}


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
        super().__init__(f"it would have {count} tags, including those of others, but may have {limit}")
        self.count = count
        self.limit = limit


def plan_tags(last: Tags, desired: Tags, actual: Tags, protected: Collection[str], limit: int) -> TagPlan:
    """The changes that are needed, given what was applied last, what is desired and what the resource carries.

    A key is ours when the spec names it, now or last: only such keys are changed, and only those of the last spec are
    removed. A desired key that somebody else has set gets our value from now on. `protected` holds the keys of
    must-tags, which every resource carries: they are never in a plan, whatever the specs say. Raises TooManyTags.
    """
    wanted = {k: desired[k] for k in sorted(desired) if k not in protected}
    changes = {k: v for k, v in wanted.items() if actual.get(k) != v}
    removed = tuple(sorted(k for k in last if k in actual and k not in desired and k not in protected))
    carried = {*actual, *protected}
    count = len((carried | {*changes}) - {*removed})
    if count > limit and {*changes} - carried:  # a plan that adds nothing cannot exceed the limit
        raise TooManyTags(count, limit)
    return TagPlan(set=changes, remove=removed)
