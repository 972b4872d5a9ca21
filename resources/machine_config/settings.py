"""Settings of a cluster's machine configs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field

from resources.base import Duration
from resources.machine_config.keys import DialectName
from resources.section import Section


class MachineConfigSettings(Section):
    """How a cluster's machine configs are rendered and brought to its nodes."""

    enabled: bool = False
    """Hostler looks after the cluster's MachineConfigs, MachineConfigPools and KubeletConfigs."""
    annotations: DialectName = DialectName.SEED
    """The keys that are written on a Node whose daemon has not written any yet: seed
    (machine-config-daemon.v1.openshift.com) or today (machineconfiguration.openshift.io). A daemon that has written
    some is answered in its own."""
    templates: Path | None = None
    """The folder of templates, `<role>/<name>/…`; null: those that come with Hostler."""
    worker_first: bool = False
    """MachineConfigs with the role worker are merged before all others, so that a custom pool's always win; false:
    purely by name."""
    feature_gates: Literal["accept", "refuse"] = "accept"
    """Whether a KubeletConfig may set featureGates."""
    render_delay: Duration = timedelta(seconds=5)
    """How long changes are collected before anything is rendered."""
    keep_rendered: int = Field(default=5, ge=0)
    """How many rendered configs of each pool are kept that no node and no pool names any more."""
