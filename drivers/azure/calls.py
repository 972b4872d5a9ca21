"""Calls to Azure Resource Manager: clients per credentials, no retries and no polling of their own, every failure a
DriverError."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from azure.core.exceptions import AzureError, ResponseNotReadError
from azure.core.paging import ItemPaged
from azure.core.polling import LROPoller
from azure.core.rest import HttpRequest
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.network import NetworkManagementClient
from pydantic import SecretStr

from drivers.azure.credentials import Credentials, from_secret
from drivers.azure.failures import translate
from drivers.azure.login import credential_of
from drivers.azure.places import Place
from drivers.base import DriverSettings
from drivers.errors import DriverError
from drivers.sessions import MAX_SESSIONS, AccountSession, Remembered, check_endpoint
from resources.clouds.azure.spec import Realm
from resources.errors import ErrorClass

REFUSED = frozenset(
    {"401", "AuthenticationFailed", "ExpiredAuthenticationToken", "InvalidAuthenticationToken", "Unauthorized"}
)
"""Codes that say that the token is not valid (any longer), rather than that it does not allow something."""
PAGE = 1000
"""Rows of a page of the resource graph, and its limit. How long the pages of other listings are, Azure decides."""

Resource = dict[str, Any]
"""A VM, a network interface, …, as Azure describes it."""

_SDK = {
    "VirtualMachines_Get": ("compute", "virtual_machines", "get"),
    "VirtualMachines_List": ("compute", "virtual_machines", "list"),
    "VirtualMachines_CreateOrUpdate": ("compute", "virtual_machines", "begin_create_or_update"),
    "VirtualMachines_Delete": ("compute", "virtual_machines", "begin_delete"),
    "VirtualMachineImages_Get": ("compute", "virtual_machine_images", "get"),
    "Disks_Get": ("compute", "disks", "get"),
    "Disks_CreateOrUpdate": ("compute", "disks", "begin_create_or_update"),
    "Disks_Delete": ("compute", "disks", "begin_delete"),
    "NetworkInterfaces_Get": ("network", "network_interfaces", "get"),
    "NetworkInterfaces_CreateOrUpdate": ("network", "network_interfaces", "begin_create_or_update"),
    "NetworkInterfaces_Delete": ("network", "network_interfaces", "begin_delete"),
    "Subnets_Get": ("network", "subnets", "get"),
}
"""Azure's names of operations, as in its API reference: the SDK's client, group and method."""
RESOURCES_API = "2021-04-01"
SUBSCRIPTIONS_API = "2022-12-01"
GRAPH_API = "2022-10-01"


@dataclass(frozen=True)
class ArmConnection:
    """Clients of one subscription with the credentials as they are now. A new connection has read them again."""

    compute: ComputeManagementClient
    network: NetworkManagementClient
    endpoint: str
    options: Mapping[str, Any]
    """What every call is given."""


class ArmSession(AccountSession[ArmConnection]):
    """One set of credentials, which open one subscription."""

    REFUSED = REFUSED
    FAILURES = (AzureError, ResponseNotReadError, OSError, ValueError)

    def __init__(self, connect: Callable[[], ArmConnection], subscription: str, hidden: Sequence[str]) -> None:
        super().__init__(connect, hidden=hidden)
        self.subscription = subscription
        self.endpoint = self._connection.endpoint
        self.proven = False
        """Azure has taken the credentials for this subscription."""

    def translated(self, operation: str, error: Exception, hide: Sequence[str]) -> DriverError:
        return translate(operation, error, hide)


class Arm:
    """The API as it concerns one resource group."""

    def __init__(self, session: ArmSession, place: Place) -> None:
        self.session = session
        self.location = place.location
        self.group = place.group

    @property
    def subscription(self) -> str:
        return self.session.subscription

    @property
    def endpoint(self) -> str:
        return self.session.endpoint

    def call(self, operation: str, *path: Any, hide: Sequence[str] = (), **parameters: Any) -> Any:
        """One call of the SDK: the resource in Azure's words, or a list of them from all pages. A change that goes on
        in Azure is not waited for. Raises DriverError."""

        def ask(connection: ArmConnection) -> Any:
            client, group, method = _SDK[operation]
            begins = {"polling": False} if method.startswith("begin_") else {}
            function = getattr(getattr(getattr(connection, client), group), method)
            answer = function(*path, **parameters, **begins, **connection.options)
            if isinstance(answer, LROPoller):
                answer = answer.result()
            if isinstance(answer, ItemPaged):
                return [item.as_dict() for item in answer]
            return {} if answer is None else answer.as_dict()

        return self.session.ask(operation, ask, hide)

    def found(self, operation: str, *path: str, **parameters: Any) -> Resource | None:
        """One read; None where there is no such resource."""
        try:
            return dict(self.call(operation, *path, **parameters))
        except DriverError as e:
            if e.error_class is ErrorClass.NOT_FOUND:
                return None
            raise

    def rest(self, operation: str, method: str, path: str, api: str, body: Any = None, **query: str) -> Resource:
        """One call for which this SDK has no method. Raises DriverError."""
        wanted = {"api-version": api, **{f"${k}": v for k, v in query.items()}}
        return self._send(operation, HttpRequest(method, quote(path, safe="/"), params=wanted, json=body))[1]

    def poll(self, address: str) -> tuple[int, Resource]:
        """HTTP's status, and what stands at the address of an operation. Raises DriverError."""
        return self._send("Operations_Get", HttpRequest("GET", address))

    def _send(self, operation: str, request: HttpRequest) -> tuple[int, Resource]:
        def ask(connection: ArmConnection) -> tuple[int, Resource]:
            response = connection.compute.send_request(request, **connection.options)
            response.raise_for_status()
            return response.status_code, dict(response.json()) if response.content else {}

        return self.session.ask(operation, ask)

    def resources(self, condition: str) -> list[Resource]:
        """What there is in the resource group, whatever it is, on all pages; none where there is no such group."""
        path = f"/subscriptions/{self.subscription}/resourceGroups/{self.group}/resources"
        try:
            page = self.rest(
                "Resources_ListByResourceGroup",
                "GET",
                path,
                RESOURCES_API,
                filter=condition,
                expand="provisioningState",
            )
            found = list(page.get("value") or ())
            while more := page.get("nextLink"):
                _, page = self._send("Resources_ListByResourceGroup", HttpRequest("GET", more))
                found += page.get("value") or ()
        except DriverError as e:
            if e.provider_code != "ResourceGroupNotFound":
                raise
            return []
        return found

    def graph(self, query: str) -> Iterator[Resource]:
        """The rows of the resource graph, on all pages."""
        more: dict[str, str] = {}
        while True:
            options = {"resultFormat": "objectArray", "$top": PAGE, **more}
            body = {"subscriptions": [self.subscription], "query": query, "options": options}
            path = "/providers/Microsoft.ResourceGraph/resources"
            page = self.rest("ResourceGraph_Resources", "POST", path, GRAPH_API, body)
            yield from page.get("data") or ()
            if not page.get("$skipToken"):
                return
            more = {"$skipToken": page["$skipToken"]}

    def prove(self) -> str:
        """The subscription, once Azure has taken the credentials for it: any answer about the resource group, that
        there is none too. Raises DriverError."""
        if not self.session.proven:
            if self.group:
                path = f"/subscriptions/{self.subscription}/resourcegroups/{self.group}"
                try:
                    self.rest("ResourceGroups_Get", "GET", path, RESOURCES_API)
                except DriverError as e:
                    if e.provider_code != "ResourceGroupNotFound":
                        raise
            else:
                self.rest("Subscriptions_Get", "GET", f"/subscriptions/{self.subscription}", SUBSCRIPTIONS_API)
            self.session.proven = True
        return self.subscription


