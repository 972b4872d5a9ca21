"""hostler get, describe and delete of machine configs, kubelet configs and controller configs: custom resources of the
cluster's own API."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from starter.commands.common import Session
from starter.commands.kinds import CONTROLLER_CONFIG, KUBELET_CONFIG, MACHINE_CONFIG
from starter.commands.objects import ListedObject, wholes
from starter.commands.rows import AGE, Column, Listing, key_of, listed, phase_style, those_named

if TYPE_CHECKING:
    from resources.machine_config.keys import ConfigKind
    from starter.commands.selection import Selection
    from starter.sdk.client import HostlerClient
    from starter.sdk.entity import EntityKey
    from starter.sdk.machine_config.objects import ConfigObjects
    from starter.sdk.results import Json


class ListedConfig(ListedObject):
    def annotation(self, key: str) -> str:
        return str((self.whole["metadata"].get("annotations") or {}).get(key, ""))

    def spec(self, *path: str) -> Any:
        """A field below spec; None where there is none."""
        here: Any = self.part("spec")
        for step in path:
            here = here.get(step) if isinstance(here, dict) else None
        return here

    @property
    def condition(self) -> Json:
        """The newest condition: it is the last."""
        found = self.part("status").get("conditions") or []
        return found[-1] if found else {}

    @property
    def outcome(self) -> str:
        """Ready, or why not, in one word; "" where nothing has been said yet."""
        said = self.condition
        bad = said.get("type") in ("Failure", "TemplateControllerFailing") or said.get("status") == "False"
        return "" if not said else str(said.get("reason") or "Failed") if bad else "Ready"


def _generated(c: ListedConfig) -> str:
    from resources.machine_config.keys import GENERATED_BY

    return c.annotation(GENERATED_BY)


def _owner(c: ListedConfig) -> str:
    owners = c.whole["metadata"].get("ownerReferences") or []
    return ",".join(f"{o.get('kind')}/{o.get('name')}" for o in owners)


def _role(c: ListedConfig) -> str:
    from resources.machine_config.keys import ROLE_LABEL

    return str((c.whole["metadata"].get("labels") or {}).get(ROLE_LABEL, ""))


NAMED: Column[ListedConfig] = Column("NAME", lambda c: c.name)
AGED: Column[ListedConfig] = Column(AGE, lambda c: c.created, drop=3)
OUTCOME: Column[ListedConfig] = Column("STATUS", lambda c: c.outcome, style=lambda c: phase_style(c.outcome))
MESSAGE: Column[ListedConfig] = Column("MESSAGE", lambda c: str(c.condition.get("message") or ""), drop=1)
COLUMNS: dict[str, tuple[Column[ListedConfig], ...]] = {
    MACHINE_CONFIG: (
        NAMED,
        Column("ROLE", _role),
        Column("IGNITION", lambda c: str(c.spec("config", "ignition", "version") or ""), drop=2),
        Column("OWNER", _owner, drop=1),
        AGED,
        Column("GENERATED-BY", _generated, wide=True),
        Column("OS-IMAGE", lambda c: str(c.spec("osImageURL") or ""), wide=True),
    ),
    KUBELET_CONFIG: (NAMED, OUTCOME, MESSAGE, AGED),
    CONTROLLER_CONFIG: (NAMED, OUTCOME, MESSAGE, AGED),
}


async def listing(which: str, here: Session, chosen: Selection, stack: AsyncExitStack) -> Listing[ListedConfig]:
    """The cluster stays connected until the stack is closed."""
    from resources.machine_config.keys import kind_called
    from starter.sdk.machine_config.objects import config_objects

    cluster, of = here.cluster or here.settings.default_cluster, kind_called(which)
    objects = await stack.enter_async_context(config_objects(here.settings, cluster))
    labelled = f" with labels {chosen.selector}" if chosen.selector else ""
    missing: list[str] = []
    return Listing(
        listed(COLUMNS[which], False),
        find=partial(_read, objects, of, chosen, missing),
        key=key_of(which, False),
        objects=wholes,
        nothing=f"No {of.kind}s found in cluster {cluster}{labelled}.",
        state="STATUS",
        missing=missing,
    )


async def _read(objects: ConfigObjects, of: ConfigKind, chosen: Selection, missing: list[str]) -> list[ListedConfig]:
    from starter.output import Busy

    async with Busy(f"waiting for the API of cluster {objects.cluster}"):
        if chosen.names:
            found = await those_named(chosen.names, partial(objects.get, of), missing)
        else:
            found = await objects.every(of, str(chosen.selector) if chosen.selector else "")
    return sorted((ListedConfig(objects.cluster, one) for one in found), key=lambda c: c.name)


# -- describe ---------------------------------------------------------------------------------------------------------


async def page_of(which: str, here: Session, name: str, now: datetime) -> list[str]:
    """All about one, as lines. Raises NotFound."""
    from resources.machine_config.keys import kind_called
    from starter.commands.machine_config_page import page
    from starter.sdk.machine_config.description import describe
    from starter.sdk.machine_config.objects import config_objects

    async with config_objects(here.settings, here.cluster or here.settings.default_cluster) as objects:
        return page(await describe(objects, kind_called(which), name), now)


# -- delete -----------------------------------------------------------------------------------------------------------


async def deletion_foretold(which: str, client: HostlerClient, key: EntityKey) -> list[str]:
    """What --dry-run says. Raises what the deletion would be refused with."""
    from resources.machine_config.keys import kind_called

    cluster, name = key
    lines = await client.config_pools.foretell(kind_called(which), name, cluster=cluster)
    return ["deletion (dry run)", *(f"  {line}" for line in lines)]


async def delete(which: str, client: HostlerClient, key: EntityKey) -> list[str]:
    """What has come of it: the objects are the cluster's, so no worker is asked."""
    from resources.machine_config.keys import kind_called

    cluster, name = key
    lines = await client.config_pools.delete(kind_called(which), name, cluster=cluster)
    return ["deleted", *(f"  {line}" for line in lines)]
