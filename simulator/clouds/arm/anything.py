"""What Azure Resource Manager itself does with a resource of any type: it lists by tag or name, and sets tags."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from simulator.clouds.arm.context import Context
from simulator.clouds.arm.errors import ArmError, unsupported
from simulator.clouds.arm.identifiers import Id
from simulator.clouds.arm.resources import ArmResource, ArmStore, read_tags
from simulator.clouds.arm.wire import Answer, ArmCall, Row, page

_BY_TAG = re.compile(r"tagName eq '(?P<name>[^']*)' and tagValue eq '(?P<value>[^']*)'", re.IGNORECASE)
_BY_NAME = re.compile(r"substringof\('(?P<part>[^']*)', ?name\)", re.IGNORECASE)
_BY_TYPE = re.compile(r"resourceType eq '(?P<type>[^']*)'", re.IGNORECASE)

Passes = Callable[[ArmResource], bool]


class Anything:
    """Over all stores: a resource is in one of them."""

    def __init__(self, context: Context, stores: Sequence[ArmStore[ArmResource]]) -> None:
        self._context = context
        self._stores = stores

    # -------------------------------------------------------------------------------------------- operations

    def list_resources(self, call: ArmCall) -> Answer:
        wanted = call.query.get("$filter")
        listed = []
        for store in self._stores:
            passes = _filter(store, wanted) if wanted is not None else _any
            listed += [(store, r) for r in store.listed(call) if passes(r)]
        expand, tags = call.query.get("$expand", "").split(","), not (wanted and _BY_TAG.fullmatch(wanted))
        return page(listed, call, self._context.page, lambda pair: pair[1].key, lambda pair: _row(*pair, expand, tags))

    def get_tags(self, call: ArmCall) -> Answer:
        store, resource = self._find(call)
        return Answer(body=_tags_row(resource, store.seen_tags(resource)))

    def update_tags(self, call: ArmCall) -> Answer:
        """Merge, Replace or Delete, at once. The limit counts what is there already."""
        _, resource = self._find(call)
        if resource.provisioning == "Deleting":
            raise ArmError("OperationNotAllowed", f"The resource {resource.id} is being deleted.")
        given = read_tags(call.body.get("properties") or {})
        tags = changed_tags(resource.tags, str(call.body.get("operation", "")), given)
        resource.write_tags(read_tags({"tags": tags}), self._context.tagged())
        resource.touch()
        return Answer(body=_tags_row(resource, resource.tags), changed=[resource.id])

    # -- parts

    def _find(self, call: ArmCall) -> tuple[ArmStore[ArmResource], ArmResource]:
        of = call.path
        wanted = f"{of['namespace']}/{of['type']}".lower()
        for store in self._stores:
            if store.kind.lower() == wanted:
                return store, store.find(Id(call.subscription, call.group, store.kind, call.name))
        raise unsupported(f"tags of resources of the type {wanted}")


def changed_tags(tags: Mapping[str, str], operation: str, given: Mapping[str, str]) -> dict[str, str]:
    """Tags after an operation on them. Names are the same in any case; a deletion that tells a value asks for it."""
    lowered = {k.lower(): v for k, v in given.items()}
    others = {k: v for k, v in tags.items() if k.lower() not in lowered}
    match operation.lower():
        case "merge":
            return {**others, **given}
        case "replace":
            return dict(given)
        case "delete":
            return {k: v for k, v in tags.items() if lowered.get(k.lower()) not in ("", v)}
        case _:
            raise ArmError("InvalidRequestContent", f"The operation '{operation}' is none of Merge, Replace, Delete.")


def _row(store: ArmStore[ArmResource], resource: ArmResource, expand: Iterable[str], tags: bool) -> Row:
    """`tags`: Azure shows none of what it has found by a tag (API reference, *Resources - List By Resource Group*)."""
    row = {k: v for k, v in store.head(resource).items() if tags or k != "tags"}
    if "provisioningState" in expand:
        row["provisioningState"] = resource.provisioning
    return row


def _tags_row(resource: ArmResource, tags: Mapping[str, str]) -> Row:
    return {
        "id": f"{resource.id}/providers/Microsoft.Resources/tags/default",
        "name": "default",
        "type": "Microsoft.Resources/tags",
        "properties": {"tags": dict(tags)},
    }


def _filter(store: ArmStore[ArmResource], text: str) -> Passes:
    """Raises for a filter that is none of the three."""
    if by_tag := _BY_TAG.fullmatch(text):
        name, value = by_tag["name"].lower(), by_tag["value"]
        return lambda r: any(k.lower() == name and v == value for k, v in store.seen_tags(r).items())
    if by_name := _BY_NAME.fullmatch(text):
        part = by_name["part"].lower()
        return lambda r: part in r.name.lower()
    if by_type := _BY_TYPE.fullmatch(text):
        kind = by_type["type"].lower()
        return lambda r: store.kind.lower() == kind
    raise unsupported(f"the $filter {text!r}: only tagName and tagValue, substringof(…, name), and resourceType")


def _any(resource: ArmResource) -> bool:
    return True
