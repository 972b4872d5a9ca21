"""One machine's creation and end, activity by activity: the real AWS driver on the simulated EC2, a simulated API
server, no Temporal server."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from deedkit import Deeds, ref
from driver_clouds import AwsCloud, Given, calls, mutating
from kube_wire import NODES
from kube_world import SECRETS, World

from activities.cloud.machine import MachineActivities
from activities.kube.tokens import token_id
from planners.machine.creation import token_of
from resources.calls.cloud import CreateInput, CreateOutput
from resources.calls.machine import MachineRef, Target

USER_DATA = "#cloud-config\n# <<BOOTSTRAP_TOKEN>> of <<MACHINE_NAME>>\n"


@dataclass
class OneMachine:
    deeds: Deeds
    given: Given
    secret: Path
    """The folder that holds the class's Secret."""

    @property
    def cloud(self) -> AwsCloud:
        return self.deeds.cloud

    @property
    def world(self) -> World:
        return self.deeds.world

    @property
    def ref(self) -> MachineRef:
        return ref(self.given)

    def named(self, name: str) -> OneMachine:
        """The same machine under another name."""
        identity = self.given.machine.model_copy(update={"name": name})
        return OneMachine(self.deeds, Given(self.cloud, identity, self.given.spec), self.secret)

    def target(self, number: int = 1) -> Target:
        target = self.deeds.target(self.given)
        return target.model_copy(update={"token": token_of(self.given.machine.uid, number)})

    async def create(self, number: int = 1, started: datetime | None = None, **more: Any) -> CreateOutput:
        """Makes one try of attempt `number`; `more` of its input."""
        now = datetime.now(UTC)
        input = CreateInput(
            target=self.target(number),
            attempt=number,
            started=started or now,
            deadline=now + timedelta(minutes=20),
            **more,
        )
        return await self.deeds.attempt(MachineActivities(self.deeds.deps).create_machine, input)

    def launches(self) -> int:
        """Calls that ask for a VM."""
        return len(calls(self.cloud, "RunInstances"))

    def changes(self) -> list[str]:
        return mutating(self.cloud)

    def living(self) -> list[str]:
        return self.cloud.living(self.given.machine.uid)

    async def nodes(self) -> list[str]:
        return sorted(n["metadata"]["name"] for n in (await self.world.kube.get(NODES))["items"])

    def token_path(self, number: int = 1) -> str:
        return f"{SECRETS}/bootstrap-token-{token_id(self.given.machine.uid, number)}"


def one_machine(deeds: Deeds, root: Path) -> OneMachine:
    secret = root / "secrets" / "default" / "credentials"
    (secret / "userData").write_text(USER_DATA)
    identity = deeds.given().machine.model_copy(update={"name": "m-1", "uid": str(uuid.uuid4())})
    return OneMachine(deeds, Given(deeds.cloud, identity, deeds.cloud.spec()), secret)


def instance(provider_id: str) -> str:
    return provider_id.rpartition("/")[2]
