"""A hot update: tags of the instance, its volumes and NICs, and the instance's metadata options (seed 002).

What is to change, planners.hot_update says; here is what EC2 needs for it, in the fewest calls: one CreateTags or
DeleteTags for all resources with an equal change, one after the other. After an error it goes on with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from drivers.aws import belongings, instances, places
from drivers.aws.belongings import GONE, Belonging
from drivers.aws.calls import Ec2, Resource
from drivers.aws.failures import combine
from drivers.aws.launch import parse_spec
from drivers.aws.tags import RESOURCES, class_tags, counted, must_tags, tags_of
from drivers.base import Identity, UpdateMachineRequest, UpdateMachineResponse
from drivers.errors import DriverError, PartialUpdate
from planners.hot_update import TagPlan, TooManyTags, applied_after, compare, plan_tags
from resources.clouds.aws import MAX_TAGS, AwsProviderSpec, Tags
from resources.errors import PASSING, ErrorClass
from resources.messages import ResourceUpdate
from resources.names import TAG_INSTALLATION, TAG_UID

ALL_ALIKE = PASSING | {ErrorClass.CONFLICT}
"""Of a call for several resources, such an error says nothing about one of them: to ask for each would not help."""
_OPTIONS = (
    ("HttpTokens", "http_tokens"),
    ("HttpPutResponseHopLimit", "http_put_response_hop_limit"),
    ("HttpEndpoint", "http_endpoint"),
)


_BELONGINGS: dict[str, belongings.Kind] = {"volume": "volume", "network-interface": "network interface"}


def hot_update(
    connect: Callable[[], Ec2], request: UpdateMachineRequest, last_applied: Mapping[str, Any]
) -> UpdateMachineResponse:
    """Idempotent. Without a change for this VM it makes no call, not even a read.

    Raises DriverError of class invalid, before any call, when a must-tag would change; PartialUpdate when some resource
    failed: of the class that is waited for longest, with what became of each.
    """
    refused = compare("AWS", last_applied, request.provider_spec).refused
    if refused:
        raise DriverError(ErrorClass.INVALID, f"nothing is changed: {'; '.join(refused)}")
    last = parse_spec(dict(last_applied))
    goal = parse_spec(applied_after("AWS", last_applied, request.provider_spec))
    _check_must_tags(last, goal, request.machine)
    kinds = [kind for kind, name in RESOURCES if class_tags(last, name) != class_tags(goal, name)]
    if not kinds and _options(last) == _options(goal):
        return UpdateMachineResponse()
    return _Update(connect(), request, last, goal, kinds).run()


def _check_must_tags(last: AwsProviderSpec, goal: AwsProviderSpec, machine: Identity) -> None:
    """A class that named no cluster or role so far may name the one that its machines carry."""
    carried, named = must_tags(last, machine), must_tags(goal, machine)
    if carried != named:
        differing = sorted(k for k in {*carried, *named} if carried.get(k) != named.get(k))
        raise DriverError(
            ErrorClass.INVALID,
            f"nothing is changed: the must-tags of {machine.name} would differ in {', '.join(differing)}; "
            "take these keys out of the class's tags",
        )


def _options(spec: AwsProviderSpec) -> dict[str, Any]:
    """The metadata options that a spec has an opinion on, by EC2's names."""
    given = spec.instance_metadata_options
    return {name: v for name, own in _OPTIONS if given and (v := getattr(given, own)) is not None}


@dataclass
class _Target:
    """A resource of the machine that is to be updated, and what becomes of it."""

    id: str
    kind: str
    """EC2's name of the kind: instance, volume, network-interface."""
    tags: Tags
    """As they are read."""
    plan: TagPlan = field(default_factory=TagPlan)
    changed: list[str] = field(default_factory=list)
    errors: list[DriverError] = field(default_factory=list)

    @property
    def update(self) -> ResourceUpdate:
        error = combine(self.errors).info if self.errors else None
        return ResourceUpdate(id=self.id, kind=self.kind, changed=self.changed, error=error)


def _about(error: DriverError, targets: list[_Target]) -> DriverError:
    """The same, with the ids of the resources that the call was for."""
    return DriverError(
        error.error_class,
        f"{', '.join(t.id for t in targets)}: {error.message}",
        provider_code=error.provider_code,
        retry_after=error.retry_after,
        code=error.code,
    )