class Clients:
    """Sessions by credentials, made on demand and kept up to a bound."""

    def __init__(self, settings: DriverSettings) -> None:
        self._settings = settings
        self._kept = Remembered[tuple[Realm, str], ArmSession](MAX_SESSIONS)

    def get(self, place: Place, secret: Mapping[str, SecretStr]) -> Arm:
        """Returns the client. Raises DriverError of class auth for a Secret that is incomplete."""
        credentials = from_secret(secret)
        key = (place.realm, credentials.digest)
        return Arm(self._kept.get_or_make(key, lambda: self._make(place.realm, credentials)), place)

    def _make(self, realm: Realm, credentials: Credentials) -> ArmSession:
        subscription = credentials.subscription or os.environ.get("AZURE_SUBSCRIPTION_ID", "")
        if not subscription:
            raise DriverError(
                ErrorClass.AUTH,
                "no Azure subscription: give the Secret subscriptionID, or the worker AZURE_SUBSCRIPTION_ID",
            )
        return ArmSession(lambda: self._connect(realm, credentials, subscription), subscription, credentials.hidden)

    def _connect(self, realm: Realm, credentials: Credentials, subscription: str) -> ArmConnection:
        failure: DriverError
        try:
            endpoint = self._endpoint(realm)
            login = credential_of(credentials, realm, self._settings)
            client: dict[str, Any] = {"base_url": endpoint, "credential_scopes": [f"{realm.audience}/.default"]}
            client |= patience(self._settings) | {"user_agent": "hostler"}
            return ArmConnection(
                ComputeManagementClient(login, subscription, **client),
                NetworkManagementClient(login, subscription, **client),
                endpoint,
                options={} if endpoint.lower().startswith("https:") else {"enforce_https": False},
            )
        except (AzureError, ValueError) as e:  # ValueError: a certificate or an endpoint that is none
            failure = translate("client", e, credentials.hidden)
        raise failure

    def _endpoint(self, realm: Realm) -> str:
        """Where calls go. Raises DriverError where a token, or the bootstrap token in user data, would be sent in the
        clear."""
        return check_endpoint((self._settings.endpoint or realm.endpoint).rstrip("/"), "clouds.azure.endpoint")


def patience(settings: DriverSettings) -> dict[str, Any]:
    """How long a client waits, and that it does not try again: workflows wait."""
    seconds = settings.timeout.total_seconds()
    return {"retry_total": 0, "connection_timeout": seconds, "read_timeout": seconds}
