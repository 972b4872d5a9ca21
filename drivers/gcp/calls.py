"""Calls to Compute Engine: clients per credentials, no retries of their own, every failure a DriverError.

Google's client is the transport and no more: requests and answers are JSON as the API reference has it, and an
operation is polled here, as the client's own `result()` asks another endpoint than the one that it was given.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import google.auth
from google.api_core import exceptions as api
from google.api_core.client_options import ClientOptions
from google.auth import exceptions as auth
from google.auth import identity_pool
from google.cloud import compute_v1
from google.oauth2 import service_account
from google.protobuf import json_format
from pydantic import SecretStr
from requests.adapters import HTTPAdapter
from requests.exceptions import RequestException

from drivers.base import DriverSettings
from drivers.errors import DriverError
from drivers.failures import words_of
from drivers.gcp.credentials import EXTERNAL_ACCOUNT, SERVICE_ACCOUNT, Credentials, from_secret
from drivers.gcp.failures import of_operation, translate
from drivers.sessions import MAX_SESSIONS, AccountSession, Remembered, check_endpoint
from resources.errors import ErrorClass

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
ACCOUNT_KNOWN_FOR = 300.0
"""Seconds that it is remembered that some credentials open their project."""
PAGE = 500
"""Resources a page, the most that Google takes."""
NAMES_MOST = 50
"""Names in one filter: its address may have some thousand characters."""
DYING_MOST = 10_000
CONNECTIONS = 50
ALREADY_EXISTS = ("alreadyExists", "RESOURCE_ALREADY_EXISTS")
NOT_READY = ("resourceNotReady", "RESOURCE_NOT_READY")
STALE = ("conditionNotMet", "CONDITION_NOT_MET")
"""Somebody has changed what was read: the fingerprint does not fit any more."""

Resource = dict[str, Any]
"""An instance, a disk, an operation, …, as the API reference describes it."""


@dataclass(frozen=True)
class _Method:
    client: str
    name: str
    request: str
    body: str = ""
    """The request's field that has the body, and its model."""
    model: str = ""


METHODS = {
    "instances.insert": _Method("Instances", "insert_unary", "InsertInstance", "instance_resource", "Instance"),
    "instances.get": _Method("Instances", "get", "GetInstance"),
    "instances.list": _Method("Instances", "list", "ListInstances"),
    "instances.delete": _Method("Instances", "delete_unary", "DeleteInstance"),
    "instances.getSerialPortOutput": _Method(
        "Instances", "get_serial_port_output", "GetSerialPortOutputInstance"
    ),
    "instances.setDeletionProtection": _Method(
        "Instances", "set_deletion_protection_unary", "SetDeletionProtectionInstance"
    ),
    "instances.setLabels": _Method(
        "Instances", "set_labels_unary", "SetLabelsInstance", "instances_set_labels_request_resource",
        "InstancesSetLabelsRequest",
    ),
    "instances.setMetadata": _Method(
        "Instances", "set_metadata_unary", "SetMetadataInstance", "metadata_resource", "Metadata"
    ),
    "instances.updateNetworkInterface": _Method(
        "Instances", "update_network_interface_unary", "UpdateNetworkInterfaceInstance", "network_interface_resource",
        "NetworkInterface",
    ),
    "instances.setTags": _Method("Instances", "set_tags_unary", "SetTagsInstance", "tags_resource", "Tags"),
    "disks.delete": _Method("Disks", "delete_unary", "DeleteDisk"),
    "disks.get": _Method("Disks", "get", "GetDisk"),
    "disks.list": _Method("Disks", "list", "ListDisks"),
    "disks.setLabels": _Method(
        "Disks", "set_labels_unary", "SetLabelsDisk", "zone_set_labels_request_resource", "ZoneSetLabelsRequest"
    ),
    "projects.get": _Method("Projects", "get", "GetProject"),
    "zoneOperations.get": _Method("ZoneOperations", "get", "GetZoneOperation"),
    "zoneOperations.list": _Method("ZoneOperations", "list", "ListZoneOperations"),
    "zoneOperations.wait": _Method("ZoneOperations", "wait", "WaitZoneOperation"),
}  # fmt: skip
"""Every call that this driver makes, by Google's name for it (deploy/gcp/role.yaml has the permissions)."""


REFUSED = frozenset({"401", "authError", "expired", "invalidCredentials", "loginRequired", "invalid_grant"})
"""Codes that say that the credentials are not valid (any longer), rather than that they do not allow something."""


class GceConnection:
    """Clients with the credentials as they are now. A new connection has read them again."""

    def __init__(self, credentials: Any, project: str, endpoint: str | None) -> None:
        self.project = project
        self._credentials = credentials
        self._options = ClientOptions(api_endpoint=endpoint) if endpoint else ClientOptions()
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()
        self.known_until = 0.0
        """Until when it is remembered that the credentials open the project."""

    def client(self, name: str) -> Any:
        with self._lock:
            if name not in self._clients:
                made = getattr(compute_v1, f"{name}Client")(credentials=self._credentials, client_options=self._options)
                for scheme in ("https://", "http://"):  # the usual ten connections are fewer than a worker's threads
                    made.transport._session.mount(scheme, HTTPAdapter(pool_maxsize=CONNECTIONS))
                self._clients[name] = made
            return self._clients[name]


