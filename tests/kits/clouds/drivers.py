"""The clouds that the driver contract runs on: a simulator in a thread of its own, the driver, and what differs.

A new driver joins the contract suite by one entry in CLOUDS.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import fakecloud.driver as fake_driver
from fakecloud import FAKE
from fakecloud.api import FakeApi
from pydantic import SecretStr
from simulated.support import InALoop, leftovers, served

from clouds.azure import azure
from clouds.gcp import gcp
from drivers.base import (
    CreateMachineRequest,
    DeleteMachineRequest,
    DeleteMachineResponse,
    Driver,
    DriverSettings,
    Evidence,
    GetAccountRequest,
    GetMachineStatusRequest,
    Identity,
    ListMachinesRequest,
    UpdateMachineRequest,
    load_driver,
)
from drivers.errors import DriverError
from resources.clouds import PROVIDERS
from resources.errors import ErrorClass
from simulator.clouds.ec2 import Ec2, World
from simulator.clouds.ec2.auth import AccessKey
from simulator.frame import Call, FaultRule, Frame, Lag

T = TypeVar("T")


class Cloud(Protocol):
    """A running simulator with a driver connected to it."""

    provider: str
    endpoint: str | None
    frame: Frame
    driver: Driver
    create: str
    """The operation that makes a VM."""
    creation: tuple[str, ...]
    """The changing calls of a creation."""
    tagging: str
    """The operation that sets tags."""
    hot: dict[str, Any]
    """A change of an updatable field."""
    wrong: dict[str, Any]
    """A change that is refused."""
    codes: Mapping[ErrorClass, str]
    """For each class, a code that the create operation may answer."""
    secret: dict[str, SecretStr]
    account: str
    """The account that `secret` opens."""
    other_secret: dict[str, SecretStr]
    other_account: str
    """The account that `other_secret` opens."""
    whose: str
    """The operation that tells whose the credentials are."""
    wrong_secret: dict[str, SecretStr]
    refuses: Mapping[str, str]
    """Rows of the contract that cannot be on this cloud, and why."""
    login: str
    """The operation by which credentials become a token, which no test counts; "" where there is none."""
    listings: int
    """How many kinds of resources a listing of machines has, each with as many rows as there are machines."""
    harmless: frozenset[str]
    """Keys of `secret` whose values are no secrets."""
    ended: Evidence
    """What a deletion ends with: `terminated` where the cloud shows a VM for a while after its end."""

    def driver_with(self, settings: DriverSettings) -> Driver: ...
    def spec(self, **changes: Any) -> dict[str, Any]: ...
    def do(self, work: Callable[[], T]) -> T: ...
    def living(self, uid: str) -> list[str]: ...
    def left(self, uid: str) -> dict[str, list[str]]: ...
    def set_delays(self, boot: float, terminate: float) -> None: ...
    def fast_forward(self) -> None:
        """Whatever has begun comes to its end."""

    def set_page(self, monkeypatch: Any, size: int) -> None: ...
    def reset(self) -> None: ...


@dataclass
class AwsCloud(InALoop):
    frame: Frame
    ec2: Ec2
    loop: asyncio.AbstractEventLoop
    endpoint: str
    provider: str = "AWS"
    create: str = "RunInstances"
    creation: tuple[str, ...] = ("RunInstances",)
    tagging: str = "CreateTags"
    hot: dict[str, Any] = field(default_factory=lambda: {"vmTags": {"cost": "b"}})
    wrong: dict[str, Any] = field(default_factory=lambda: {"machineType": 7})
    codes: Mapping[ErrorClass, str] = field(
        default_factory=lambda: {
            ErrorClass.CAPACITY: "InsufficientInstanceCapacity",
            ErrorClass.QUOTA: "VcpuLimitExceeded",
            ErrorClass.THROTTLED: "RequestLimitExceeded",
            ErrorClass.AUTH: "UnauthorizedOperation",
            ErrorClass.NOT_FOUND: "InvalidSubnetID.NotFound",
            ErrorClass.CONFLICT: "IncorrectState",
            ErrorClass.INVALID: "InvalidParameterCombination",
            ErrorClass.TRANSIENT: "InternalError",
            ErrorClass.UNKNOWN: "SomethingQuiteNew",
        }
    )
    refuses: Mapping[str, str] = field(default_factory=dict)
    login: str = ""
    listings: int = 1
    harmless: frozenset[str] = frozenset()
    ended: Evidence = Evidence.TERMINATED

    def __post_init__(self) -> None:
        ((key, secret),) = World().access_keys.items()
        self.secret = key_pair(key, secret)
        ((self.other_account, keys),) = World().other_accounts.items()
        (other,) = keys.items()
        self.account, self.other_secret, self.whose = World().account_id, key_pair(*other), "GetCallerIdentity"
        self.wrong_secret = key_pair(key, "wrong-canary-key")
        self.driver = self.driver_with(DriverSettings(endpoint=self.endpoint))
        self.empty = self.do(self.ec2.dump)

    def driver_with(self, settings: DriverSettings) -> Driver:
        return load_driver("AWS", settings.model_copy(update={"endpoint": self.endpoint}))

    def spec(self, **changes: Any) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "ami": "ami-0a1b2c3d4e5f60001",
            "region": "eu-west-1",
            "machineType": "m5.large",
            "blockDevices": [{"ebs": {"volumeSize": 20, "volumeType": "gp3"}}],
            "networkInterfaces": [
                {"subnetID": "subnet-0a1b2c3d4e5f60001", "securityGroupIDs": ["sg-0a1b2c3d4e5f60001"]}
            ],
            "tags": {"kubernetes.io/cluster/shoot--test--one": "1", "kubernetes.io/role/node": "1"},
        }
        return {k: v for k, v in {**plain, **changes}.items() if v is not None}

    def living(self, uid: str) -> list[str]:
        return self.left(uid).get("instances", [])

    def left(self, uid: str) -> dict[str, list[str]]:
        return leftovers(self.do(self.ec2.resources), "hostler.io/uid", uid)

    def set_delays(self, boot: float, terminate: float) -> None:
        self.ec2.settings.boot_delay, self.ec2.settings.terminate_delay = boot, terminate

    def fast_forward(self) -> None:
        self.do(self.ec2.fast_forward)

    def set_page(self, monkeypatch: Any, size: int) -> None:
        monkeypatch.setattr("drivers.aws.calls.PAGE", size)

    def reset(self) -> None:
        def work() -> None:
            self.frame.clear_faults()
            self.frame.reset_journal()
            self.frame.lag = Lag()
            self.ec2.load(self.empty)
            self.set_delays(0.0, 0.0)
            self.ec2.settings.terminated_visible = 3600.0
            self.ec2.authenticator.longest_session = None

        self.do(work)

    def rotate(self, key: str) -> dict[str, SecretStr]:
        """Replaces the account's key pair with another; the old one is deleted."""

        def work() -> None:
            keys = self.ec2.authenticator.access_keys
            keys[key] = AccessKey(secret=f"secret-of-{key}", account=self.account)
            for old in [k for k, v in keys.items() if v.account == self.account and k != key]:
                del keys[old]

        self.do(work)
        return key_pair(key, f"secret-of-{key}")


