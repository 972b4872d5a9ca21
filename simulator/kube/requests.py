"""What a request asks for: path and method in Kubernetes' words (RequestInfo upstream)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.kube.errors import bad_request

_TRUE = ("true", "1", "True", "TRUE", "t", "T")
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "HEAD": "get"}


@dataclass(frozen=True)
class RequestInfo:
    verb: str
    path: str
    query: Mapping[str, str]
    group: str = ""
    version: str = ""
    namespace: str = ""
    plural: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def is_resource(self) -> bool:
        return bool(self.plural)

    @property
    def operation(self) -> str:
        """The operation's name in fault rules and the journal: `patch nodes/status`, `get /version`."""
        if not self.is_resource:
            return f"{self.verb} {self.path}"
        target = f"{self.plural}/{self.subresource}" if self.subresource else self.plural
        return f"{self.verb} {target}"

    @property
    def mutating(self) -> bool:
        return self.verb not in ("get", "list", "watch")

    def flag(self, name: str) -> bool:
        return self.query.get(name, "") in _TRUE

    def number(self, name: str, default: int = 0) -> int:
        text = self.query.get(name, "")
        if not text:
            return default
        if not text.isdigit():
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax (parameter {name})')
        return int(text)


def parse(method: str, path: str, query: Mapping[str, str]) -> RequestInfo:
    """The request in Kubernetes' terms; a path that is no resource's has no `plural`."""
    verb = _VERBS.get(method, method.lower())
    parts = [p for p in path.split("/") if p]
    if parts[:1] == ["api"] and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return RequestInfo(verb, path, query)
    namespace = ""
    # /namespaces/x and /namespaces/x/status are about the namespace, anything longer about what lies in it.
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    subresource = "/".join(rest[2:])
    if verb == "get" and query.get("watch", "") in _TRUE:
        verb = "watch"
    elif verb == "get" and not name:
        verb = "list"
    elif verb == "delete" and not name:
        verb = "deletecollection"
    return RequestInfo(verb, path, query, group, version, namespace, rest[0], name, subresource)