class Gce(AccountSession[GceConnection]):
    """The API with one set of credentials."""

    REFUSED = REFUSED
    FAILURES = (api.GoogleAPICallError, auth.GoogleAuthError, RequestException, ValueError, OSError)

    def __init__(
        self, connect: Callable[[], GceConnection], seconds: float, *, fixed: bool, hidden: Sequence[str] = ()
    ) -> None:
        """`seconds`: the timeout of a call."""
        super().__init__(connect, hidden=hidden, fixed=fixed)
        self._seconds = seconds
        self.dying = Remembered[str, bool](DYING_MOST)
        """Ids of VMs that are known to be being deleted."""

    def translated(self, operation: str, error: Exception, hide: Sequence[str]) -> DriverError:
        return translate(operation, error, hide)

    @property
    def project(self) -> str:
        return self._connection.project

    def call(self, operation: str, body: Resource | None = None, hide: str = "", /, **fields: Any) -> Resource:
        """Makes a call in the credentials' project. `hide`: user data, which no error may quote. Raises DriverError."""
        method = METHODS[operation]

        def ask(connection: GceConnection) -> Resource:
            given = {method.body: getattr(compute_v1, method.model).from_json(json.dumps(body))} if body else {}
            request = getattr(compute_v1, f"{method.request}Request")(project=connection.project, **given, **fields)
            answer = getattr(connection.client(method.client), method.name)(
                request=request, retry=None, timeout=self._seconds
            )
            return _plain(answer)

        return self.ask(operation, ask, words_of(hide), renew=body is None or not hide)

    def account(self) -> str:
        """The project that the credentials open, asked for. Raises DriverError."""
        if time.monotonic() > self._connection.known_until:
            self.call("projects.get")
            self._connection.known_until = time.monotonic() + ACCOUNT_KNOWN_FOR
        return self.project

    def pages(self, operation: str, **fields: Any) -> Iterator[Resource]:
        """The items on all pages. A page may be empty and still not be the last."""
        more: dict[str, Any] = {}
        while True:
            page = self.call(operation, max_results=PAGE, **fields, **more)
            yield from page.get("items", ())
            if not page.get("nextPageToken"):
                return
            more = {"page_token": page["nextPageToken"]}

    def finish(self, operation: str, begun: Resource, zone: str) -> None:
        """Waits for an operation that takes a moment. Raises DriverError where it fails or takes longer."""
        if begun.get("status") != "DONE":
            begun = self.call("zoneOperations.wait", zone=zone, operation=begun["name"])
        if failure := of_operation(operation, begun, self._hidden):
            raise failure
        if begun.get("status") != "DONE":
            raise DriverError(ErrorClass.TRANSIENT, f"{operation}: {begun['name']} has not ended yet")


def named(gce: Gce, operation: str, zone: str, names: Sequence[str]) -> Iterator[Resource]:
    """The resources of these names, by a `list` of some."""
    for n in range(0, len(names), NAMES_MOST):
        wanted = " OR ".join(f'(name = "{name}")' for name in names[n : n + NAMES_MOST])
        yield from gce.pages(operation, zone=zone, filter=wanted)


def _plain(answer: Any) -> Resource:
    """An answer as JSON, by the names of the API reference. A list's answer is one page of it."""
    message = getattr(answer, "_response", answer)
    return json_format.MessageToDict(type(message).pb(message))


class Clients:
    """Clients by credentials, made on demand and kept up to a bound."""

    def __init__(self, settings: DriverSettings) -> None:
        self._settings = settings
        self._kept = Remembered[str, Gce](MAX_SESSIONS)

    def get(self, secret: Mapping[str, SecretStr]) -> Gce:
        """Returns the client. Raises DriverError of class auth for a Secret that is incomplete."""
        credentials = from_secret(secret)
        return self._kept.get_or_make(credentials.digest, lambda: self._make(credentials))

    def _make(self, credentials: Credentials) -> Gce:
        seconds = self._settings.timeout.total_seconds()
        fixed = credentials.info.get("type") == SERVICE_ACCOUNT
        return Gce(partial(self._connect, credentials), seconds, fixed=fixed, hidden=credentials.hidden)

    def _connect(self, credentials: Credentials) -> GceConnection:
        endpoint = self._settings.endpoint
        if endpoint:
            check_endpoint(endpoint, "clouds.gcp.endpoint")
        failure: DriverError
        try:
            own, project = _google_credentials(credentials)
            if not project:
                raise DriverError(
                    ErrorClass.AUTH, "the worker's credentials name no project: give the Secret projectID"
                )
            return GceConnection(own, project, endpoint)
        except (auth.GoogleAuthError, ValueError, OSError) as e:
            # A ValueError is a key that cannot be read, and its text may quote it.
            failure = (
                DriverError(ErrorClass.AUTH, "the private_key of the Secret's service account cannot be read")
                if isinstance(e, ValueError)
                else translate("credentials", e, credentials.hidden)
            )
        raise failure


def _google_credentials(credentials: Credentials) -> tuple[Any, str]:
    """Google's own credentials, and the project. They read what rotates (a token's file, a metadata server) whenever
    their token is about to end."""
    if not credentials.info:
        own, project = google.auth.default(scopes=SCOPES)
        return own, credentials.project or project or ""
    info = dict(credentials.info)
    if info["type"] == EXTERNAL_ACCOUNT:
        return identity_pool.Credentials.from_info(info, scopes=SCOPES), credentials.project
    return service_account.Credentials.from_service_account_info(info, scopes=SCOPES), credentials.project
