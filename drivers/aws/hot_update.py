"""A hot update: tags of the instance, its volumes and NICs, and the instance's metadata options (seed 002).

drivers.tags says what is to change; here is what EC2 needs for it, in the fewest calls: one CreateTags or DeleteTags
for all resources with an equal change, one after the other. After an error it goes on with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from drivers.aws import belongings, instances, places
from drivers.aws.belongings import GONE, Belonging
from drivers.aws.calls import Ec2, Resource
from drivers.aws.launch import parse_spec
from drivers.aws.tags import RESOURCES, tags_of
from drivers.base import UpdateMachineRequest, UpdateMachineResponse
from drivers.errors import DriverError
from drivers.failures import about
from drivers.tags import TagPlan, check_must_tags, class_tags, plan_update
from drivers.updating import UpdateTarget, answer, halves
from resources.clouds.aws.spec import AwsProviderSpec
from resources.clouds.base import shown_key
from resources.errors import PASSING, ErrorClass
from resources.names import TAG_UID

ALL_ALIKE = PASSING | {ErrorClass.CONFLICT}
"""For a call with several resources such an error says nothing about one of them: separate calls would not help."""
TOO_MANY_TAGS = "TagLimitExceeded"
"""It is no single tag's fault."""
_OPTIONS = (
    ("HttpTokens", "http_tokens"),
    ("HttpPutResponseHopLimit", "http_put_response_hop_limit"),
    ("HttpEndpoint", "http_endpoint"),
    ("InstanceMetadataTags", "instance_metadata_tags"),
)


_BELONGINGS: dict[str, belongings.BelongingKind] = {"volume": "volume", "network-interface": "network interface"}


def hot_update(
    connect: Callable[[], Ec2], request: UpdateMachineRequest, last_applied: Mapping[str, Any]
) -> UpdateMachineResponse:
    """Updates the VM. Idempotent. Without a change for this VM it makes no call, not even a read.

    Raises DriverError of class invalid, before any call, when a must-tag would change; PartialUpdate when some resource
    failed: of the class with the longest wait, with what became of each resource.
    """
    last, goal = parse_spec(dict(last_applied)), parse_spec(request.provider_spec)
    check_must_tags(last, goal, request.machine)
    kinds = [kind for kind, name in RESOURCES if class_tags(last, name) != class_tags(goal, name)]
    if not kinds and _options(last) == _options(goal):
        return UpdateMachineResponse()
    return _Update(connect(), request, last, goal, kinds).run()


