"""The custom resources of a cluster's machine configs, read and written through the cluster's own API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from activities.kube.client import Kube, KubeError
from activities.kube.looks import every_node
from resources.machine_config.keys import API, CONFIG_KINDS, ConfigKind
from resources.machine_config.node import ConfigNode, config_node
from resources.machine_config.objects import ConfigError, ConfigObject, MachineConfigPool, Made
from resources.settings import Settings
from starter.sdk.errors import HostlerError, NotFound, Refused
from starter.sdk.kube import connect_cluster, explained, soon
from starter.sdk.machine_config.difference import differences
from starter.sdk.results import Json, Verb
from starter.sdk.spelling import did_you_mean

MANAGER, PAUSER = "hostler", "hostler-rollout"
"""Who owns what `apply` writes, and who spec.paused after `rollout pause`: as kubectl and kubectl-rollout are apart."""
OURS = ("configuration",)
"""Fields of a pool's spec that rendering writes: `get -o yaml` prints them, and `apply` leaves them as they are."""
BY_KIND = {of.kind: of for of in CONFIG_KINDS}


def path_of(of: ConfigKind, name: str = "") -> str:
    """Where the API server has the objects of a kind, or one of them."""
    return f"/apis/{API}/{of.plural}" + (f"/{name}" if name else "")


def unknown(of: ConfigKind, name: str, cluster: str, known: Iterable[str]) -> NotFound:
    """The error for a mistyped name, as `EntityClient.unknown` has it."""
    lists = f"`hostler get {of.plural} --cluster {cluster}` lists those that are"
    return NotFound(f"{of.kind} {name!r} of cluster {cluster!r} is not known: {lists}{did_you_mean(name, known)}")


@dataclass(frozen=True)
class Comparison:
    """What applying a manifest does."""

    verb: Verb
    lines: list[str] = field(default_factory=list)
    """What changes in the object."""
    owned: bool = False
    """Whether it is applied already, so that nothing is to be sent."""


