"""Questions a caller may ask about itself: who am I, and may I do this. Answered, never stored."""

from __future__ import annotations

from typing import Any

from simulator.kube.auth import Attributes, Authorizer, User
from simulator.kube.errors import ApiError, bad_request
from simulator.kube.objects import Obj, now
from simulator.kube.resources import ACCESS_REVIEWS, Resource, Resources
from simulator.kube.selectors import Selector


def answer(resource: Resource, body: Any, user: User, authorizer: Authorizer, resources: Resources) -> Obj:
    """The review with its status filled in. Raises 400 for a body that is no review."""
    if not isinstance(body, dict):
        raise bad_request(f"the body is not a {resource.kind}")
    review: Obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": {"creationTimestamp": now()}}
    if resource.id != ACCESS_REVIEWS.id:
        return {**review, "status": {"userInfo": {"username": user.name, "groups": list(user.groups)}}}
    spec = body.get("spec") or {}
    return {**review, "spec": spec, "status": _allowed(spec, user, authorizer, resources)}


def _allowed(spec: Obj, user: User, authorizer: Authorizer, resources: Resources) -> Obj:
    if spec.get("nonResourceAttributes"):
        return {"allowed": spec["nonResourceAttributes"].get("verb") in ("get", "*")}
    asked = spec.get("resourceAttributes")
    if not isinstance(asked, dict):
        raise bad_request("exactly one of nonResourceAttributes or resourceAttributes must be specified")
    if user.is_admin:
        return {"allowed": True}
    resource = resources.by_id((asked.get("group", ""), asked.get("resource", "")))
    if resource is None:
        return {"allowed": False, "reason": "the resource is not served"}
    subresource, namespace, name = asked.get("subresource", ""), asked.get("namespace", ""), asked.get("name", "")
    attributes = Attributes(user, asked.get("verb", ""), resource, subresource, namespace, name)
    try:
        authorizer.check(attributes, Selector())
    except ApiError as e:
        return {"allowed": False, "reason": e.message}
    return {"allowed": True}