def key_pair(key: str, secret: str) -> dict[str, SecretStr]:
    return {"accessKeyID": SecretStr(key), "secretAccessKey": SecretStr(secret)}


@contextmanager
def aws() -> Iterator[AwsCloud]:
    frame = Frame()
    with served(lambda: Ec2(frame)) as (ec2, loop, endpoint):
        yield AwsCloud(frame, ec2, loop, endpoint)


@dataclass
class FakeCloud:
    """The made-up one of tests/fakecloud."""

    frame: Frame
    api: FakeApi
    endpoint: str | None = None
    provider: str = FAKE.name
    create: str = "CreateVm"
    creation: tuple[str, ...] = ("CreateNic", "CreateVm")
    tagging: str = "SetLabels"
    whose: str = "Whoami"
    account: str = "one"
    other_account: str = "two"
    refuses: Mapping[str, str] = field(default_factory=dict)
    login: str = ""
    listings: int = 1
    harmless: frozenset[str] = frozenset()
    ended: Evidence = Evidence.TERMINATED

    def __post_init__(self) -> None:
        self.hot: dict[str, Any] = {"disks": [{"sizeGb": 20, "labels": {"cost": "b"}}]}
        self.wrong: dict[str, Any] = {"flavour": 7}
        self.codes = {cls: code for code, cls in reversed(fake_driver.CODES.items())}
        self.codes[ErrorClass.UNKNOWN] = "SomethingQuiteNew"
        self.secret, self.other_secret, self.wrong_secret = (
            {"token": SecretStr(token)} for token in ("token-of-the-one", "token-of-the-other", "wrong-canary-token")
        )
        fake_driver.FakeDriver.cloud = self.api
        self.driver = self.driver_with(DriverSettings())

    def driver_with(self, settings: DriverSettings) -> Driver:
        return load_driver(FAKE.name, settings)

    def spec(self, **changes: Any) -> dict[str, Any]:
        must = {"kubernetes.io/cluster/shoot--test--one": "1", "kubernetes.io/role/node": "1"}
        plain = {"image": "image-1", "flavour": "small", "labels": must, "disks": [{"sizeGb": 20}]}
        return {k: v for k, v in {**plain, **changes}.items() if v is not None}

    def do(self, work: Callable[[], T]) -> T:
        return work()

    def living(self, uid: str) -> list[str]:
        return self.left(uid).get("vm", [])

    def left(self, uid: str) -> dict[str, list[str]]:
        kinds: dict[str, list[str]] = {}
        for thing in self.api.things.values():
            its = uid in thing.id or thing.labels.get(FAKE.spec.TAGS.key("hostler.io/uid")) == uid
            if its and thing.state != "terminated":
                kinds.setdefault(thing.kind, []).append(thing.id)
        return kinds

    def set_delays(self, boot: float, terminate: float) -> None:
        self.api.boot, self.api.terminate = boot, terminate

    def fast_forward(self) -> None:
        for thing in self.api.things.values():
            thing.boots, thing.ends = 0.0, thing.ends and time.time()

    def set_page(self, monkeypatch: Any, size: int) -> None:
        monkeypatch.setattr(fake_driver.FakeDriver, "page", size)

    def reset(self) -> None:
        self.frame.clear_faults()
        self.frame.reset_journal()
        self.frame.lag = Lag()
        self.api.things.clear()
        self.api.slow = False
        self.set_delays(0.0, 0.0)


