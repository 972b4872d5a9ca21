"""What Hostler needs of a Temporal namespace: its search attributes. Safe to repeat, on any server."""

from __future__ import annotations

from dataclasses import dataclass

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from resources import attributes
from starter.sdk.errors import HostlerError

_KEYWORD = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
_DATETIME = IndexedValueType.INDEXED_VALUE_TYPE_DATETIME
WANTED = {key.name: _KEYWORD for key in attributes.KEYWORDS} | {key.name: _DATETIME for key in attributes.DATETIMES}

# The answers of a server that keeps its operator API to itself: Temporal Cloud, or an authorizer.
_NOT_OURS = (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.UNAUTHENTICATED)


class SetupError(HostlerError):
    """The namespace cannot serve Hostler as it is; the message says what to do."""


@dataclass(frozen=True)
class Registered:
    """Names of search attributes, in the order of resources.attributes."""

    present: tuple[str, ...]
    added: tuple[str, ...]


async def setup(client: Client) -> Registered:
    """Registers the search attributes that are missing.

    Raises SetupError when the namespace does not exist, an attribute has another type (the server would take a second
    registration without a word and keep the first type), or the server refuses.
    """
    await check_namespace(client)
    missing = await missing_attributes(client)
    if missing:
        await _add(client, missing)
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


async def check_namespace(client: Client) -> None:
    try:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except RPCError as e:
        if e.status != RPCStatusCode.NOT_FOUND:
            raise
        raise SetupError(
            f"namespace {client.namespace!r} does not exist; create it: temporal operator namespace create -n "
            f"{client.namespace}"
        ) from None


async def _registered(client: Client) -> dict[str, IndexedValueType.ValueType]:
    request = ListSearchAttributesRequest(namespace=client.namespace)
    try:
        return dict((await client.operator_service.list_search_attributes(request)).custom_attributes)
    except RPCError as e:
        if e.status in _NOT_OURS:
            raise SetupError(_by_hand(client.namespace, WANTED, e)) from None
        raise


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
