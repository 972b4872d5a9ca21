"""OpenAPI v3, as much as kubectl needs: which kinds there are, and that the server validates fields itself.

kubectl looks for the query parameter `fieldValidation` of a kind's PATCH and then leaves validation to the server.
Kinds of definitions show their schema, built-in ones are open objects: nothing is refused on their account.
"""

from __future__ import annotations

import hashlib
import json

from simulator.kube.discovery import KUBERNETES_VERSION
from simulator.kube.errors import no_such_resource
from simulator.kube.objects import Obj
from simulator.kube.resources import Resource, Resources

_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]
_PATCH_TYPES = ("application/json-patch+json", "application/merge-patch+json")
"""Strategic merge patches are served, too; named here they would make kubectl look up merge keys in these schemas,
where it finds none. Without them it takes the keys from its own types."""


def _root(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def document_v2() -> bytes:
    """OpenAPI v2 without definitions, in protobuf, which is the only form client-go reads.

    kubectl falls back to it for what has no PATCH (a List in a manifest) and lets pass what it does not find there.
    """
    info = _field(1, b"Kubernetes") + _field(2, f"v{KUBERNETES_VERSION}.0".encode())
    return _field(1, b"2.0") + _field(2, info)  # openapi_v2.Document: swagger, info


def _field(number: int, value: bytes) -> bytes:
    """A length-delimited protobuf field of less than 128 bytes."""
    return bytes([number << 3 | 2, len(value)]) + value


def index(resources: Resources) -> Obj:
    """The list of documents, each with a hash of its content: kubectl caches them by it."""
    paths: Obj = {}
    for group, versions in resources.group_versions().items():
        for version in versions:
            root = _root(group, version)
            text = json.dumps(document(resources, group, version), sort_keys=True)
            digest = hashlib.sha256(text.encode()).hexdigest()[:32].upper()
            paths[root] = {"serverRelativeURL": f"/openapi/v3/{root}?hash={digest}"}
    return {"paths": paths}


def document(resources: Resources, group: str, version: str) -> Obj:
    served = resources.of(group, version)
    if not served:
        raise no_such_resource()
    paths: Obj = {}
    for resource in served:
        paths |= _paths(resource)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": f"v{KUBERNETES_VERSION}.0"},
        "paths": paths,
        "components": {"schemas": {_name(r): _schema(r) for r in served}},
    }


def _name(resource: Resource) -> str:
    group = resource.group or "core"
    return f"{group}.{resource.version}.{resource.kind}"


def _gvk(resource: Resource) -> Obj:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _schema(resource: Resource) -> Obj:
    schema: Obj = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if resource.custom is not None:
        schema = dict(resource.custom.schema)
    return {**schema, "x-kubernetes-group-version-kind": [_gvk(resource)]}


def _paths(resource: Resource) -> Obj:
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    collection = f"/{_root(resource.group, resource.version)}{scope}/{resource.plural}"
    body = {"schema": {"$ref": f"#/components/schemas/{_name(resource)}"}}
    answers = {"200": {"description": "OK", "content": {"application/json": body}}}

    def operation(action: str, content_types: tuple[str, ...] = ()) -> Obj:
        described: Obj = {
            "parameters": _PARAMETERS if action in ("patch", "post", "put") else [],
            "responses": answers,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": _gvk(resource),
        }
        if content_types:
            described["requestBody"] = {"content": dict.fromkeys(content_types, body)}
        return described

    json_only = ("application/json",)
    return {
        collection: {"get": operation("list"), "post": operation("post", json_only)},
        f"{collection}/{{name}}": {
            "get": operation("get"),
            "put": operation("put", json_only),
            "patch": operation("patch", _PATCH_TYPES),
            "delete": operation("delete"),
        },
    }