@contextmanager
def fake() -> Iterator[FakeCloud]:
    frame = Frame()
    with registered():
        accounts = {"token-of-the-one": "one", "token-of-the-other": "two"}
        yield FakeCloud(frame, FakeApi(frame, accounts))


@contextmanager
def registered() -> Iterator[None]:
    """The made-up cloud is one of those that Hostler knows."""
    before = dict(PROVIDERS)
    PROVIDERS[FAKE.name] = FAKE
    try:
        yield
    finally:
        PROVIDERS.clear()
        PROVIDERS.update(before)


CLOUDS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "AWS": aws,
    "Azure": azure,
    "GCP": gcp,
    FAKE.name: fake,
}


# -- what every driver test says -------------------------------------------------------------------------------------


@dataclass
class Given:
    """One machine of a test: its requests, with everything about it the same from call to call."""

    cloud: Cloud
    machine: Identity
    spec: dict[str, Any]
    token: str = field(default_factory=lambda: str(uuid.uuid4()))
    user_data: str = "#cloud-config\n"

    @property
    def common(self) -> dict[str, Any]:
        return {"machine": self.machine, "provider_spec": self.spec, "secret": self.cloud.secret}

    def creation(self, **changes: Any) -> CreateMachineRequest:
        plain = {**self.common, "user_data": SecretStr(self.user_data), "token": self.token}
        return CreateMachineRequest(**{**plain, **changes})

    def status(self, provider_id: str | None = None, **changes: Any) -> GetMachineStatusRequest:
        plain = {**self.common, "provider_id": provider_id, "token": self.token}
        return GetMachineStatusRequest(**{**plain, **changes})

    def update(self, provider_id: str, **changes: Any) -> UpdateMachineRequest:
        return UpdateMachineRequest(**{**self.common, "provider_id": provider_id, **changes})

    def deletion(self, provider_id: str | None = None, **changes: Any) -> DeleteMachineRequest:
        plain = {**self.common, "provider_id": provider_id, "token": self.token}
        return DeleteMachineRequest(**{**plain, **changes})

    def whose(self, **changes: Any) -> GetAccountRequest:
        plain = {"provider_spec": self.spec, "secret": self.cloud.secret}
        return GetAccountRequest(**{**plain, **changes})

    def listing(self, **changes: Any) -> ListMachinesRequest:
        plain = {"cluster": self.machine.cluster, "provider_spec": self.spec, "secret": self.cloud.secret}
        return ListMachinesRequest(**{**plain, **changes})


