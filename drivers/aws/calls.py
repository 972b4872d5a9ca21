"""Calls to EC2: one client per region and credentials, no retries of its own, every failure a DriverError."""

from __future__ import annotations

import base64
import functools
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import botocore.session
from botocore import xform_name
from botocore.config import Config
from botocore.credentials import AssumeRoleWithWebIdentityProvider, CredentialResolver
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from pydantic import SecretStr

from drivers.aws.credentials import Credentials, from_secret
from drivers.aws.failures import translate
from drivers.base import DriverSettings
from drivers.errors import DriverError

MAX_CLIENTS = 64
"""A client is some megabytes; the least recently used one goes first."""
PAGE = 500
"""Resources a page; EC2 takes 5 to 1000."""

_WORD = re.compile(r"[^\s\"'`,;:=]{16,}")

Resource = dict[str, Any]
"""An instance, a volume, …, as EC2 describes it."""


class Ec2:
    """The API of one region with one set of credentials. Thread-safe, as botocore's clients are."""

    def __init__(self, client: Any, region: str, hidden: Sequence[str] = ()) -> None:
        self.region = region
        self._client = client
        self._hidden = tuple(hidden)

    def call(self, operation: str, **parameters: Any) -> Resource:
        """One request, one answer. Raises DriverError."""
        failure: DriverError
        try:
            return dict(getattr(self._client, xform_name(operation))(**parameters))
        except (ClientError, BotoCoreError, ResponseParserError, OSError) as e:
            failure = translate(operation, e, (*self._hidden, *_secrets_of(parameters)))
        # Raised out here, where it has neither cause nor context: botocore's exceptions hold the request.
        raise failure

    def pages(self, operation: str, key: str, **parameters: Any) -> Iterator[Resource]:
        """What all pages have under `key`. A page may be empty and still not be the last."""
        more: dict[str, str] = {}
        while True:
            page = self.call(operation, MaxResults=PAGE, **parameters, **more)
            yield from page.get(key, ())
            if not page.get("NextToken"):
                return
            more = {"NextToken": page["NextToken"]}

    def find(self, operation: str, key: str, filters: Mapping[str, str]) -> Iterator[Resource]:
        """All pages of what fits every filter: EC2's filter names, each with its value."""
        wanted = [{"Name": name, "Values": [value]} for name, value in filters.items()]
        return self.pages(operation, key, Filters=wanted)


def _secrets_of(parameters: Mapping[str, Any]) -> list[str]:
    """User data, whole, encoded and every longer word of it, in case that an error quotes it."""
    text = str(parameters.get("UserData") or "")
    if not text:
        return []
    return [text, base64.b64encode(text.encode()).decode(), *sorted(_WORD.findall(text), key=len, reverse=True)]


def new_session() -> Any:
    """A session of botocore. They share what they have read: to parse EC2's model takes a third of a second."""
    session = botocore.session.Session()
    session.register_component("data_loader", _loader())
    return session


@functools.cache
def _loader() -> Any:
    return botocore.session.Session().get_component("data_loader")


class Clients:
    """Clients by region and credentials, made on demand and kept up to a bound."""

    def __init__(self, settings: DriverSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], Ec2] = OrderedDict()

    def get(self, region: str, secret: Mapping[str, SecretStr]) -> Ec2:
        """Raises DriverError of class auth for a Secret that is incomplete."""
        credentials = from_secret(secret)
        key = (region, credentials.digest)
        with self._lock:  # making one takes long; a second thread waits for it instead of making another
            if key not in self._kept:
                self._kept[key] = self._make(region, credentials)
            self._kept.move_to_end(key)
            while len(self._kept) > MAX_CLIENTS:
                self._kept.popitem(last=False)
            return self._kept[key]

    def _make(self, region: str, credentials: Credentials) -> Ec2:
        failure: DriverError
        try:
            session = new_session()
            if credentials.role_arn:
                provider = self._web_identity(session, region, credentials)
                session.register_component("credential_provider", CredentialResolver([provider]))
            client = session.create_client(
                "ec2",
                region_name=region,
                endpoint_url=self._settings.endpoint,  # None: AWS_ENDPOINT_URL_EC2, else the region's own
                aws_access_key_id=credentials.access_key or None,
                aws_secret_access_key=credentials.secret_key or None,
                config=self._config(),
            )
            return Ec2(client, region, credentials.hidden)
        except (BotoCoreError, ValueError) as e:  # ValueError: an endpoint that is no URL
            failure = translate("EC2 client", e, credentials.hidden)
        raise failure

    def _config(self) -> Config:
        seconds = self._settings.timeout.total_seconds()
        return Config(
            retries={"total_max_attempts": 1},  # workflows wait; and botocore would hide InsufficientInstanceCapacity
            connect_timeout=seconds,
            read_timeout=seconds,
            tcp_keepalive=True,
            max_pool_connections=50,
            user_agent_extra="hostler",
        )

    def _web_identity(self, session: Any, region: str, credentials: Credentials) -> Any:
        """botocore's own provider: it reads the token file again and assumes the role anew before it expires.

        STS is where AWS_ENDPOINT_URL_STS says, else at the endpoint of the settings, else the region's own.
        """

        def client_creator(service: str, **kwargs: Any) -> Any:
            endpoint = None if "AWS_ENDPOINT_URL_STS" in os.environ else self._settings.endpoint
            # The caller's configuration only says "unsigned"; merged with ours it also has the time-outs.
            config = self._config().merge(kwargs.pop("config", Config()))
            kwargs["region_name"] = region
            return session.create_client(service, endpoint_url=endpoint, config=config, **kwargs)

        profile = {
            "role_arn": credentials.role_arn,
            "web_identity_token_file": credentials.token_file,
            "role_session_name": "hostler",
        }
        return AssumeRoleWithWebIdentityProvider(
            load_config=lambda: {"profiles": {"machine": profile}},
            client_creator=client_creator,
            profile_name="machine",
            disable_env_vars=True,  # the worker's own AWS_ROLE_ARN must not win over the machine's Secret
        )
