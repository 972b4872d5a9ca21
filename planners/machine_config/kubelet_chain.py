"""The kubelet.conf files of one pool: what others say of it, and then each of its KubeletConfigs upon that.

Each KubeletConfig adds to those before it: all of its pool's count, and of two that set a field the newer one wins.
Upstream's newest has the defaults for whatever it does not set itself. One that cannot be merged keeps what it said
last, until it is mended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from planners.machine_config.kubelet_merge import KUBELET_CONF, KubeletError, merged, read_conf
from planners.machine_config.kubelet_names import number_of
from planners.machine_config.kubelet_rules import options_of, problem_with
from planners.machine_config.merge import MergeError, checked, in_order, merge
from planners.machine_config.objects import ConfigSelectorError, Obj, name_of, owner_of, role_of, selector_at, uid_of
from planners.machine_config.picture import Picture, RenderOptions
from planners.machine_config.render import sources_of
from resources.machine_config.keys import KUBELET_CONFIG, ROLE_LABEL


class Link(NamedTuple):
    """What becomes of one KubeletConfig in one pool."""

    name: str
    """The MachineConfig's name."""
    conf: dict[str, Any] | None = None
    """The kubelet.conf; None: its MachineConfig stays as it is."""
    reason: str = ""
    trouble: str = ""


def base_of(pool: Obj, picture: Picture, options: RenderOptions) -> dict[str, Any]:
    """The kubelet.conf that the pool would have without its own KubeletConfigs. Raises KubeletError."""
    try:
        chosen = [c for c in sources_of(pool, picture.configs) if not _our_own(c, pool, picture)]
        conf = read_conf(merge(chosen, {}, options.worker_first)["config"])
    except (ConfigSelectorError, MergeError) as e:
        raise KubeletError(f"pool {name_of(pool)} cannot be merged: {e}") from None
    if conf is None:
        raise KubeletError(
            f"no MachineConfig of pool {name_of(pool)} has a {KUBELET_CONF} to change; let the pool select those that "
            "the templates make, which need a ControllerConfig"
        )
    return conf


def _our_own(config: Obj, pool: Obj, picture: Picture) -> bool:
    """Whether it is what a KubeletConfig of this pool has made: what it does not say any more must not be found there.
    Nor may it be found at a pool that merges ours, where two merge each other's."""
    if owner_of(config, KUBELET_CONFIG) is None:
        return False
    role = role_of(config)
    other = next((p for p in picture.pools if name_of(p) == role), None)
    return role == name_of(pool) or (other is not None and is_selected(other, name_of(pool)))


def is_selected(pool: Obj, role: str) -> bool:
    """Whether a pool merges what the KubeletConfigs of a role make."""
    try:
        selector = selector_at(pool, "machineConfigSelector")
    except ConfigSelectorError:
        return False
    return selector is not None and selector.matches({ROLE_LABEL: role})


def links(
    pool: Obj, theirs: Sequence[tuple[Obj, str, str]], picture: Picture, options: RenderOptions
) -> dict[str, Link]:
    """The links by uid of the KubeletConfig. `theirs`: each with its MachineConfig's name, and why it is refused
    ("": it is not)."""
    pool_name = name_of(pool)
    if not is_selected(pool, pool_name):
        words = f"pool {pool_name} does not select {ROLE_LABEL}: {pool_name}, so it would not merge it; let it"
        return {uid_of(k): Link(name, None, "NotSelected", words) for k, name, _ in theirs}
    try:
        conf = base_of(pool, picture, options)
    except KubeletError as e:
        return {uid_of(k): Link(name, None, "NoKubeletConf", str(e)) for k, name, _ in theirs}
    found = {}
    for config, name, refusal in sorted(theirs, key=lambda t: number_of(pool_name, t[1]) or 0):
        trouble = refusal or problem_with(pool, config)
        if not trouble:
            try:
                conf = merged(conf, options_of(config))
            except KubeletError as e:
                trouble = f"pool {pool_name}: {e}"
        if trouble:
            conf = _last_good(name, config, picture.configs) or conf
            found[uid_of(config)] = Link(name, None, "Invalid", trouble)
        else:
            found[uid_of(config)] = Link(name, conf)
    return found


def _last_good(name: str, config: Obj, configs: Sequence[Obj]) -> dict[str, Any] | None:
    made = next((c for c in configs if name_of(c) == name), None)
    owner = owner_of(made, KUBELET_CONFIG) if made is not None else None
    if made is None or owner is None or owner.get("uid") != uid_of(config):
        return None
    try:
        return read_conf(checked(made))
    except (KubeletError, MergeError):
        return None


def overridden_by(pool: Obj, conf: dict[str, Any], picture: Picture, options: RenderOptions) -> str:
    """The MachineConfig whose kubelet.conf the pool has instead of the last one of its KubeletConfigs; "" if it has
    that."""
    try:
        chosen = sources_of(pool, picture.configs)
        if read_conf(merge(chosen, {}, options.worker_first)["config"]) == conf:
            return ""
        having = [c for c in in_order(chosen, options.worker_first) if read_conf(checked(c)) is not None]
    except (ConfigSelectorError, MergeError, KubeletError):
        return ""  # the pool's own condition says so
    return name_of(having[-1]) if having else ""
