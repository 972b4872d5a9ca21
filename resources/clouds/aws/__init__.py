"""AWS: machines as instances of EC2."""

from __future__ import annotations

from resources.clouds.aws.domain import AwsFailureDomain
from resources.clouds.aws.names import IDS
from resources.clouds.aws.openshift import AWSMachineProviderConfig
from resources.clouds.aws.spec import PLACEMENT, AwsProviderSpec, read_placement
from resources.clouds.aws.worker import WORKERS
from resources.clouds.base import Provider, Simulation

PROVIDER = Provider(
    "AWS",
    AwsProviderSpec,
    IDS,
    domain=AwsFailureDomain,
    openshift=AWSMachineProviderConfig,
    driver="drivers.aws",
    simulation=Simulation("simulator.clouds.ec2", service="ec2", port=7644, create="RunInstances"),
    annotations={PLACEMENT: read_placement},
    workers=WORKERS,
)

__all__ = ["PROVIDER", "AwsProviderSpec"]