def machine(cloud: Cloud, name: str = "", cluster: str = "", **spec: Any) -> Given:
    """A machine that no other test knows: where a VM is named like its machine, an account has each name once."""
    own = uuid.uuid4().hex[:8]
    identity = Identity(cluster=cluster or f"c-{own}", name=name or f"worker-{own}", uid=str(uuid.uuid4()))
    return Given(cloud, identity, cloud.spec(**spec))


def fault(cloud: Cloud, operation: str, code: str | None = None, **rule: Any) -> FaultRule:
    struck = FaultRule(operation=operation, code=code, **rule)
    cloud.do(lambda: cloud.frame.faults.append(struck))
    return struck


def mutating(cloud: Cloud, since: int = 0) -> list[str]:
    """The changing calls in order."""
    return [c.operation for c in calls(cloud, since=since) if c.mutating]


def mark(cloud: Cloud) -> int:
    """The number of the last call so far."""
    return max((c.n for c in cloud.frame.calls()), default=0)


def calls(cloud: Cloud, operation: str = "*", since: int = 0) -> list[Call]:
    return [c for c in cloud.frame.calls(operation=operation, since=since) if c.operation != cloud.login]


def until(condition: Callable[[], T], seconds: float = 10.0) -> T:
    """Asks again until the answer is true, and returns it."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return value


def delete_until_gone(given: Given, provider_id: str | None = None) -> DeleteMachineResponse:
    """Pass after pass, as a workflow does; the last answer."""
    answers: list[DeleteMachineResponse] = []

    def gone() -> bool:
        answers.append(given.cloud.driver.delete_machine(given.deletion(provider_id)))
        return answers[-1].evidence is not Evidence.PRESENT

    until(gone)
    return answers[-1]


MOST = 40
"""Passes that anything may take."""


def again_and_again(
    cloud: Cloud, tick: Callable[[], None], do: Callable[[Driver], Any], done: Callable[[Any], bool]
) -> None:
    """Passes at a cloud whose creations take several, each by a worker of its own, until it is done; an error is waited
    for, and no worse than one that a workflow repeats. `tick` lets time go on between them."""
    for _ in range(MOST):
        cloud.do(tick)
        try:
            if done(do(cloud.driver_with(DriverSettings()).driver)):
                return
        except DriverError as e:
            if e.error_class not in (ErrorClass.TRANSIENT, ErrorClass.THROTTLED, ErrorClass.CONFLICT):
                raise
    raise AssertionError("it never ended")
