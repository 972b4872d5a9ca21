"""Each breaks one invariant inside a worker's process, and that invariant's check must turn red."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from invariants import FOREIGN_TAG, USER_KEY
from temporalio import activity

from activities.deps import Deps
from activities.kube import node_path
from activities.machine import MachineActivities
from drivers.base import CreateMachineRequest, DeleteMachineRequest, Driver, UpdateMachineRequest
from drivers.errors import DriverError
from resources.errors import ErrorClass
from resources.messages import DeleteInput, DeleteOutput, DrainInput, DrainOutput
from workflows.entity import Entity


def break_i1() -> None:
    """A create that neither looks first nor keeps its token."""

    async def blind(self: MachineActivities, target: Any) -> None:
        return None

    MachineActivities._find = blind  # type: ignore[method-assign]
    _wrap_driver("create_machine", lambda request: request.model_copy(update={"token": str(uuid.uuid4())}))


def break_i5() -> None:
    """A look that takes an error for death."""
    looked = MachineActivities._look

    async def hasty(self: MachineActivities, target: Any, diagnose: bool = False) -> Any:
        try:
            return await looked(self, target, diagnose)
        except DriverError:
            request = await self.deps.request(DeleteMachineRequest, target, provider_id=target.provider_id)
            await asyncio.to_thread(self.deps.driver(target.provider).delete_machine, request)
            raise

    MachineActivities._look = hasty  # type: ignore[method-assign]


def break_i6() -> None:
    """A delete that believes itself."""

    @activity.defn(name="delete_machine")
    async def trusting(self, input: DeleteInput) -> DeleteOutput:
        return DeleteOutput()

    MachineActivities.delete_machine = trusting  # type: ignore[assignment]


def break_i7() -> None:
    """A clock that is slow. The sandbox would give each workflow a module of its own."""
    os.environ["HOSTLER_WORKER__STRICT_SANDBOX"] = "false"
    ring = Entity._ring

    async def slow(self: Entity, at: datetime, name: str) -> None:
        await ring(self, at + timedelta(seconds=15), name)

    def due(self: Entity, name: str) -> bool:
        from temporalio import workflow

        deadline = self.deadlines.get(name)
        return deadline is not None and deadline + timedelta(seconds=15) <= workflow.now()

    Entity._ring, Entity.due = slow, due  # type: ignore[method-assign]


def break_i8() -> None:
    """An update that tidies up what it does not know."""

    def tidy(request: UpdateMachineRequest) -> UpdateMachineRequest:
        import boto3

        endpoint = _endpoint[0]
        secret = {k: v.get_secret_value() for k, v in request.secret.items()}
        ec2 = boto3.client(
            "ec2",
            endpoint_url=endpoint,
            region_name="eu-west-1",
            aws_access_key_id=secret["providerAccessKeyId"],
            aws_secret_access_key=secret["providerSecretAccessKey"],
        )
        ec2.delete_tags(Resources=[request.provider_id.rsplit("/", 1)[-1]], Tags=[{"Key": FOREIGN_TAG[0]}])
        return request

    _wrap_driver("update_machine", tidy)


def break_i10() -> None:
    """A drain that makes the node its own."""

    # No annotation of self: temporalio takes an annotated one for the input.
    @activity.defn(name="drain_node")
    async def rude(self, input: DrainInput) -> DrainOutput:
        kube = await self.deps.clusters.get(input.machine.cluster)
        await kube.merge_patch(node_path(input.node_name), {"metadata": {"annotations": {USER_KEY: None}}})
        return DrainOutput()

    from activities.drain import DrainActivities

    DrainActivities.drain_node = rude  # type: ignore[assignment]


def break_i11() -> None:
    """A create that talks about what it sent."""

    def talk(request: CreateMachineRequest) -> CreateMachineRequest:
        raise DriverError(ErrorClass.INVALID, f"refused: {request.user_data.get_secret_value()}")

    _wrap_driver("create_machine", talk)


_endpoint: list[str | None] = [None]


def _wrap_driver(method: str, change: Callable[[Any], Any]) -> None:
    real = Deps.driver

    def driver(self: Deps, provider: str) -> Driver:
        inner = real(self, provider)
        _endpoint[0] = self.settings.clouds["aws"].endpoint

        class Wrapped:
            def __getattr__(self, name: str) -> Any:
                attribute = getattr(inner, name)
                return (lambda request: attribute(change(request))) if name == method else attribute

        return Wrapped()  # type: ignore[return-value]

    Deps.driver = driver  # type: ignore[method-assign]


SABOTEURS: dict[str, Callable[[], None]] = {
    "I1": break_i1,
    "I5": break_i5,
    "I6": break_i6,
    "I7": break_i7,
    "I8": break_i8,
    "I10": break_i10,
    "I11": break_i11,
}
