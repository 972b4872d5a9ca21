"""Calls to EC2 and STS: clients per region and credentials, no retries of their own, every failure a DriverError."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
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
from drivers.failures import words_of
from drivers.sessions import MAX_SESSIONS, AccountSession, Remembered, check_endpoint

ACCOUNT_KNOWN_FOR = 300.0
"""Seconds that an access key's account is remembered. AWS never gives a key to another account."""
REFUSED = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
"""Codes that say that the credentials are not valid (any longer), rather than that they do not allow something."""
PAGE = 500
"""Resources a page; EC2 takes 5 to 1000."""

Resource = dict[str, Any]
"""An instance, a volume, …, as EC2 describes it."""


class Ec2Connection:
    """Clients of one region with the credentials as they are now. A new connection has read them again."""

    def __init__(self, session: Any, ec2: Any, sts: Any) -> None:
        self._session = session
        self.ec2 = ec2
        self._sts = sts
        self._known: tuple[str, str, float] | None = None
        """An access key id, its account, and until when that is remembered."""

    def account(self) -> str:
        """The account, remembered for the access key that botocore uses now: roles and profiles get other keys."""
        credentials = self._session.get_credentials()
        key = credentials.get_frozen_credentials().access_key if credentials else ""
        known = self._known
        if known is None or known[0] != key or time.monotonic() > known[2]:
            account = str(self._sts.get_caller_identity()["Account"])
            known = self._known = (key, account, time.monotonic() + ACCOUNT_KNOWN_FOR)
        return known[1]


class Ec2(AccountSession[Ec2Connection]):
    """The API of one region with one set of credentials."""

    REFUSED = REFUSED
    FAILURES = (ClientError, BotoCoreError, ResponseParserError, OSError)

    def __init__(
        self, connect: Callable[[], Ec2Connection], region: str, *, fixed: bool, hidden: Sequence[str] = ()
    ) -> None:
        super().__init__(connect, hidden=hidden, fixed=fixed)
        self.region = region

    def translated(self, operation: str, error: Exception, hide: Sequence[str]) -> DriverError:
        return translate(operation, error, hide)

    def call(self, operation: str, *, renew: bool = True, **parameters: Any) -> Resource:
        """One request, one answer. `renew` False: no other credentials than those that `account` was asked with, even
        if they are refused just now. Raises DriverError."""

        def ask(connection: Ec2Connection) -> Resource:
            return dict(getattr(connection.ec2, xform_name(operation))(**parameters))

        return self.ask(operation, ask, words_of(parameters.get("UserData") or ""), renew)

    def account(self) -> str:
        """The account that the credentials open. Raises DriverError."""
        return self.ask("GetCallerIdentity", Ec2Connection.account)

    def pages(self, operation: str, key: str, **parameters: Any) -> Iterator[Resource]:
        """Items under `key` on all pages. A page may be empty and still not be the last."""
        more: dict[str, Any] = {}
        while True:
            page = self.call(operation, MaxResults=PAGE, **parameters, **more)
            yield from page.get(key, ())
            if not page.get("NextToken"):
                return
            more = {"NextToken": page["NextToken"]}

    def find(self, operation: str, key: str, filters: Mapping[str, str | Sequence[str]]) -> Iterator[Resource]:
        """The items on all pages that fit every filter: EC2's filter names, each with its value, or with several of
        which one must fit."""
        wanted = [{"Name": n, "Values": [v] if isinstance(v, str) else list(v)} for n, v in filters.items()]
        return self.pages(operation, key, Filters=wanted)


def new_session() -> Any:
    """A new session of botocore. Sessions share what they have read: parsing EC2's model takes a third of a second."""
    session = botocore.session.Session()
    session.register_component("data_loader", _loader())
    return session


@functools.cache
def _loader() -> Any:
    return botocore.session.Session().get_component("data_loader")


def _safe(client: Any) -> Any:
    """`client`, whose endpoint may come from the settings, AWS_ENDPOINT_URL or a profile. Raises DriverError where a
    web identity's token, a session's, or the bootstrap token in user data would be sent in the clear."""
    check_endpoint(client.meta.endpoint_url, "clouds.aws.endpoint, AWS_ENDPOINT_URL or the worker's AWS profile")
    return client


class Clients:
    """Clients by region and credentials, made on demand and kept up to a bound."""

    def __init__(self, settings: DriverSettings) -> None:
        self._settings = settings
        self._kept = Remembered[tuple[str, str], Ec2](MAX_SESSIONS)

    def get(self, region: str, secret: Mapping[str, SecretStr]) -> Ec2:
        """Returns the client. Raises DriverError of class auth for a Secret that is incomplete."""
        credentials = from_secret(secret)
        return self._kept.get_or_make((region, credentials.digest), lambda: self._make(region, credentials))

    def _make(self, region: str, credentials: Credentials) -> Ec2:
        connect = partial(self._connect, region, credentials)
        return Ec2(connect, region, fixed=bool(credentials.access_key), hidden=credentials.hidden)

    def _connect(self, region: str, credentials: Credentials) -> Ec2Connection:
        failure: DriverError
        try:
            session = new_session()
            if credentials.role_arn:
                provider = self._web_identity(session, region, credentials)
                session.register_component("credential_provider", CredentialResolver([provider]))
            elif credentials.access_key:
                session.set_credentials(credentials.access_key, credentials.secret_key)
            return Ec2Connection(
                session,
                # for None: AWS_ENDPOINT_URL_EC2, else the region's own
                ec2=self._client(session, "ec2", region, self._settings.endpoint),
                sts=self._client(session, "sts", region, self._sts_endpoint()),
            )
        except (BotoCoreError, ValueError) as e:  # ValueError: the endpoint is no URL
            failure = translate("EC2 client", e, credentials.hidden)
        raise failure

    def _client(self, session: Any, service: str, region: str, endpoint: str | None) -> Any:
        return _safe(session.create_client(service, region_name=region, endpoint_url=endpoint, config=self._config()))

    def _sts_endpoint(self) -> str | None:
        """The endpoint in AWS_ENDPOINT_URL_STS, else that of the settings, else the region's own."""
        return None if "AWS_ENDPOINT_URL_STS" in os.environ else self._settings.endpoint

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
        """botocore's own provider: it reads the token file and assumes the role again before it expires."""

        def client_creator(service: str, **kwargs: Any) -> Any:
            # The caller's configuration only says "unsigned"; merged with ours it also has the timeouts.
            config = self._config().merge(kwargs.pop("config", Config()))
            kwargs["region_name"] = region
            return _safe(session.create_client(service, endpoint_url=self._sts_endpoint(), config=config, **kwargs))

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