class ConfigObjects:
    """Those of one cluster. Methods raise NotFound, HostlerError for what the API server refuses, Unreachable where it
    does not answer."""

    def __init__(self, kube: Kube, settings: Settings) -> None:
        self._kube = kube
        self.cluster = kube.name
        self.settings = settings.cluster(kube.name).machine_configs if settings.clusters else None

    async def every(self, of: ConfigKind, selector: str = "") -> list[Json]:
        """All of a kind, by name."""
        query = {"labelSelector": selector} if selector else {}
        with explained(self._kube):
            try:
                found = await soon(self._kube, self._kube.get(path_of(of), **query))
            except KubeError as e:
                raise self._unserved(of, e) from None
        # Those of a list come without the two.
        return [{"apiVersion": API, "kind": of.kind, **_shown(item)} for item in found["items"]]

    async def get(self, of: ConfigKind, name: str) -> Json:
        """One by name. Raises NotFound, with the name that may be meant."""
        with explained(self._kube):
            try:
                return _shown(await soon(self._kube, self._kube.get(path_of(of, name))))
            except KubeError as e:
                if e.status != 404:
                    raise
        raise unknown(of, name, self.cluster, [str(o["metadata"]["name"]) for o in await self.every(of)])

    async def pools(self) -> list[MachineConfigPool]:
        """Every pool that can be read."""
        from resources.machine_config.keys import MACHINE_CONFIG_POOL

        return [readable(MachineConfigPool, o) for o in await self.every(MACHINE_CONFIG_POOL)]

    async def nodes(self, keys: set[str], machines: Mapping[str, str] | None = None) -> list[ConfigNode]:
        """Every Node, as machine configs see it; with these labels."""
        from resources.machine_config.keys import DIALECTS, DialectName

        preferred = DIALECTS[self.settings.annotations if self.settings else DialectName.SEED]
        found: list[ConfigNode] = []
        pages = every_node(self._kube)
        with explained(self._kube):
            while (node := await soon(self._kube, anext(pages, None))) is not None:
                found.append(config_node(node, preferred, keys))
        return found

    # -- write --------------------------------------------------------------------------------------------------------

    async def compare(self, manifest: ConfigObject, force: bool = False) -> Comparison:
        """What `write` would do: the API server says it (a dry run), so that it also says what it refuses. Raises
        Refused where somebody else has a field that the manifest would change."""
        current = await self._current(manifest)
        after = await self._apply(manifest, force, dry_run=True)
        if current is None:
            return Comparison(Verb.CREATED)
        has, meta = (current.get(part) or {} for part in ("spec", "metadata"))
        lines = [
            f"metadata.{part}: {', '.join(keys)}"
            for part in ("labels", "annotations")
            if (keys := _changed(meta.get(part) or {}, after["metadata"].get(part) or {}))
        ]
        lines += differences(has, after.get("spec") or {})
        if not lines:
            return Comparison(Verb.UNCHANGED, owned=_owned(current) == _owned(after))
        return Comparison(Verb.CONFIGURED, lines)

    async def write(self, manifest: ConfigObject, force: bool = False) -> None:
        """Makes it so: fields of the manifest become as it says, and those that it had when it was applied last, and no
        longer has, go. What others have written stays, as does what Hostler itself writes. Safe to repeat. Raises what
        `compare` raises."""
        await self._apply(manifest, force)

    async def _apply(self, manifest: ConfigObject, force: bool, dry_run: bool = False) -> Json:
        of = manifest.KIND
        call = self._kube.apply(path_of(of, manifest.name), created(manifest), MANAGER, force=force, dry_run=dry_run)
        with explained(self._kube):
            try:
                return await soon(self._kube, call)
            except KubeError as e:
                if e.status != 409 or force:
                    raise
                raise Refused(
                    f"{of.singular} {manifest.name}: {e.message.removeprefix('Apply failed with ')}\n"
                    "what can be done: write what the field has, or leave it out; --force-conflicts takes it over"
                ) from None

    async def pause(self, name: str, paused: bool) -> bool:
        """Sets spec.paused of a MachineConfigPool; False where it was so already."""
        from resources.machine_config.keys import MACHINE_CONFIG_POOL

        found = await self.get(MACHINE_CONFIG_POOL, name)
        if bool((found.get("spec") or {}).get("paused")) == paused:
            return False
        with explained(self._kube):
            patch, path = {"spec": {"paused": paused}}, path_of(MACHINE_CONFIG_POOL, name)
            await soon(self._kube, self._kube.merge_patch(path, patch, fieldManager=PAUSER))
        return True

    async def delete(self, of: ConfigKind, name: str) -> None:
        found = await self.get(of, name)
        with explained(self._kube):
            await soon(self._kube, self._kube.delete_this(path_of(of, name), found))

    async def _current(self, manifest: ConfigObject) -> Json | None:
        """The object as it is; None where there is none. Raises HostlerError where the kind is not served."""
        await self.served(manifest.KIND)
        with explained(self._kube):
            return await soon(self._kube, self._kube.find(path_of(manifest.KIND, manifest.name)))

    async def served(self, of: ConfigKind) -> None:
        """Raises HostlerError where the API server does not have the kind."""
        with explained(self._kube):
            try:
                await soon(self._kube, self._kube.get(path_of(of), limit="1"))
            except KubeError as e:
                raise self._unserved(of, e) from None

    def _unserved(self, of: ConfigKind, error: KubeError) -> Exception:
        """What to do where a kind is not served; any other error as it is."""
        if error.status != 404:
            return error
        return HostlerError(
            f"cluster {self.cluster} does not serve {of.plural} ({API}): kubectl apply -f deploy/crds makes it do so "
            "(docs/machine-configs.md)"
        )


@asynccontextmanager
async def config_objects(settings: Settings, cluster: str) -> AsyncIterator[ConfigObjects]:
    """Those of a cluster in the settings."""
    async with connect_cluster(settings, cluster) as kube:
        yield ConfigObjects(kube, settings)


def readable(model: type[Made], found: Json) -> Made:
    """The object. Raises HostlerError, which names the fields that cannot be read."""
    try:
        return model.of_dict(found)
    except ConfigError as e:
        raise HostlerError(str(e)) from None


def created(manifest: ConfigObject) -> Json:
    """The object that is made of a manifest."""
    given = manifest.to_dict()
    meta = given.get("metadata") or {}
    kept = {key: meta[key] for key in ("name", "labels", "annotations") if key in meta}
    spec = {key: value for key, value in (given.get("spec") or {}).items() if key not in _ours(manifest)}
    return {"apiVersion": given["apiVersion"], "kind": given["kind"], "metadata": kept, "spec": spec}


def _shown(found: Json) -> Json:
    """The object without what says who has written which field: as kubectl shows it."""
    return {**found, "metadata": {k: v for k, v in found["metadata"].items() if k != "managedFields"}}


def _changed(before: Json, after: Json) -> list[str]:
    return sorted(key for key in {**before, **after} if before.get(key) != after.get(key))


def _owned(obj: Json) -> Any:
    """The fields that are known as applied by Hostler."""
    managers = obj["metadata"].get("managedFields") or ()
    return [m.get("fieldsV1") for m in managers if (m.get("manager"), m.get("operation")) == (MANAGER, "Apply")]


def _ours(manifest: ConfigObject) -> tuple[str, ...]:
    return OURS if isinstance(manifest, MachineConfigPool) else ()
