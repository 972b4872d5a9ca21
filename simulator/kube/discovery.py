"""Discovery: which groups, versions and resources are served, as client-go and kubectl ask for it."""

from __future__ import annotations

from simulator.kube.errors import no_such_resource
from simulator.kube.objects import Obj
from simulator.kube.resources import Resource, Resources

KUBERNETES_VERSION = "1.36"
"""The release whose behaviour is followed."""

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_CREATE_ONLY = {"eviction": "Eviction", "binding": "Binding"}


def version_info() -> Obj:
    major, minor = KUBERNETES_VERSION.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{KUBERNETES_VERSION}.0+hostler.simulator",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }


def api_versions() -> Obj:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _group(name: str, versions: list[str]) -> Obj:
    listed = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def group_list(resources: Resources) -> Obj:
    groups = [_group(name, versions) for name, versions in resources.group_versions().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(resources: Resources, name: str) -> Obj:
    versions = resources.group_versions().get(name)
    if not name or not versions:
        raise no_such_resource()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def resource_list(resources: Resources, group_name: str, version: str) -> Obj:
    served = resources.of(group_name, version)
    if not served:
        raise no_such_resource()
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": served[0].api_version,
        "resources": [entry for resource in served for entry in _entries(resource)],
    }


def _entries(resource: Resource) -> list[Obj]:
    main: Obj = {
        "name": resource.plural,
        "singularName": resource.kind_singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": ["create"] if resource.virtual else _VERBS,
    }
    if resource.short_names:
        main["shortNames"] = list(resource.short_names)
    entries = [main]
    for subresource in resource.subresources:
        entry: Obj = {
            "name": f"{resource.plural}/{subresource}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": _CREATE_ONLY.get(subresource, resource.kind),
            "verbs": ["create"] if subresource in _CREATE_ONLY else ["get", "patch", "update"],
        }
        if subresource == "eviction":
            entry |= {"group": "policy", "version": "v1"}
        if subresource == "scale":
            entry |= {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        entries.append(entry)
    return entries
