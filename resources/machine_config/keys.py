"""Names of machine configs that more than one side must spell alike: kinds, labels, and annotations of Nodes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

GROUP: Final = "machineconfiguration.openshift.io"
VERSION: Final = "v1"
API: Final = "machineconfiguration.openshift.io/v1"


@dataclass(frozen=True)
class ConfigKind:
    """How the API server and people name a kind."""

    kind: str
    plural: str
    singular: str
    short: tuple[str, ...] = ()

    @property
    def crd(self) -> str:
        """The name of its CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"


MACHINE_CONFIG = ConfigKind("MachineConfig", "machineconfigs", "machineconfig", ("mc",))
MACHINE_CONFIG_POOL = ConfigKind("MachineConfigPool", "machineconfigpools", "machineconfigpool", ("mcp",))
KUBELET_CONFIG = ConfigKind("KubeletConfig", "kubeletconfigs", "kubeletconfig")
CONTROLLER_CONFIG = ConfigKind("ControllerConfig", "controllerconfigs", "controllerconfig")
CONFIG_KINDS = (MACHINE_CONFIG, MACHINE_CONFIG_POOL, KUBELET_CONFIG, CONTROLLER_CONFIG)
MACHINE_POOL = "MachinePool"
"""Seed 004's name for a MachineConfigPool, accepted wherever people write one."""
CONTROLLER = "machine-config-controller"
"""The only ControllerConfig that counts."""

# Labels and annotations of MachineConfigs, as upstream's (machineconfiguration.openshift.io).
ROLE_LABEL = f"{GROUP}/role"
"""On a MachineConfig: the pool that it is usually selected by."""
GENERATED_BY = f"{GROUP}/generated-by-controller-version"
"""On a MachineConfig that a controller has made: the version of what made it. People's have none."""
GENERATED_BY_VERSION = f"{GROUP}/generated-by-version"
"""On the ControllerConfig, where its writer says for which version of the controller it is."""
OS_IMAGE_OVERRIDDEN = f"{GROUP}/os-image-url-overridden"
"""On a rendered MachineConfig: "true" where a person's MachineConfig names the OS image."""
KUBELET_NAMES = f"{GROUP}/kubelet-managed-names"
"""On a KubeletConfig: the names of its MachineConfigs by pool, as JSON."""
KUBELET_FINALIZER = f"{GROUP}/kubelet-managed"
"""On a KubeletConfig: its MachineConfigs go before it does."""
RENDERED_PREFIX = "rendered-"
UPDATE_TAINT = "UpdateInProgress"
"""PreferNoSchedule, on nodes that still have to change: evicted pods go to those that have (upstream 2976dc657)."""
DRAINED_BY_CONFIG = f"{GROUP}/cordoned-by"
"""On a node that was cordoned for a config: which one. A cordon without it is a person's."""

DRAIN_VERB = "drain"
UNCORDON_VERB = "uncordon"


class DialectName(StrEnum):
    SEED = "seed"
    TODAY = "today"


@dataclass(frozen=True)
class Dialect:
    """The keys of the annotations by which the controller and the daemon of a Node talk."""

    name: DialectName
    prefix: str

    @property
    def current(self) -> str:
        """The config that the node has; the daemon writes it."""
        return f"{self.prefix}/currentConfig"

    @property
    def desired(self) -> str:
        """The config that the node is to have; Hostler writes it."""
        return f"{self.prefix}/desiredConfig"

    @property
    def state(self) -> str:
        """What the daemon is doing; it writes that."""
        return f"{self.prefix}/state"

    @property
    def reason(self) -> str:
        """Why it is degraded; the daemon writes it."""
        return f"{self.prefix}/reason"

    @property
    def desired_drain(self) -> str:
        """`drain-<config>` or `uncordon-<config>`: what the daemon asks for."""
        return f"{self.prefix}/desiredDrain"

    @property
    def last_drain(self) -> str:
        """What it asked for and has got; Hostler writes it."""
        return f"{self.prefix}/lastAppliedDrain"

    @property
    def all(self) -> tuple[str, ...]:
        return (self.current, self.desired, self.state, self.reason, self.desired_drain, self.last_drain)


SEED = Dialect(DialectName.SEED, "machine-config-daemon.v1.openshift.com")
"""Seed 004's keys; those it does not know (reason, drain) have its prefix too."""
TODAY = Dialect(DialectName.TODAY, GROUP)
"""Those of OpenShift's machine-config-daemon."""
DIALECTS = {dialect.name: dialect for dialect in (SEED, TODAY)}

HISTORIC_PREFIX = "node-configuration.v1.coreos.com"
"""The prefix of keys that seed 004 calls historic: they are read, and never written."""
HISTORIC_CURRENT = f"{HISTORIC_PREFIX}/currentConfig"
HISTORIC_TARGET = f"{HISTORIC_PREFIX}/targetConfig"
HISTORIC_DESIRED = f"{HISTORIC_PREFIX}/desiredConfig"


def kind_called(singular: str) -> ConfigKind:
    """The kind that people call so, such as `machineconfig`."""
    return next(kind for kind in CONFIG_KINDS if kind.singular == singular)


def rendered_name(pool: str, digest: str) -> str:
    """The name of a rendered MachineConfig."""
    return f"{RENDERED_PREFIX}{pool}-{digest}"
