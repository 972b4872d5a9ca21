"""The caller of a request, and what it may do: bearer tokens in a table, and rights as fixed rules.

Authentication follows a real server's token authenticators (static token, bootstrap tokens in Secrets, tokens issued
through signing requests); authorization is the outcome of RBAC's `system:node-bootstrapper` and of the Node authorizer
with the NodeRestriction plugin, for the verbs that are served.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from simulator.kube.csr import BOOTSTRAPPERS_GROUP, NODE_PREFIX, NODES_GROUP
from simulator.kube.errors import ApiError, forbidden
from simulator.kube.objects import Obj, dig, parse_time
from simulator.kube.resources import EVENTS, LEASES, NODES, PODS, SIGNING_REQUESTS, Resource
from simulator.kube.selectors import Selector

BOOTSTRAP_TYPE = "bootstrap.kubernetes.io/token"
LEASE_NAMESPACE = "kube-node-lease"
_AUTHENTICATED = "system:authenticated"
_MASTERS = "system:masters"
_BOOTSTRAP_USER = "system:bootstrap:"
_BOOTSTRAP_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_MIRROR = "kubernetes.io/config.mirror"  # simulated kubelets have no static pods, so there are no mirror pods
_WRITES = ("create", "update", "patch", "delete")


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...]

    @property
    def node(self) -> str | None:
        """The node of the kubelet that this user is."""
        return self.name.removeprefix(NODE_PREFIX) if NODES_GROUP in self.groups else None

    @property
    def is_admin(self) -> bool:
        return _MASTERS in self.groups


ADMIN = User("admin", (_MASTERS, _AUTHENTICATED))
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


@dataclass(frozen=True)
class Attributes:
    """What is asked for, as an authorizer sees it."""

    user: User
    verb: str
    resource: Resource
    subresource: str = ""
    namespace: str = ""
    name: str = ""


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Authenticator:
    """Finds the user of a bearer token. Issued tokens are kept as digests: a dump gives none away."""

    def __init__(self, admin_token: str, bootstrap_secret: Callable[[str], Obj | None]) -> None:
        self._bootstrap_secret = bootstrap_secret
        self._known: dict[str, User] = {}
        """Digest of a token to its user, like a static token file."""
        self.admit(admin_token)
        self.issued: dict[str, str] = {}
        """Digest of a kubelet's token to the name of its node."""

    def admit(self, token: str, user: User = ADMIN) -> None:
        """Admits a token: from now on it is the user's, beside others."""
        self._known[_digest(token)] = user

    def revoke(self, token: str) -> None:
        """Revokes a token: from now on it is refused. An open watch goes on, as with a real server."""
        self._known.pop(_digest(token), None)

    def issue(self, node: str) -> str:
        """Issues a new token for the kubelet of that node; its characters are those of a PEM body."""
        token = base64.b64encode(os.urandom(36)).decode()
        self.issued[_digest(token)] = node
        return token

    def authenticate(self, header: str | None) -> User:
        """The user of an Authorization header, ANONYMOUS without one. Raises 401 for a token nobody knows."""
        if not header:
            return ANONYMOUS
        scheme, _, token = header.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise unauthorized()
        if user := self._known.get(_digest(token)):
            return user
        if node := self.issued.get(_digest(token)):
            return User(NODE_PREFIX + node, (NODES_GROUP, _AUTHENTICATED))
        if m := _BOOTSTRAP_TOKEN.fullmatch(token):
            return self._bootstrapper(m[1], m[2])
        raise unauthorized()

    def _bootstrapper(self, token_id: str, token_secret: str) -> User:
        secret = self._bootstrap_secret(f"bootstrap-token-{token_id}")
        if secret is None or secret.get("type") != BOOTSTRAP_TYPE or secret["metadata"].get("deletionTimestamp"):
            raise unauthorized()
        data = {name: _decoded(value) for name, value in (secret.get("data") or {}).items()}
        if (
            data.get("token-id") != token_id
            or not hmac.compare_digest(data.get("token-secret", "").encode(), token_secret.encode())
            or data.get("usage-bootstrap-authentication") != "true"
            or _expired(data.get("expiration"))
        ):
            raise unauthorized()
        extra = tuple(g for g in data.get("auth-extra-groups", "").split(",") if g)
        return User(_BOOTSTRAP_USER + token_id, (BOOTSTRAPPERS_GROUP, *extra, _AUTHENTICATED))


def _decoded(value: str) -> str:
    try:
        return base64.b64decode(value).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _expired(expiration: str | None) -> bool:
    """Whether it has expired. An unreadable expiration counts as passed, as upstream."""
    if not expiration:
        return False
    try:
        return parse_time(expiration) <= datetime.now(UTC)
    except ValueError:
        return True


