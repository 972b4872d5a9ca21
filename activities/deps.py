"""What activities work with, made once per worker."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import SecretStr
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.common import MetricMeter
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode

from activities.accounts import Blocking, Cloud
from activities.departures import Departures
from activities.kube.client import ApiServers
from activities.metered import MeteredDriver
from activities.places import Places
from activities.secrets import SecretMissing, Secrets
from drivers.base import Driver, DriverSettings, Identity, MachineRequest, Request, load_driver
from resources.calls.machine import Target
from resources.clouds import UnknownScope
from resources.cluster.accounts import Account
from resources.machine.manifest import SecretRef
from resources.machine_config.settings import MachineConfigSettings
from resources.settings import CloudSettings, Settings, SettingsError

M = TypeVar("M", bound=MachineRequest)
R = TypeVar("R", bound=Request)
T = TypeVar("T")


def credentials_of(target: Target) -> SecretRef:
    return target.credentials_secret_ref or target.secret_ref


def _account_key(provider: str, spec: dict[str, Any], ref: SecretRef) -> str:
    try:
        return Account.of(provider, spec, ref, None).key
    except UnknownScope:  # a stale spec, for a VM whose id says where it is
        return f"{provider}//{ref.namespace}/{ref.name}"


class Deps:
    def __init__(self, settings: Settings, client: Client) -> None:
        self.settings = settings
        self.client = client
        self.meter: MetricMeter = (client.service_client.config.runtime or Runtime.default()).metric_meter
        """The client's runtime's meter, so that our metrics stand beside Temporal's own, without labels of an
        activity."""
        self.clusters = ApiServers(settings)
        self.secrets = Secrets(settings, self.clusters)
        self.uses: dict[tuple[str, str, str, str], tuple[str, str]] = {}
        """What this worker has told clusters (announce.py): cluster, class, provider and scope, to the life of the
        cluster's workflow and Account.key."""
        self.admitted: dict[tuple[str, str], tuple[str, float]] = {}
        """Where this worker makes VMs (announce.py): cluster and Account.key to the account that was found right, and
        until when that is believed, by the monotonic clock."""
        self._drivers: dict[str, Driver] = {}
        self._places: dict[str, Places] = {}
        self._departures: dict[str, Departures] = {}
        self._waits = self.meter.create_histogram_timedelta(
            "hostler_driver_call_wait", "How long calls of drivers waited for a place of their account"
        )
        self._installation = settings.installation
        # As many threads as activity slots: with asyncio's few, six hanging calls would hold up every other.
        self._threads = ThreadPoolExecutor(settings.worker.max_concurrent_activities, thread_name_prefix="driver")

    def cloud_settings(self, provider: str) -> CloudSettings:
        return self.settings.clouds.get(provider.lower(), CloudSettings())

    def driver(self, provider: str) -> Driver:
        if provider not in self._drivers:
            cloud = self.cloud_settings(provider)
            driver = load_driver(provider, DriverSettings(endpoint=cloud.endpoint, timeout=cloud.call_timeout))
            self._drivers[provider] = MeteredDriver(provider, driver, self.meter)
        return self._drivers[provider]

    async def installation(self) -> str:
        """Which Hostler this is: from the settings, or else the id of Temporal's namespace, which is asked for once.

        "" where the server does not tell: then no tag says it, and a VM that has none is taken for ours.
        """
        if self._installation is None:
            try:
                found = await self.client.workflow_service.describe_namespace(
                    DescribeNamespaceRequest(namespace=self.client.namespace)
                )
                self._installation = found.namespace_info.id
            except RPCError as e:
                if e.status not in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED):
                    raise
                self._installation = ""
        return self._installation

    async def identity(self, target: Target) -> Identity:
        """The identity of the target's machine. Raises SettingsError for a cluster that this worker does not know."""
        cluster = self.settings.cluster(target.machine.cluster)
        return Identity(
            cluster=target.machine.cluster,
            name=target.machine.name,
            uid=target.machine.uid,
            installation=await self.installation(),
            cluster_full_name=cluster.full_name,
            role=cluster.role,
        )

    def machine_configs(self, cluster: str) -> MachineConfigSettings:
        """How a cluster's machine configs are looked after. Raises SettingsError where they are not: what was started
        by hand touches nothing there."""
        given = self.settings.cluster(cluster).machine_configs
        if not given.enabled:
            raise SettingsError(
                f"machine configs of cluster {cluster} are off in this worker's settings: set "
                f"clusters.{cluster}.machineConfigs.enabled to true, or let whoever started their workflow end it"
            )
        return given

    async def credentials(self, provider: str, ref: SecretRef) -> Mapping[str, SecretStr]:
        """The Secret's credentials, or else the account's default. Raises SecretMissing when neither can be had."""
        try:
            return (await self.secrets.get(ref)).values
        except SecretMissing:
            default = self.secrets.account_default(provider)
            if default is None:
                raise
            return default

    async def credentials_for(self, target: Target) -> Mapping[str, SecretStr]:
        return await self.credentials(target.provider, credentials_of(target))

    def departures(self, target: Target) -> Departures:
        """The VMs on their way out of the account that the target's VM is in."""
        account = _account_key(target.provider, target.provider_spec, credentials_of(target))
        return self._departures.setdefault(account, Departures())

    def cloud(self, target: Target) -> Cloud:
        """Makes calls whose "not found" is about the account that the target's VM was made in, and no other."""
        ref = credentials_of(target)
        return Cloud(
            self.driver(target.provider),
            self.caller(target.provider, target.provider_spec, ref),
            ref,
            target.account_id,
            target.provider_id or "",
        )

    async def call(self, method: Callable[[M], T], kind: type[M], target: Target, **fields: Any) -> T:
        """Makes a call about the target, with its credentials. Raises DriverError, and WrongAccount instead of "not
        found" anywhere but in the account that its VM was made in."""
        return await self.cloud(target).call(method, lambda: self.request(kind, target, **fields))

    async def request(self, kind: type[M], target: Target, **fields: Any) -> M:
        """A driver request about the target, with its credentials."""
        return kind(
            machine=await self.identity(target),
            provider_spec=target.provider_spec,
            secret=await self.credentials_for(target),
            **fields,
        )

    def caller(self, provider: str, spec: dict[str, Any], ref: SecretRef) -> Blocking:
        """Makes a driver's calls with this Secret in this place, each in a thread, and only so many at a time
        (places.py).

        The driver's own timeout bounds them, so that no thread is left behind for ever.
        """
        account = _account_key(provider, spec, ref)
        if account not in self._places:
            cloud = self.cloud_settings(provider)
            quarter = max(1, self.settings.worker.max_concurrent_activities // 4)
            self._places[account] = Places(account, cloud.calls_at_once_per_account or quarter)
        places, labels = self._places[account], {"provider": provider, "account": account}

        async def blocking(call: Callable[[R], T], request: R) -> T:
            loop, asked = asyncio.get_running_loop(), time.monotonic()
            try:
                began = await places.enter()
            finally:
                self._waits.record(timedelta(seconds=time.monotonic() - asked), labels)

            def over(done: Future[T]) -> None:
                """Runs when the call ends, not when its activity is cancelled: the thread goes on, and the cloud is
                called all the same."""
                with contextlib.suppress(RuntimeError):  # the worker has ended meanwhile
                    loop.call_soon_threadsafe(places.leave, began, done)

            under_way = self._threads.submit(call, request)
            under_way.add_done_callback(over)
            return await asyncio.wrap_future(under_way)

        return blocking

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self.clusters.close()
