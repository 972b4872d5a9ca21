"""What is to be done so that every pool has the rendered config that its objects ask for: the controllers, in order.

The plan is asked again after each batch, until it wants nothing. A later stage begins when the earlier ones want
nothing any more, so that no pool is rendered from sources of which some are still to be written: each half would be a
reboot of every node.
"""

from __future__ import annotations

from datetime import datetime

from planners.machine_config import controller, kubelet
from planners.machine_config.collect import collect
from planners.machine_config.objects import Obj, changed, is_deleting, name_of, spec_of, status_of, with_conditions
from planners.machine_config.owned import kept
from planners.machine_config.picture import ConfigChanges, ConfigEvent, Picture, RenderOptions, RenderTrouble, updated
from planners.machine_config.render import Rendered, RenderRefused, render
from resources.machine_config.keys import API, MACHINE_CONFIG, MACHINE_CONFIG_POOL


def plan(picture: Picture, options: RenderOptions, now: datetime) -> ConfigChanges:
    """The next batch; empty when all is as it should be, or waits for a person (`troubles`)."""
    sources = controller.plan(picture, options, now)
    if sources.changes.changes or sources.hands_off:
        return sources.changes
    found = sources.changes
    if not sources.stopped:
        found += kubelet.plan(picture, options, now)
        if found.changes:
            return found
    for pool in sorted(picture.pools, key=name_of):
        if not is_deleting(pool) and not spec_of(pool).get("paused"):
            found += _pool(pool, picture, options, now, sources.stopped)
    return found if found.changes else found + collect(picture, options, now)


def _pool(pool: Obj, picture: Picture, options: RenderOptions, now: datetime, stopped: str) -> ConfigChanges:
    the_controllers = controller.the_one(picture.controller_configs)
    made: Rendered | RenderRefused
    if stopped:
        made = RenderRefused("SourcesNotComplete", f"Pool {name_of(pool)} is not rendered: {stopped}")
    else:
        made = render(pool, picture.configs, spec_of(the_controllers) if the_controllers else {}, options)
    if isinstance(made, RenderRefused):
        trouble = RenderTrouble(MACHINE_CONFIG_POOL, name_of(pool), made.reason, made.message)
        return _told(pool, made, None, now) + ConfigChanges(troubles=(trouble,))
    if change := kept(made.config, picture.configs):
        words = f"{made.name} was rendered of {', '.join(made.source)}"
        event = ConfigEvent(MACHINE_CONFIG_POOL, name_of(pool), False, "RenderedConfigGenerated", words)
        restored = ConfigEvent(
            MACHINE_CONFIG, made.name, True, "Restored", f"It is as it was rendered again: {change.words}"
        )
        return ConfigChanges((change,), (event if change.verb == "create" else restored,))
    source = [{"apiVersion": API, "kind": MACHINE_CONFIG.kind, "name": n} for n in made.source]
    target = {"name": made.name, "source": source}
    if _target(pool) != _plain(target):
        words = f"it is to have {made.name}"
        return ConfigChanges(
            (updated(MACHINE_CONFIG_POOL, pool, changed(pool, spec={"configuration": target}), words),)
        )
    return _told(pool, None, made, now)


def _target(pool: Obj) -> tuple[str, list[str]]:
    return _plain(spec_of(pool).get("configuration") or {})


def _plain(target: Obj) -> tuple[str, list[str]]:
    return str(target.get("name") or ""), [str(s.get("name")) for s in target.get("source") or ()]


def _told(pool: Obj, refused: RenderRefused | None, made: Rendered | None, now: datetime) -> ConfigChanges:
    """The pool's condition RenderDegraded and currentMachineConfig; the rest of its status is its workflow's."""
    reason, message = (refused.reason, refused.message) if refused else ("Rendered", made.warning if made else "")
    wanted = {
        "type": "RenderDegraded",
        "status": "True" if refused else "False",
        "reason": "LargeConfig" if made and made.warning else reason,
        "message": message,
    }
    status = {"conditions": with_conditions(pool, [wanted], now)}
    if made:
        status["currentMachineConfig"] = made.name  # type: ignore[assignment]
    after = changed(pool, status=status)
    if status_of(after) == status_of(pool):
        return ConfigChanges()
    events: tuple[ConfigEvent, ...] = ()
    if message:
        events = (ConfigEvent(MACHINE_CONFIG_POOL, name_of(pool), True, wanted["reason"], message),)
    return ConfigChanges((updated(MACHINE_CONFIG_POOL, pool, after, wanted["reason"], status=True),), events)