class Authorizer:
    """Raises 403 for what the caller may not do. `lookup` finds a stored object: a kubelet's rights depend on it."""

    def __init__(self, lookup: Callable[[Resource, str, str], Obj | None]) -> None:
        self._lookup = lookup

    def check(self, asked: Attributes, selector: Selector) -> None:
        user = asked.user
        if user.is_admin or (asked.resource.virtual and asked.verb == "create" and user is not ANONYMOUS):
            return
        if user.node is not None:
            self._check_kubelet(asked, user.node, selector)
        elif BOOTSTRAPPERS_GROUP in user.groups:
            self._check_signing_request(asked)
        else:
            raise denied(asked)

    def _check_signing_request(self, asked: Attributes) -> None:
        """Checks that the caller may make signing requests and read them all: what RBAC's system:node-bootstrapper
        says."""
        if asked.resource.id != SIGNING_REQUESTS.id or asked.subresource:
            raise denied(asked)
        if asked.verb not in ("create", "get", "list", "watch"):
            raise denied(asked)

    def _check_kubelet(self, asked: Attributes, node: str, selector: Selector) -> None:
        resource = asked.resource
        if resource.id == NODES.id and asked.subresource in ("", "status"):
            self._check_node(asked, node, selector)
        elif resource.id == PODS.id:
            self._check_pod(asked, node, selector)
        elif resource.id == LEASES.id:
            self._check_lease(asked, node)
        elif resource.id == EVENTS.id:
            if asked.verb not in ("create", "update", "patch"):
                raise denied(asked)
        elif resource.id == SIGNING_REQUESTS.id:
            self._check_signing_request(asked)
        elif resource.plural in ("secrets", "configmaps", "persistentvolumeclaims", "persistentvolumes"):
            why = (
                f"no relationship found between node '{node}' and this object" if asked.name else "No Object name found"
            )
            raise denied(asked, why)
        else:
            raise denied(asked)

    def _check_lease(self, asked: Attributes, node: str) -> None:
        why = "can only access node lease with the same name as the requesting node"
        if asked.namespace != LEASE_NAMESPACE:
            raise denied(asked, f'can only access leases in the "{LEASE_NAMESPACE}" system namespace')
        if asked.verb == "create" and asked.name != node:
            raise forbidden(asked.resource, asked.name, why)
        if asked.verb not in ("get", *_WRITES) or asked.name != node:
            raise denied(asked, why)

    def _check_node(self, asked: Attributes, node: str, selector: Selector) -> None:
        if asked.verb in ("create", "update", "patch"):
            if asked.name != node and (asked.name or asked.verb != "create"):
                why = f'node "{node}" is not allowed to modify node "{asked.name}"'
                raise forbidden(asked.resource, asked.name, why)
        elif asked.verb in ("get", "list", "watch"):
            wanted = asked.name or selector.exact.get("metadata.name")
            if wanted != node:
                shown = f"'{wanted}'" if wanted else "all nodes"
                raise denied(asked, f"node '{node}' cannot read {shown}, only its own Node object")
        else:
            raise denied(asked)

    def _check_pod(self, asked: Attributes, node: str, selector: Selector) -> None:
        if asked.verb in ("list", "watch"):
            if selector.exact.get("spec.nodeName") != node:
                raise denied(asked, "can only list/watch pods with spec.nodeName field selector")
            return
        pod = self._lookup(asked.resource, asked.namespace, asked.name)
        own = dig(pod, "spec.nodeName") == node
        match asked.verb, asked.subresource:
            case "get", "" | "status":
                if not own:
                    raise denied(asked, f"no relationship found between node '{node}' and this object")
            case "delete", "":
                # A pod that is gone is 404 to its kubelet, not 403: its last deletion may be a repetition.
                if pod is not None and not own:
                    why = f'node "{node}" can only delete pods with spec.nodeName set to itself'
                    raise forbidden(asked.resource, asked.name, why)
            case "update" | "patch", "status":
                if pod is not None and not own:
                    why = f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'
                    raise forbidden(asked.resource, asked.name, why)
            case "create", "eviction":
                if pod is not None and not own:
                    why = f"node {node} can only evict pods with spec.nodeName set to itself"
                    raise forbidden(asked.resource, asked.name, why)
            case "create", "":
                why = f'pod does not have "{_MIRROR}" annotation, node "{node}" can only create mirror pods'
                raise forbidden(asked.resource, asked.name, why)
            case _:
                raise denied(asked)


def denied(asked: Attributes, why: str = "") -> ApiError:
    """403 in the words of an authorizer."""
    resource = f"{asked.resource.plural}/{asked.subresource}" if asked.subresource else asked.resource.plural
    scope = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    text = (
        f'User "{asked.user.name}" cannot {asked.verb} resource "{resource}" '
        f'in API group "{asked.resource.group}" {scope}'
    )
    # The path of a create has no name, and an authorizer sees nothing else.
    name = None if asked.verb == "create" and not asked.subresource else asked.name or None
    return forbidden(asked.resource, name, f"{text}: {why}" if why else text)