class _Update:
    def __init__(
        self, ec2: Ec2, request: UpdateMachineRequest, last: AwsProviderSpec, goal: AwsProviderSpec, kinds: list[str]
    ) -> None:
        self.ec2 = ec2
        self.machine = request.machine
        self.instance_id = instances.instance_id(request.provider_id)
        self.last = last
        self.goal = goal
        self.kinds = kinds
        """Those whose tags differ between the two specs; the others are not even read."""
        self.errors: list[DriverError] = []
        """Of what belongs to no single resource: reads."""

    def run(self) -> UpdateMachineResponse:
        instance = self._instance()
        vm = _Target(self.instance_id, "instance", tags_of(instance))
        targets = [vm, *self._belongings(instance)]
        self._plan(targets)
        # Removals first: a resource that carries as many tags as it may has no room for a new one before.
        for key in _equal(t.plan.remove for t in targets):
            self._call("DeleteTags", [t for t in targets if t.plan.remove == key], [{"Key": k} for k in key])
        for pairs in _equal(tuple(t.plan.set.items()) for t in targets):
            tags = [{"Key": k, "Value": v} for k, v in pairs]
            self._call("CreateTags", [t for t in targets if tuple(t.plan.set.items()) == pairs], tags)
        self._set_options(vm, instance)
        return self._answer(targets)

    def _answer(self, targets: list[_Target]) -> UpdateMachineResponse:
        updates = [t.update for t in targets if t.changed or t.errors]
        errors = [*self.errors, *(e for t in targets for e in t.errors)]
        if errors:
            raise PartialUpdate(combine(errors), updates)
        return UpdateMachineResponse(changed=[f"{u.id}: {', '.join(u.changed)}" for u in updates], resources=updates)

    # -- reading --------------------------------------------------------------------------------------------------

    def _instance(self) -> Resource:
        found = instances.by_id(self.ec2, self.instance_id)
        instance = instances.the_one([found] if found else [], self.instance_id)
        owner = tags_of(instance).get(TAG_UID, self.machine.uid)
        if owner != self.machine.uid:
            raise DriverError(
                ErrorClass.CONFLICT,
                f"{self.instance_id} is not updated: its tag {TAG_UID}={owner} says that it is another machine's than "
                f"{self.machine.name}'s (uid {self.machine.uid}); correct the tag or the providerID",
            )
        return instance

    def _belongings(self, instance: Resource) -> Iterator[_Target]:
        """Our own volumes and NICs of the kinds whose tags change. Others attach theirs (a CSI driver, a CNI): they do
        not carry our uid and are left alone."""
        held = {
            "volume": places.volumes(self.last, instance),
            "network-interface": places.network_interfaces(self.last, instance),
        }
        for kind, read in _BELONGINGS.items():
            if kind in self.kinds:
                try:
                    yield from [_Target(b.id, kind, b.tags) for b in self._owned(read, held[kind])]
                except DriverError as e:
                    self.errors.append(e)

    def _owned(self, kind: belongings.Kind, held: list[str]) -> list[Belonging]:
        """By uid; and what is in a place of the spec and shows no tag at all yet: whatever a launch makes is tagged by
        it, so only its tags are late. Without it, a lagging read would pass for a complete update."""
        mine = belongings.tagged(self.ec2, kind, self.machine)
        missing = sorted(set(held) - {b.id for b in mine})
        late = [b for wanted in missing if (b := belongings.by_id(self.ec2, kind, wanted)) and not b.tags]
        return [*mine, *late]

    # -- planning -------------------------------------------------------------------------------------------------

    def _plan(self, targets: list[_Target]) -> None:
        fields = dict(RESOURCES)
        must = must_tags(self.goal, self.machine)
        for target in targets:
            if target.kind not in self.kinds:
                continue
            last, desired = (class_tags(spec, fields[target.kind]) for spec in (self.last, self.goal))
            try:
                target.plan = plan_tags(last, desired, _trusted(last, desired, counted(target.tags)), must, MAX_TAGS)
                missing = {k: v for k, v in must.items() if k == TAG_INSTALLATION and k not in target.tags}
                if missing and target.plan.set and target.tags:
                    # Made before there was such a tag; one call writes both.
                    target.plan = replace(target.plan, set=dict(sorted({**target.plan.set, **missing}.items())))
            except TooManyTags as e:
                where = f"{fields[target.kind]}Tags or tags"
                words = f"{target.id}: {e}; remove {e.count - e.limit} from {where}, or of those that others have set"
                target.errors.append(DriverError(ErrorClass.INVALID, words))

    # -- writing --------------------------------------------------------------------------------------------------

    def _call(self, operation: str, targets: list[_Target], tags: list[dict[str, str]]) -> None:
        """EC2 takes such a call as a whole or not at all. Where one resource may be the reason that it is refused,
        each is asked for alone, so that the others have their change."""
        try:
            self.ec2.call(operation, Resources=[t.id for t in targets], Tags=tags)
        except DriverError as e:
            if len(targets) > 1 and e.error_class not in ALL_ALIKE:
                for target in targets:
                    self._call(operation, [target], tags)
                return
            self._failed(targets, e)
            return
        verb = "removed" if operation == "DeleteTags" else "set"
        for target in targets:
            target.changed += [f"{verb} {tag['Key']}" for tag in tags]

    def _failed(self, targets: list[_Target], error: DriverError) -> None:
        about = _about(error, targets)
        for target in targets:
            if error.provider_code in GONE:  # it vanished since it was read: nothing of it is left to update
                target.plan = TagPlan()
                target.changed.append("gone meanwhile")
            else:
                target.errors.append(about)

    def _set_options(self, vm: _Target, instance: Resource) -> None:
        """Only what differs. An option that left the spec is left as it is: EC2 has no "as the account has it"."""
        last, goal, actual = _options(self.last), _options(self.goal), instance.get("MetadataOptions") or {}
        if last == goal:
            return
        changes = {k: v for k, v in goal.items() if v != actual.get(k) or v != last.get(k)}  # see _trusted
        if not changes:
            return
        try:
            self.ec2.call("ModifyInstanceMetadataOptions", InstanceId=vm.id, **changes)
            vm.changed += [f"metadata option {k}={v}" for k, v in changes.items()]
        except DriverError as e:
            vm.errors.append(_about(e, [vm]))


def _trusted(last: Tags, desired: Tags, actual: Tags) -> Tags:
    """What a resource carries, as far as a read can be believed: reads may lag behind the update before.

    A class that goes from `a` to `b` and back within seconds would otherwise find its `a` still there, skip the call,
    and leave `b` for ever. So for keys that differ between the specs the last applied one is believed: a repeated
    update makes the same, idempotent call once more.
    """
    differing = {k for k in {*last, *desired} if last.get(k) != desired.get(k)}
    return {**{k: v for k, v in actual.items() if k not in differing}, **{k: last[k] for k in differing if k in last}}


def _equal(changes: Iterable[Any]) -> list[Any]:
    """Each change that there is, once, in the order of the resources."""
    return list(dict.fromkeys(c for c in changes if c))
