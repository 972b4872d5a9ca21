"""What Hostler needs of a Temporal namespace: its search attributes. Safe to repeat, on any server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from resources import attributes
from starter.sdk.errors import HostlerError

_KEYWORD = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
_DATETIME = IndexedValueType.INDEXED_VALUE_TYPE_DATETIME
WANTED = {key.name: _KEYWORD for key in attributes.KEYWORDS} | {key.name: _DATETIME for key in attributes.DATETIMES}

# The answers of a server that keeps its operator API to itself: Temporal Cloud, or an authorizer.
_NOT_OURS = (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.UNAUTHENTICATED)


_ANY = "{} IS NULL"
"""A condition on an attribute of any type."""
KNOWN_WITHIN = 60.0
"""Seconds within which a server knows a new namespace or attribute everywhere; 10 are its own default."""


class SetupError(HostlerError):
    """The namespace cannot serve Hostler as it is; the message says what to do."""


@dataclass(frozen=True)
class Registered:
    """Names of search attributes, in the order of resources.attributes."""

    present: tuple[str, ...]
    added: tuple[str, ...]


async def setup(client: Client) -> Registered:
    """Registers the search attributes that are missing, and waits until they can be used.

    Raises SetupError when the namespace does not exist, an attribute has another type (the server would take a second
    registration without a word and keep the first type), or the server refuses.
    """
    await check_namespace(client)
    missing = await missing_attributes(client)
    if missing:
        await _add(client, missing)
        await _known(client, " AND ".join(map(_ANY.format, missing)), RPCStatusCode.INVALID_ARGUMENT)
    return Registered(present=tuple(n for n in WANTED if n not in missing), added=tuple(missing))


async def missing_attributes(client: Client) -> dict[str, IndexedValueType.ValueType]:
    """The search attributes that the namespace does not have yet. Raises SetupError when one has another type, or the
    server does not say."""
    known = await _registered(client)
    wrong = [
        f"{name} is {_word(known[name])}, not {_word(kind)}"
        for name, kind in WANTED.items()
        if name in known and known[name] != kind
    ]
    if wrong:
        raise SetupError(
            f"namespace {client.namespace!r} has search attributes of other types: {', '.join(wrong)}; "
            f"remove them (temporal operator search-attribute remove -n {client.namespace} --name …) and repeat"
        )
    return {name: kind for name, kind in WANTED.items() if name not in known}


def _word(kind: IndexedValueType.ValueType) -> str:
    """The type as Temporal's command lines write it: Keyword, KeywordList."""
    return "".join(w.title() for w in IndexedValueType.Name(kind).removeprefix("INDEXED_VALUE_TYPE_").split("_"))


async def create_namespace(client: Client, retention: timedelta) -> bool:
    """Creates the namespace and waits until it can be used; False if it exists already, whatever its retention.

    `retention`: how long the history of a closed workflow stays, a day at least. Raises SetupError when the server
    refuses.
    """
    request = RegisterNamespaceRequest(namespace=client.namespace)
    request.workflow_execution_retention_period.FromTimedelta(retention)
    try:
        await client.workflow_service.register_namespace(request)
    except RPCError as e:
        if e.status == RPCStatusCode.ALREADY_EXISTS:
            return False
        if e.status in _NOT_OURS:
            raise SetupError(
                f"this server allows only administrators to create namespaces ({e.message}). Create "
                f"{client.namespace!r} as one (on Temporal Cloud: tcld namespace create), then repeat without "
                "--create-namespace"
            ) from None
        if e.status == RPCStatusCode.INVALID_ARGUMENT:
            raise SetupError(f"namespace {client.namespace!r} cannot be created: {e.message}") from None
        raise
    await _known(client, "", RPCStatusCode.NOT_FOUND)
    return True


async def _known(client: Client, query: str, unknown: RPCStatusCode) -> None:
    """Waits until the server can be asked this. Raises SetupError."""
    end = asyncio.get_running_loop().time() + KNOWN_WITHIN
    while True:
        try:
            await client.count_workflows(query)
            return
        except RPCError as e:
            if e.status != unknown:
                raise
            if asyncio.get_running_loop().time() > end:
                raise SetupError(
                    f"namespace {client.namespace!r}: the server does not know it yet: {e.message}"
                ) from None
        await asyncio.sleep(0.2)


async def check_namespace(client: Client) -> None:
    try:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except RPCError as e:
        if e.status != RPCStatusCode.NOT_FOUND:
            raise
        raise SetupError(
            f"namespace {client.namespace!r} does not exist; create it: hostler setup --create-namespace"
        ) from None


async def _registered(client: Client) -> dict[str, IndexedValueType.ValueType]:
    request = ListSearchAttributesRequest(namespace=client.namespace)
    try:
        return dict((await client.operator_service.list_search_attributes(request)).custom_attributes)
    except RPCError as e:
        if e.status not in _NOT_OURS:
            raise
    return {name: kind for name, kind in WANTED.items() if await _queryable(client, name)}


async def _queryable(client: Client, name: str) -> bool:
    """Whether a query may name it: the question that every server answers."""
    try:
        await client.count_workflows(_ANY.format(name))
    except RPCError as e:
        if e.status != RPCStatusCode.INVALID_ARGUMENT:
            raise
        return False
    return True


async def _add(client: Client, missing: dict[str, IndexedValueType.ValueType]) -> None:
    request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=missing)
    try:
        await client.operator_service.add_search_attributes(request)
    except RPCError as e:
        if e.status == RPCStatusCode.ALREADY_EXISTS:
            return  # another setup, at the same time
        if e.status in _NOT_OURS:
            raise SetupError(_by_hand(client.namespace, missing, e)) from None
        raise SetupError(
            f"namespace {client.namespace!r} cannot take the search attributes {', '.join(missing)}: {e.message} "
            "(with SQL visibility the server has room for ten keywords and three datetimes in a namespace)"
        ) from None


def _by_hand(namespace: str, missing: dict[str, IndexedValueType.ValueType], error: RPCError) -> str:
    cloud = " ".join(f"--search-attribute {name}={_word(kind)}" for name, kind in missing.items())
    own = "; ".join(
        f"temporal operator search-attribute create -n {namespace} --name {name} --type {_word(kind)}"
        for name, kind in missing.items()
    )
    return (
        f"this server allows only administrators to use its operator API ({error.message}). Register the search "
        f"attributes:\n  on Temporal Cloud: tcld namespace search-attributes add --namespace {namespace} {cloud}\n  "
        f"on a server of your own, as an administrator: {own}"
    )
