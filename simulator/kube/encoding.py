"""How objects are shown to the caller: as JSON, as a Table, or as metadata only."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from aiohttp import web

from simulator.kube.errors import ApiError
from simulator.kube.objects import Obj
from simulator.kube.requests import RequestInfo
from simulator.kube.resources import Resource
from simulator.kube.store import Item
from simulator.kube.tables import partial_metadata, table

JSON = "application/json"
_AS = re.compile(r"\bas=(\w+)")
_READABLE = ("", JSON, "application/*", "*/*")


def dumps(obj: object) -> bytes:
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=False).encode()


def json_response(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=body, status=status, headers=headers, content_type=JSON)


def error_response(error: ApiError) -> web.Response:
    return json_response(dumps(error.body()), error.status, error.headers)


class Encoder:
    """The form one caller asked for in its Accept header. Raises 406 when JSON is none of the accepted types."""

    def __init__(self, resource: Resource, accept: str, info: RequestInfo) -> None:
        self._resource = resource
        self._include = info.query.get("includeObject", "Metadata")
        self._form = ""
        for clause in accept.split(","):
            media = clause.partition(";")[0].strip()
            form = _AS.search(clause)
            if media not in _READABLE:
                continue
            if form is None or form[1] in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList"):
                self._form = form[1].removesuffix("List") if form else ""
                return
        message = "only the following media types are accepted: application/json"
        raise ApiError(406, "NotAcceptable", message)

    def one(self, item: Item) -> bytes:
        if self._form == "Table":
            meta = {"resourceVersion": item.version}
            return dumps(table(self._resource, [item.obj], meta, self._include))
        if self._form:
            return dumps(partial_metadata(item.obj))
        return item.raw

    def list(self, items: Sequence[Item], metadata: Obj) -> bytes:
        if self._form == "Table":
            return dumps(table(self._resource, (i.obj for i in items), metadata, self._include))
        if self._form:
            listed = [partial_metadata(i.obj) for i in items]
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
            return dumps({**head, "items": listed})
        head = {
            "kind": self._resource.kind_of_list,
            "apiVersion": self._resource.api_version,
            "metadata": metadata,
        }
        return dumps(head)[:-1] + b',"items":[' + b",".join(self._bare(i) for i in items) + b"]}"

    def _bare(self, item: Item) -> bytes:
        """Items of built-in lists say neither kind nor apiVersion; those of custom lists do."""
        if self._resource.custom is not None:
            return item.raw
        lead = dumps({"kind": self._resource.kind, "apiVersion": self._resource.api_version})[:-1] + b","
        return b"{" + item.raw.removeprefix(lead) if item.raw.startswith(lead) else item.raw
