"""The MachineConfigs that every machine of a role has, made of the templates and the ControllerConfig.

A template of a file or unit is YAML as Butane has it: a file's contents stand at `contents.inline`, everything else is
Ignition's. What is not there, or wrong, is said with its file and line; then none of them is written, for half of them
would be a config that nobody meant.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from planners.machine_config.gotemplate import ConfigTemplateError, Variables, expand
from planners.machine_config.ignition import IgnitionError, read
from planners.machine_config.ignition_schema import VERSION
from planners.machine_config.layers import RoleConfig, platform_of, wanted
from planners.machine_config.objects import Obj, name_of, owner_reference, spec_of, uid_of
from resources.documents import DocumentError, documents
from resources.machine_config.keys import API, CONTROLLER_CONFIG, GENERATED_BY, MACHINE_CONFIG, ROLE_LABEL

_BYTES = (
    "cloudProviderCAData",
    "etcdCAData",
    "etcdMetricCAData",
    "internalRegistryPullSecret",
    "kubeAPIServerServingCAData",
    "rootCAData",
)
"""Fields of the ControllerConfig that Go knows as bytes, so that JSON has them in base64. Plain text is taken too."""
_NOTHING: dict[str, Any] = {
    "additionalTrustBundle": "",
    "baseOSExtensionsContainerImage": "",
    "cloudProviderCAData": "",
    "cloudProviderConfig": "",
    "images": {},
    "internalRegistryPullSecret": "",
    "ipFamilies": "",
    "networkType": "",
    "osImageURL": "",
    "proxy": {},
    "tlsCipherSuites": [],
    "tlsMinVersion": "",
}
"""What a template finds where the ControllerConfig does not say it: fields that a cluster need not have."""
_PROXY = ("httpProxy", "httpsProxy", "noProxy")
FAULTS_MOST = 5


def variables(controller: Obj) -> Variables:
    """What templates may name. Raises ConfigTemplateError."""
    spec = dict(spec_of(controller))
    if spec.pop("pullSecret", None):
        raise ConfigTemplateError(
            "spec.pullSecret: no Secret is read for templates; write the credentials at internalRegistryPullSecret, or "
            "into a MachineConfig of your own, and leave this out"
        )
    for key in _BYTES:
        if isinstance(text := spec.get(key), str) and text:
            spec[key] = _decoded(key, text)
    given = {**_NOTHING, **{k: v for k, v in spec.items() if v is not None}}
    if isinstance(given["proxy"], Mapping) and given["proxy"]:
        given["proxy"] = {**dict.fromkeys(_PROXY, ""), **given["proxy"]}
    return Variables({**given, "platform": platform_of(spec), "pullSecret": given["internalRegistryPullSecret"]})


def _decoded(key: str, text: str) -> str:
    if "-----BEGIN" in text or text.lstrip().startswith("{"):
        return text
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode()
    except (binascii.Error, ValueError):
        raise ConfigTemplateError(
            f"spec.{key}: it is neither PEM nor base64 of text; write it as one of them"
        ) from None


def render(templates: Mapping[str, str], controller: Obj, version: str) -> list[dict[str, Any]]:
    """The MachineConfigs of all roles, by name. Raises ConfigTemplateError, which names the first faults."""
    if not templates:
        raise ConfigTemplateError(
            "there are no templates; name their folder at machineConfigs.templates, or leave it out"
        )
    meta = {"name": name_of(controller), "uid": uid_of(controller)}
    named = json.dumps({"metadata": meta, "spec": spec_of(controller)}, sort_keys=True)
    found: list[dict[str, Any]] = json.loads(_rendered(tuple(sorted(templates.items())), named, version))
    return found


@lru_cache(maxsize=4)
def _rendered(texts: tuple[tuple[str, str], ...], named: str, version: str) -> str:
    """Renders once for all rounds of a plan: hundreds of templates take their time, and seldom change."""
    templates, controller = dict(texts), json.loads(named)
    given = variables(controller)
    made: list[dict[str, Any]] = []
    faults: list[str] = []
    for config in wanted(templates, spec_of(controller)):
        try:
            made.append(_config(config, templates, given, controller, version))
        except ConfigTemplateError as e:
            faults.append(str(e))
    if faults := list(dict.fromkeys(faults)):  # a common template is wrong for every role
        more = [f"and {len(faults) - FAULTS_MOST} more"] if len(faults) > FAULTS_MOST else []
        raise ConfigTemplateError("; ".join([*faults[:FAULTS_MOST], *more]))
    return json.dumps(sorted(made, key=lambda m: str(m["metadata"]["name"])))


def _config(
    config: RoleConfig, templates: Mapping[str, str], given: Variables, controller: Obj, version: str
) -> dict[str, Any]:
    files, units = [], []
    for name in sorted(config.files):
        path = config.files[name]
        files += [_checked(path, _file(path, d), "files") for d in _documents(path, templates[path], given)]
    for name in sorted(config.units):
        path = config.units[name]
        units += [_checked(path, d, "units") for d in _documents(path, templates[path], given)]
    ignition = {"ignition": {"version": VERSION}, "storage": {"files": files}, "systemd": {"units": units}}
    try:
        whole = read(ignition)
    except IgnitionError as e:  # two templates for one path
        raise ConfigTemplateError(f"{config.role}/{config.name}: {e}") from None
    return {
        "apiVersion": API,
        "kind": MACHINE_CONFIG.kind,
        "metadata": {
            "name": config.name,
            "labels": {ROLE_LABEL: config.role},
            "annotations": {GENERATED_BY: version},
            "ownerReferences": [owner_reference(controller, CONTROLLER_CONFIG)],
        },
        "spec": {"config": whole, "extensions": sorted(config.extensions)},
    }


def _documents(path: str, text: str, given: Variables) -> list[dict[str, Any]]:
    """What a template is made into: one table, or nothing where only blanks are left."""
    expanded = expand(path, text, given)
    if not expanded.strip():
        return []
    try:
        found = [d for d in documents(expanded) if d is not None]
    except DocumentError as e:
        raise ConfigTemplateError(f"{path}{e} (lines as they are once the variables are filled in)") from None
    if len(found) > 1 or not all(isinstance(d, dict) for d in found):
        raise ConfigTemplateError(f"{path}: a template is one table; this one makes {len(found)} documents, or a list")
    return found


def _file(path: str, given: dict[str, Any]) -> dict[str, Any]:
    contents = given.get("contents")
    if not isinstance(contents, dict) or "inline" not in contents:
        return given
    if "source" in contents or not isinstance(contents["inline"], str):
        raise ConfigTemplateError(f"{path}: contents.inline is text, and stands alone, without contents.source")
    rest = {k: v for k, v in contents.items() if k != "inline"}
    return {**given, "contents": {**rest, "source": data_url(contents["inline"])}}


def _checked(path: str, given: dict[str, Any], part: str) -> dict[str, Any]:
    """The file or unit, if Ignition takes it."""
    below = {"storage": {"files": [given]}} if part == "files" else {"systemd": {"units": [given]}}
    try:
        read({"ignition": {"version": VERSION}, **below})
    except IgnitionError as e:
        where = "storage.files[0]" if part == "files" else "systemd.units[0]"
        raise ConfigTemplateError(f"{path}: {str(e).replace(f'{where}.', '')}") from None
    return given


def data_url(text: str) -> str:
    """A file's contents as Ignition holds them."""
    return f"data:,{quote(text, safe='')}"


def digest(templates: Mapping[str, str]) -> str:
    """A name for the templates' state."""
    found = hashlib.sha256()
    for path in sorted(templates):
        found.update(f"{path}\0{len(templates[path])}\0{templates[path]}".encode())
    return found.hexdigest()[:16]
