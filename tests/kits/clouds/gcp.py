"""Google Cloud for driver tests: its simulator in a thread, the driver, and what the contract must know of it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from google.auth.crypt import _cryptography_rsa
from pydantic import SecretStr
from simulated.support import InALoop, Patient, served

from drivers.base import DriverSettings, Evidence, load_driver
from resources.clouds.gcp.names import LABEL_RULES
from resources.errors import ErrorClass
from resources.names import TAG_UID
from simulator.clouds.gce import Gce, World
from simulator.frame import Frame, Lag

T = TypeVar("T")
KEY_UID = LABEL_RULES.key(TAG_UID)
ONE_NAME = "a VM is named like its machine, and no name is taken twice in a zone"
NO_LAG = "a VM is found by its name, and its labels are part of it: nothing lags behind"

# To check a private key takes a twentieth of a second, and each driver that knows nothing of the others reads its own.
_signer = _cryptography_rsa.RSASigner
_signer.from_string = functools.cache(_signer.from_string)


@dataclass
class GcpCloud(InALoop):
    frame: Frame
    gce: Gce
    loop: asyncio.AbstractEventLoop
    endpoint: str
    provider: str = "GCP"
    create: str = "instances.insert"
    creation: tuple[str, ...] = ("instances.insert",)
    tagging: str = "instances.setLabels"
    whose: str = "projects.get"
    hot: ClassVar[dict[str, Any]] = {"vmTags": {"cost": "b"}}
    wrong: ClassVar[dict[str, Any]] = {"machineType": 7}
    codes: ClassVar[Mapping[ErrorClass, str]] = {
        ErrorClass.CAPACITY: "ZONE_RESOURCE_POOL_EXHAUSTED",
        ErrorClass.QUOTA: "QUOTA_EXCEEDED",
        ErrorClass.THROTTLED: "rateLimitExceeded",
        ErrorClass.AUTH: "forbidden",
        ErrorClass.NOT_FOUND: "notFound",
        ErrorClass.CONFLICT: "resourceInUseByAnotherResource",
        ErrorClass.INVALID: "invalid",
        ErrorClass.TRANSIENT: "backendError",
        ErrorClass.UNKNOWN: "somethingQuiteNew",
    }
    login: str = ""
    listings: int = 1
    harmless: frozenset[str] = frozenset()
    ended: Evidence = Evidence.TERMINATED
    refuses: ClassVar[Mapping[str, str]] = {
        "test_two_living_vms_of_one_machine_are_a_conflict_that_names_both": ONE_NAME,
        "test_each_living_vm_of_the_name_is_told_of": ONE_NAME,
        "test_a_vm_is_found_by_its_token_while_its_tags_lag": NO_LAG,
    }

    def __post_init__(self) -> None:
        self.secret, self.other_secret = (key_of(n, self.endpoint) for n in range(2))
        self.account, self.other_account = World().projects
        self.wrong_secret = {"serviceAccountJSON": SecretStr(unknown_key(self.endpoint))}
        self.driver = self.driver_with(DriverSettings(endpoint=self.endpoint))
        self.empty = self.do(self.gce.dump)

    def driver_with(self, settings: DriverSettings) -> Any:
        return Patient(load_driver("GCP", settings.model_copy(update={"endpoint": self.endpoint})))

    def spec(self, **changes: Any) -> dict[str, Any]:
        return {k: v for k, v in {**SPEC, **changes}.items() if v is not None}

    def living(self, uid: str) -> list[str]:
        return self.left(uid).get("instances", [])

    def left(self, uid: str) -> dict[str, list[str]]:
        """Names of what is there and carries the uid, by kind."""

        def look() -> dict[str, list[str]]:
            self.gce.settle()
            instances = [i for i in self.gce._instances.records.values() if i.gone_at is None]
            kinds: dict[str, list[Any]] = {"instances": instances, "disks": [*self.gce._disks.records.values()]}
            named = {k: [t.name for t in found if t.labels.value.get(KEY_UID) == uid] for k, found in kinds.items()}
            return {kind: names for kind, names in named.items() if names}

        return self.do(look)

    def set_delays(self, boot: float, terminate: float) -> None:
        self.gce.settings.boot_delay, self.gce.settings.terminate_delay = boot, terminate

    def fast_forward(self) -> None:
        self.do(self.gce.fast_forward)

    def set_page(self, monkeypatch: Any, size: int) -> None:
        monkeypatch.setattr("drivers.gcp.calls.PAGE", size)

    def reset(self) -> None:
        def work() -> None:
            self.frame.clear_faults()
            self.frame.reset_journal()
            self.frame.lag = Lag()
            self.gce.load(self.empty)
            self.gce.settings.insert_delay = self.gce.settings.change_delay = 0.02
            self.set_delays(0.0, 0.0)

        self.do(work)


IMAGE = "projects/debian-cloud/global/images/family/debian-12"
SPEC: dict[str, Any] = {
    "region": "europe-west1",
    "zone": "europe-west1-b",
    "machineType": "n2-standard-2",
    "disks": [{"boot": True, "type": "pd-ssd", "sizeGb": 20, "image": IMAGE}],
    "networkInterfaces": [{"network": "nodes", "subnetwork": "nodes", "disableExternalIP": True}],
    "tags": ["kubernetes-io-cluster-shoot--test--one", "kubernetes-io-role-node"],
}


def key_of(account: int, endpoint: str) -> dict[str, SecretStr]:
    """The Secret of one of the simulated service accounts."""
    return {"serviceAccountJSON": SecretStr(World().service_accounts[account].key_file(f"{endpoint}/token"))}


def unknown_key(endpoint: str) -> str:
    """The key file of a service account whose key Google does not know."""
    first, second = World().service_accounts
    return first.model_copy(update={"private_key": second.private_key, "key_id": "canary"}).key_file(
        f"{endpoint}/token"
    )


@contextmanager
def gcp() -> Iterator[GcpCloud]:
    frame = Frame()
    with served(lambda: Gce(frame)) as (gce, loop, endpoint):
        yield GcpCloud(frame, gce, loop, endpoint)
