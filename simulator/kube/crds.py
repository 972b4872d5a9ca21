"""CustomResourceDefinitions: their own rules, and the resource each of them adds.

Not emulated, and refused: more than one served version, conversion webhooks, CEL rules (`x-kubernetes-validations`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from simulator.kube.errors import FieldErrors
from simulator.kube.jsonpath import JsonPathError, compile_path
from simulator.kube.objects import Obj, set_condition
from simulator.kube.resources import CustomShape, Resource

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_SUBRESOURCES = {"status", "scale"}


def prepare(definition: Obj, old: Obj | None, errors: FieldErrors) -> None:
    """Completes and checks a definition in place. It is Established at once: there is nothing to wait for here."""
    spec = definition.setdefault("spec", {})
    names = spec.get("names") or {}
    if definition["metadata"]["name"] != f"{names.get('plural')}.{spec.get('group')}":
        errors.invalid("metadata.name", definition["metadata"]["name"], 'must be spec.names.plural+"."+spec.group')
    for name in ("plural", "kind"):
        if not names.get(name):
            errors.required(f"spec.names.{name}")
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        errors.unsupported("spec.scope", spec.get("scope"), ("Cluster", "Namespaced"))
    if (spec.get("conversion") or {}).get("strategy", "None") != "None":
        errors.forbidden("spec.conversion", "the simulator does not call conversion webhooks")
    _check_versions(spec.get("versions") or [], errors)
    if old is not None and old["spec"]["scope"] != spec.get("scope"):
        errors.invalid("spec.scope", spec.get("scope"), "field is immutable")
    if errors:
        return
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})
    if old is None:
        finalizers = definition["metadata"].setdefault("finalizers", [])
        if CLEANUP_FINALIZER not in finalizers:
            finalizers.append(CLEANUP_FINALIZER)
    _establish(definition)


def _check_versions(versions: list[Obj], errors: FieldErrors) -> None:
    served = [v for v in versions if v.get("served")]
    if len([v for v in versions if v.get("storage")]) != 1:
        errors.invalid("spec.versions", len(versions), "must have exactly one version marked as storage version")
    if len(served) != 1:
        errors.forbidden("spec.versions", f"the simulator serves exactly one version of a kind, not {len(served)}")
    for i, version in enumerate(versions):
        field = f"spec.versions[{i}]"
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not isinstance(schema, dict):
            errors.required(f"{field}.schema.openAPIV3Schema", "schemas are required")
            continue
        for path, why in _refused(schema, f"{field}.schema.openAPIV3Schema"):
            errors.forbidden(path, why)
        if unknown := set(version.get("subresources") or ()) - _SUBRESOURCES:
            errors.forbidden(f"{field}.subresources", f"unknown subresources: {', '.join(sorted(unknown))}")
        for j, column in enumerate(version.get("additionalPrinterColumns") or ()):
            try:
                compile_path(str(column.get("jsonPath")))
            except JsonPathError as e:
                errors.invalid(f"{field}.additionalPrinterColumns[{j}].jsonPath", column.get("jsonPath"), str(e))


def _refused(schema: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(schema, list):
        for i, sub in enumerate(schema):
            yield from _refused(sub, f"{path}[{i}]")
    if not isinstance(schema, dict):
        return
    if "x-kubernetes-validations" in schema:
        yield f"{path}.x-kubernetes-validations", "the simulator does not evaluate CEL rules; leave them out"
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        try:
            re.compile(pattern)
        except re.error as e:
            yield f"{path}.pattern", f"must be a valid regular expression, but isn't: {e}"
    for name in ("properties", "additionalProperties", "items", "allOf", "anyOf", "oneOf", "not"):
        part = schema.get(name)
        if name == "properties" and isinstance(part, dict):
            for key, sub in part.items():
                yield from _refused(sub, f"{path}.properties[{key}]")
        else:
            yield from _refused(part, f"{path}.{name}")


def _establish(definition: Obj) -> None:
    spec, status = definition["spec"], definition.setdefault("status", {})
    status["acceptedNames"] = dict(spec["names"])
    status["storedVersions"] = [v["name"] for v in spec["versions"] if v["storage"]]
    set_condition(definition, "NamesAccepted", "True", "NoConflicts", "no conflicts found")
    set_condition(definition, "Established", "True", "InitialNamesAccepted", "the initial names have been accepted")


def resource_of(definition: Obj) -> Resource:
    """The resource a definition serves."""
    spec = definition["spec"]
    names = spec["names"]
    version = next(v for v in spec["versions"] if v["served"])
    subresources = version.get("subresources") or {}
    return Resource(
        spec["group"],
        version["name"],
        names["plural"],
        names["kind"],
        spec["scope"] == "Namespaced",
        tuple(s for s in ("status", "scale") if s in subresources),
        tuple(names.get("shortNames") or ()),
        {f["jsonPath"].removeprefix("."): "" for f in version.get("selectableFields") or ()},
        generation=True,
        unconditional_update=False,
        singular=names["singular"],
        list_kind=names["listKind"],
        custom=CustomShape(
            version["schema"]["openAPIV3Schema"],
            subresources.get("scale"),
            tuple(version.get("additionalPrinterColumns") or ()),
        ),
    )
