"""Azure for driver tests: its simulator in a thread, the driver, and what the contract must know of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from pydantic import SecretStr
from simulated.support import InALoop, Patient, leftovers, served

from drivers.base import DriverSettings, Evidence, GetAccountRequest, load_driver
from resources.clouds.azure.spec import TAG_RULES
from resources.errors import ErrorClass
from resources.names import TAG_UID
from simulator.clouds.arm import Arm, Delays, World
from simulator.clouds.arm.server import TOKEN
from simulator.frame import Frame, Lag

T = TypeVar("T")
KEY_UID = TAG_RULES.key(TAG_UID)
NO_TOKENS = "Azure knows no tokens: the VM of the token's name is the token's, and one that has ended is forgotten"
READS_BACK = "a VM is answered once Azure shows that it has made it"


@dataclass
class AzureCloud(InALoop):
    frame: Frame
    arm: Arm
    loop: asyncio.AbstractEventLoop
    endpoint: str
    provider: str = "Azure"
    create: str = "VirtualMachines_CreateOrUpdate"
    creation: tuple[str, ...] = ("NetworkInterfaces_CreateOrUpdate", "VirtualMachines_CreateOrUpdate")
    tagging: str = "Tags_UpdateAtScope"
    whose: str = "ResourceGroups_Get"
    login: str = TOKEN
    listings: int = 3
    """VMs, network interfaces and disks are listed together."""
    harmless: frozenset[str] = frozenset({"subscriptionID", "tenantID", "clientID"})
    ended: Evidence = Evidence.NOT_FOUND
    hot: ClassVar[dict[str, Any]] = {"vmTags": {"cost": "b"}}
    wrong: ClassVar[dict[str, Any]] = {"location": 7}
    codes: ClassVar[Mapping[ErrorClass, str]] = {
        ErrorClass.CAPACITY: "SkuNotAvailable",
        ErrorClass.QUOTA: "QuotaExceeded",
        ErrorClass.THROTTLED: "TooManyRequests",
        ErrorClass.AUTH: "AuthorizationFailed",
        ErrorClass.NOT_FOUND: "ParentResourceNotFound",
        ErrorClass.CONFLICT: "AnotherOperationInProgress",
        ErrorClass.INVALID: "InvalidParameter",
        ErrorClass.TRANSIENT: "InternalServerError",
        ErrorClass.UNKNOWN: "SomethingQuiteNew",
    }
    refuses: ClassVar[Mapping[str, str]] = {
        "test_another_request_with_the_same_token_is_a_mismatch": NO_TOKENS,
        "test_the_token_of_a_dead_vm_is_a_mismatch_that_says_so": NO_TOKENS,
        "test_create_needs_no_read_after_the_write": READS_BACK,
    }

    def __post_init__(self) -> None:
        self.secret, self.other_secret = (service_principal(n) for n in range(2))
        self.account, self.other_account = World().subscriptions
        self.wrong_secret = {**self.secret, "clientSecret": SecretStr("wrong-canary-secret")}
        self.driver = self.driver_with(DriverSettings())
        for secret in (self.secret, self.other_secret):
            self.driver.get_account(GetAccountRequest(provider_spec=self.spec(), secret=secret))
        self.empty = self.do(self.arm.dump)  # with the tokens of the driver, which stay

    def driver_with(self, settings: DriverSettings) -> Any:
        return Patient(load_driver("Azure", settings.model_copy(update={"endpoint": self.endpoint})))

    def spec(self, **changes: Any) -> dict[str, Any]:
        return {k: v for k, v in {**azure_spec(), **changes}.items() if v is not None}

    def living(self, uid: str) -> list[str]:
        """The living VMs of an owner, by name as a providerID has it."""
        return [vm.name for vm in self.do(self.arm.machines) if vm.tags.get(KEY_UID) == uid]

    def left(self, uid: str) -> dict[str, list[str]]:
        return leftovers(self.do(self.arm.resources), KEY_UID, uid)

    def set_delays(self, boot: float, terminate: float) -> None:
        self.arm.settings.delays.boot, self.arm.settings.delays.terminate = boot, terminate

    def fast_forward(self) -> None:
        self.do(self.arm.fast_forward)

    def set_page(self, monkeypatch: Any, size: int) -> None:
        monkeypatch.setattr("drivers.azure.calls.PAGE", size)
        monkeypatch.setattr(self.arm.settings, "page", size)

    def reset(self) -> None:
        def work() -> None:
            self.frame.clear_faults()
            self.frame.reset_journal()
            self.frame.lag = Lag()
            self.arm.load(self.empty)
            self.arm.settings.delays = Delays()

        self.do(work)


def azure_spec(**properties: Any) -> dict[str, Any]:
    """A provider spec that fits the simulated world; `properties` are those of the VM."""
    world = World()
    image = world.images[1]
    urn = f"{image.publisher}:{image.offer}:{image.sku}:{image.versions[-1]}"
    vm: dict[str, Any] = {
        "hardwareProfile": {"vmSize": "Standard_D2s_v5"},
        "storageProfile": {"imageReference": {"urn": urn}, "osDisk": {"diskSizeGB": 30}},
        "zone": 1,
    }
    return {
        "location": world.location,
        "resourceGroup": world.groups[0],
        "properties": {**vm, **properties},
        "subnetInfo": {"vnetName": world.networks[0].name, "subnetName": world.networks[0].subnets[0].name},
        "tags": {"kubernetes.io/cluster/shoot--test--one": "1", "kubernetes.io/role/node": "1"},
    }


def service_principal(n: int) -> dict[str, SecretStr]:
    """The Secret of one of the simulated service principals."""
    principal = World().principals[n]
    keys = {
        "subscriptionID": principal.subscriptions[0],
        "tenantID": principal.tenant,
        "clientID": principal.client_id,
        "clientSecret": principal.secret,
    }
    return {key: SecretStr(value) for key, value in keys.items()}


@contextmanager
def azure() -> Iterator[AzureCloud]:
    frame = Frame()
    with served(lambda: Arm(frame)) as (arm, loop, endpoint):
        yield AzureCloud(frame, arm, loop, endpoint)
