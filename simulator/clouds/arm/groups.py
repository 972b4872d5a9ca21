"""Subscriptions and resource groups."""

from __future__ import annotations

from collections.abc import Callable

from simulator.clouds.arm.context import Context
from simulator.clouds.arm.errors import ArmError
from simulator.clouds.arm.identifiers import GROUPS, check_name, group_id, key_of
from simulator.clouds.arm.operations import Operations
from simulator.clouds.arm.resources import ArmResource, check_location, read_tags
from simulator.clouds.arm.wire import Answer, ArmCall, Row


class Group(ArmResource):
    """A resource group; its `id` has no provider."""


class Groups:
    def __init__(self, context: Context, operations: Operations) -> None:
        self._context = context
        self._operations = operations
        self.records: dict[str, Group] = {}
        self.slowest: Callable[[str], float] = lambda key: 0.0
        """Seconds that the slowest of a group's resources takes to go."""

    def seed(self, subscription: str, name: str) -> None:
        id = group_id(subscription, name)
        at = self._context.created().model_copy(update={"lag": 0.0})
        self.records[key_of(id)] = Group(id=id, created=at, location=self._context.world.location)

    def check(self, call: ArmCall) -> Group:
        """The group that a call's path names. Raises ResourceGroupNotFound."""
        group = self.records.get(key_of(group_id(call.subscription, call.group)))
        if group is None:
            raise ArmError("ResourceGroupNotFound", f"Resource group '{call.group}' could not be found.")
        return group

    def check_writable(self, call: ArmCall) -> None:
        """Nothing new is taken by a group that is being deleted."""
        if self.check(call).provisioning == "Deleting":
            raise ArmError(
                "ResourceGroupBeingDeleted",
                f"The resource group '{call.group}' is in deprovisioning state and cannot perform this operation.",
            )

    def row(self, group: Group) -> Row:
        return {
            "id": group.id,
            "name": group.name,
            "type": GROUPS,
            "location": group.location,
            "tags": dict(group.tags),
            "properties": {"provisioningState": group.provisioning},
        }

    # -------------------------------------------------------------------------------------------- operations

    def get_subscription(self, call: ArmCall) -> Answer:
        world, id = self._context.world, call.subscription
        return Answer(
            body={
                "id": f"/subscriptions/{id}",
                "subscriptionId": id,
                "tenantId": world.tenant,
                "displayName": world.subscriptions[id],
                "state": "Enabled",
            }
        )

    def get(self, call: ArmCall) -> Answer:
        return Answer(body=self.row(self.check(call)))

    def check_existence(self, call: ArmCall) -> Answer:
        known = key_of(group_id(call.subscription, call.group)) in self.records
        return Answer(status=204 if known else 404)

    def create_or_update(self, call: ArmCall) -> Answer:
        check_name(GROUPS, call.group)
        id = group_id(call.subscription, call.group)
        group = self.records.get(key_of(id))
        location, tags = check_location(call, self._context, group), read_tags(call.body)
        status = 201 if group is None else 200
        if group is None:
            group = Group(id=id, created=self._context.created(), location=location)
            self.records[group.key] = group
        else:
            self.check_writable(call)
        group.write_tags(tags, self._context.tagged())
        return Answer(status, self.row(group), changed=[group.id])

    def delete(self, call: ArmCall) -> Answer:
        """Deletes a group with everything in it, whatever holds what."""
        group = self.check(call)
        operation = self._operations.going(group.key)
        if operation is None:
            group.provisioning = "Deleting"
            operation = self._operations.begin("delete", group.key, self.slowest(group.key))
        return Answer(202, headers=self._operations.links(operation, call), changed=[group.id])

    def finish_delete(self, key: str) -> None:
        self.records.pop(key, None)