def _options(spec: AwsProviderSpec) -> dict[str, Any]:
    """The metadata options that a spec has an opinion on, by EC2's names."""
    given = spec.instance_metadata_options
    return {name: v for name, own in _OPTIONS if given and (v := getattr(given, own)) is not None}


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
        """Kinds whose tags differ between the two specs; the others are not even read."""
        self.errors: list[DriverError] = []
        """Errors that belong to no single resource: reads."""

    def run(self) -> UpdateMachineResponse:
        instance = self._instance()
        vm = UpdateTarget(self.instance_id, "instance", tags_of(instance))
        targets = [vm, *self._belongings(instance)]
        self._plan(targets)
        # Removals first: a resource that carries as many tags as it may has no room for a new one until then.
        for key in _equal(t.plan.remove for t in targets):
            self._call("DeleteTags", [t for t in targets if t.plan.remove == key], [{"Key": k} for k in key])
        for pairs in _equal(tuple(t.plan.set.items()) for t in targets):
            tags = [{"Key": k, "Value": v} for k, v in pairs]
            self._call("CreateTags", [t for t in targets if tuple(t.plan.set.items()) == pairs], tags)
        self._set_options(vm, instance)
        return answer(targets, self.errors)

    # -- reading --------------------------------------------------------------------------------------------------

    def _instance(self) -> Resource:
        found = instances.by_id(self.ec2, self.instance_id)
        instance = instances.the_one([found] if found else [], self.instance_id)
        if instances.state_of(instance) == instances.SHUTTING_DOWN:
            raise DriverError(ErrorClass.NOT_FOUND, f"the VM {self.instance_id} is shutting down")
        owner = tags_of(instance).get(TAG_UID, self.machine.uid)
        if owner != self.machine.uid:
            raise DriverError(
                ErrorClass.CONFLICT,
                f"{self.instance_id} is not updated: its tag {TAG_UID}={owner} says that it belongs to another "
                f"machine, not to {self.machine.name} (uid {self.machine.uid}); correct the tag or the providerID",
            )
        return instance

    def _belongings(self, instance: Resource) -> Iterator[UpdateTarget]:
        """Our own volumes and NICs of the kinds whose tags change. Others attach theirs (a CSI driver, a CNI): those do
        not carry our uid and are left alone."""
        held = {
            "volume": places.volumes(self.last, instance),
            "network-interface": places.network_interfaces(self.last, instance),
        }
        for kind, read in _BELONGINGS.items():
            if kind in self.kinds:
                try:
                    yield from [UpdateTarget(b.id, kind, b.tags) for b in self._owned(read, held[kind])]
                except DriverError as e:
                    self.errors.append(e)

    def _owned(self, kind: belongings.BelongingKind, held: list[str]) -> list[Belonging]:
        """What carries the uid; and what is in a place of the spec and shows no tag at all yet: a launch tags whatever
        it makes, so only the tags are late. Without these, a lagging read would pass for a complete update."""
        mine = belongings.tagged(self.ec2, kind, self.machine)
        missing = sorted(set(held) - {b.id for b in mine})
        late = [b for wanted in missing if (b := belongings.by_id(self.ec2, kind, wanted)) and not b.tags]
        return [*mine, *late]

    # -- planning -------------------------------------------------------------------------------------------------

    def _plan(self, targets: list[UpdateTarget]) -> None:
        resources = dict(RESOURCES)
        for target in targets:
            if target.kind not in self.kinds:
                continue
            try:
                resource = resources[target.kind]
                target.plan = plan_update(self.last, self.goal, self.machine, resource, target.tags)
            except DriverError as e:
                target.errors.append(about(e, [target.id]))

    # -- writing --------------------------------------------------------------------------------------------------

    def _call(self, operation: str, targets: list[UpdateTarget], tags: list[dict[str, str]]) -> None:
        """Makes one call, which EC2 takes as a whole or not at all. Where one resource may be the reason for a refusal,
        each gets a call of its own, so that the others have their change; and where one tag may be, each half of the
        tags, so that the good ones are set and the bad one is named."""
        try:
            self.ec2.call(operation, Resources=[t.id for t in targets], Tags=tags)
        except DriverError as e:
            if len(targets) > 1 and e.error_class not in ALL_ALIKE:
                for target in targets:
                    self._call(operation, [target], tags)
            elif len(tags) > 1 and e.error_class is ErrorClass.INVALID and e.provider_code != TOO_MANY_TAGS:
                for half in halves(tags):
                    self._call(operation, targets, half)
            else:
                self._failed(targets, e, tags)
            return
        verb = "removed" if operation == "DeleteTags" else "set"
        for target in targets:
            target.changed += [f"{verb} {tag['Key']}" for tag in tags]

    def _failed(self, targets: list[UpdateTarget], error: DriverError, tags: list[dict[str, str]]) -> None:
        one = [f"tag {shown_key(tags[0]['Key'])}"] if len(tags) == 1 else []
        failure = about(error, [*(t.id for t in targets), *one])
        for target in targets:
            if error.provider_code in GONE:  # it has vanished since it was read: nothing is left to update
                target.plan = TagPlan()
                target.changed.append("gone meanwhile")
            else:
                target.errors.append(failure)

    def _set_options(self, vm: UpdateTarget, instance: Resource) -> None:
        """Sets only the options that differ. An option that left the spec stays as it is: EC2 has no "as the account
        has it"."""
        last, goal, actual = _options(self.last), _options(self.goal), instance.get("MetadataOptions") or {}
        if last == goal:
            return
        changes = {k: v for k, v in goal.items() if v != actual.get(k) or v != last.get(k)}  # see drivers.tags.believed
        if not changes:
            return
        try:
            self.ec2.call("ModifyInstanceMetadataOptions", InstanceId=vm.id, **changes)
            vm.changed += [f"metadata option {k}={v}" for k, v in changes.items()]
        except DriverError as e:
            vm.errors.append(about(e, [vm.id]))


def _equal(changes: Iterable[Any]) -> list[Any]:
    """Each distinct change, once, in the order of the resources."""
    return list(dict.fromkeys(c for c in changes if c))
