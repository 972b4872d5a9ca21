"""The template controller: the MachineConfigs of the templates are always as the templates and the ControllerConfig
say, and the ControllerConfig's status says whether they are.

Upstream restores an edited one only when something else happens; until then the edit is rendered and rolled out. Here
they are restored before anything is rendered.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from planners.machine_config.gotemplate import ConfigTemplateError
from planners.machine_config.objects import (
    Obj,
    annotations_of,
    changed,
    condition,
    generation_of,
    is_deleting,
    is_generated,
    name_of,
    newer,
    owner_of,
    status_of,
    with_conditions,
)
from planners.machine_config.owned import kept
from planners.machine_config.picture import (
    ConfigChanges,
    ConfigEvent,
    Picture,
    RenderOptions,
    RenderTrouble,
    deleted,
    updated,
)
from planners.machine_config.templates import render
from resources.machine_config.keys import (
    CONTROLLER,
    CONTROLLER_CONFIG,
    GENERATED_BY,
    GENERATED_BY_VERSION,
    KUBELET_CONFIG,
    MACHINE_CONFIG,
)


class Sources(NamedTuple):
    """Where the templates' MachineConfigs stand."""

    changes: ConfigChanges
    stopped: str = ""
    """Why nothing is rendered at all; "" if it may be."""
    hands_off: bool = False
    """A newer Hostler is at work: not even a status is written."""


def the_one(controllers: Sequence[Obj]) -> Obj | None:
    """The ControllerConfig that counts."""
    return next((c for c in controllers if name_of(c) == CONTROLLER and not is_deleting(c)), None)


def plan(picture: Picture, options: RenderOptions, now: datetime) -> Sources:
    if stopped := _newer(picture.configs, options):
        return Sources(ConfigChanges(troubles=(stopped,)), stopped.message, hands_off=True)
    ignored = _ignored(picture.controller_configs, now)
    controller = the_one(picture.controller_configs)
    if controller is None:
        return Sources(ignored)
    stamp = annotations_of(controller).get(GENERATED_BY_VERSION, options.version)
    try:
        if stamp != options.version:
            raise ConfigTemplateError(
                f"it is for version {stamp} of the controller, and this is {options.version}: let the two be the same, "
                f"or take the annotation {GENERATED_BY_VERSION} away"
            )
        wanted = render(picture.templates, controller, options.version)
    except ConfigTemplateError as e:
        words = f"ControllerConfig {CONTROLLER} is not rendered: {e}"
        trouble = RenderTrouble(CONTROLLER_CONFIG, CONTROLLER, "TemplatesNotRendered", words)
        return Sources(ignored + _told(controller, words, now) + ConfigChanges(troubles=(trouble,)), words)
    found = _kept(wanted, controller, picture.configs)
    return Sources(ignored + (found if found.changes else _told(controller, "", now)))


def _newer(configs: Sequence[Obj], options: RenderOptions) -> RenderTrouble | None:
    """An older worker beside a newer one would undo what that does, and each would roll its own out for ever."""
    for config in configs:
        made_by = annotations_of(config).get(GENERATED_BY, "")
        source = owner_of(config, CONTROLLER_CONFIG) or owner_of(config, KUBELET_CONFIG)
        if source and newer(made_by, options.version):
            words = (
                f"MachineConfig {name_of(config)} was made by Hostler {made_by}, and this worker is {options.version}"
            )
            advice = "upgrade this worker; to go back to its release, stop the newer ones and delete this MachineConfig"
            return RenderTrouble(MACHINE_CONFIG, name_of(config), "NewerVersion", f"{words}; {advice}")
    return None


def _kept(wanted: Sequence[dict[str, Any]], controller: Obj, configs: Sequence[Obj]) -> ConfigChanges:
    changes = [change for w in wanted if (change := kept(w, configs))]
    events = [
        ConfigEvent(
            MACHINE_CONFIG,
            c.name,
            True,
            "Restored",
            f"Hostler owns it, and has made it as the templates say: {c.words}",
        )
        for c in changes
        if c.verb == "update"
    ]
    names = {name_of(w) for w in wanted}
    for config in configs:
        ours = owner_of(config, CONTROLLER_CONFIG) is not None and is_generated(config)
        if ours and name_of(config) not in names and not is_deleting(config):
            changes.append(deleted(MACHINE_CONFIG, config, "no template makes it any more"))
    return ConfigChanges(tuple(changes), tuple(events))


def _told(controller: Obj, failure: str, now: datetime) -> ConfigChanges:
    """The ControllerConfig's status, and an Event where it changes for the worse."""
    done = "False" if failure else "True"
    reason = "TemplatesNotRendered" if failure else "TemplatesRendered"
    wanted = [
        {"type": "TemplateControllerCompleted", "status": done, "reason": reason, "message": failure},
        {"type": "TemplateControllerRunning", "status": "False", "reason": reason, "message": ""},
        {
            "type": "TemplateControllerFailing",
            "status": "True" if failure else "False",
            "reason": reason,
            "message": failure,
        },
    ]
    status = {"observedGeneration": generation_of(controller), "conditions": with_conditions(controller, wanted, now)}
    after = changed(controller, status=status)
    if status_of(after) == status_of(controller):
        return ConfigChanges()
    events = (ConfigEvent(CONTROLLER_CONFIG, CONTROLLER, True, reason, failure),) if failure else ()
    return ConfigChanges((updated(CONTROLLER_CONFIG, controller, after, reason, status=True),), events)


def _ignored(controllers: Sequence[Obj], now: datetime) -> ConfigChanges:
    """Tells, once, that a ControllerConfig of another name does nothing."""
    found = ConfigChanges()
    for other in controllers:
        if name_of(other) == CONTROLLER or is_deleting(other) or condition(other, "Ignored"):
            continue
        words = f"Only the ControllerConfig {CONTROLLER} counts; rename this one, or delete it"
        wanted = [{"type": "Ignored", "status": "True", "reason": "OtherName", "message": words}]
        after = changed(other, status={"conditions": with_conditions(other, wanted, now)})
        event = ConfigEvent(CONTROLLER_CONFIG, name_of(other), True, "Ignored", words)
        found += ConfigChanges((updated(CONTROLLER_CONFIG, other, after, "OtherName", status=True),), (event,))
    return found
