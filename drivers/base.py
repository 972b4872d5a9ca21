"""The contract of every cloud's driver (seed 000; machine-controller-manager docs/development/cp_support_new.md).

Methods block, as the clouds' SDKs do, and activities call them in a thread. Every method is idempotent and its
docstring says how; get_account, get_machine_status, list_machines and get_volume_ids make no changing call. All raise
DriverError.

"Not found" is true of the account that the credentials open, and a Secret may open another one tomorrow. So a VM's
status names its account, and a caller that is about to believe that a VM is gone asks get_account first
(activities/accounts.py).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from drivers.errors import DriverError
from resources.calls.cloud import ResourceUpdate
from resources.clouds import ProviderSpec, UnknownProvider, provider_of
from resources.errors import BegunOperation, ErrorClass

S = TypeVar("S", bound=ProviderSpec)


class Request(BaseModel):
    model_config = ConfigDict(frozen=True)


class Identity(Request):
    """The owner of a resource. `cluster_full_name` and `role` make Gardener's must-tags where the class has none."""

    cluster: str
    name: str
    uid: str
    installation: str = ""
    """Which Hostler; "": unknown, and then no tag says it either."""
    cluster_full_name: str | None = None
    role: str = "node"


class MachineRequest(Request):
    """What every call about one machine carries."""

    machine: Identity
    provider_spec: dict[str, Any]
    secret: Mapping[str, SecretStr] = Field(default_factory=dict)
    """Credentials: the data of the (credentials) Secret; empty for the account's default."""


class CreateMachineRequest(MachineRequest):
    user_data: SecretStr
    """Rendered, plain text; the driver encodes it as the cloud wants it."""
    compressed: bool = False
    """It came compressed by gzip, and goes to the cloud so, for which the limit on its size counts then."""
    annotations: Mapping[str, str] = Field(default_factory=dict)
    """Those of the node template that the driver reads (resources.clouds.Provider.annotations)."""
    token: str
    """Idempotency token: the same token and the same request never make a second VM."""
    begun: BegunOperation | None = None
    """What the pass before answered as `begun`, perhaps to another worker, or long ago."""


class VmState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    TERMINATING = "terminating"


class MachineStatus(Request):
    """A VM that exists."""

    provider_id: str
    node_name: str
    """The name that its kubelet registers with, where the provider knows it; else empty."""
    addresses: list[str] = Field(default_factory=list)
    state: VmState = VmState.PENDING
    impaired: str | None = None
    """What the provider's own health check says when it fails; read when a diagnosis was asked for."""
    uid: str | None = None
    """The machine uid in its tags."""
    name: str | None = None
    """The machine name in its tags."""
    account_id: str = ""
    """The account that owns it, as the cloud names accounts (AWS: 12 digits); "" where the cloud does not say."""
    installation: str | None = None
    """The installation in its tags; None where it was made before there was such a tag."""
    console: str | None = None
    """The last lines of the console, when a diagnosis was asked for."""


class NameTaken(DriverError):
    """Living VMs carry the machine's name and another uid: that of a life that is over, as far as anybody knows."""

    def __init__(self, machine: Identity, vms: Sequence[MachineStatus]) -> None:
        found = " and ".join(f"{vm.provider_id} ({vm.state}, uid {vm.uid or 'unknown'})" for vm in vms)
        super().__init__(
            ErrorClass.CONFLICT,
            f"the name {machine.name} of cluster {machine.cluster} is taken in the cloud: {found}",
        )
        self.vms = tuple(vms)


def is_of(tagged: str | None, installation: str) -> bool:
    """Whether a resource that carries this tag of an installation, or none, may be this installation's."""
    return not tagged or not installation or tagged == installation


class GetMachineStatusRequest(MachineRequest):
    provider_id: str | None = None
    """With an id the VM is read by id; without one, it is looked up by its tags (cluster, machine, uid) and by
    `token`."""
    token: str = ""
    diagnose: bool = False
    """Whether to read the provider's own health checks and the console too: further calls, for a VM that should be up
    by now."""


class Making(Request):
    """A creation that takes longer than a call is under way. The same request with the same token continues it, and
    makes nothing a second time."""

    what: str
    """What is being made now, in words that stay the same while it is: `network interface nic-1`."""
    again: timedelta
    """When to look next."""
    begun: BegunOperation | None = None
    """The operation by which the cloud makes it, where it has one: to be given back with the next call."""


class UpdateMachineRequest(MachineRequest):
    provider_id: str
    last_applied_provider_spec: dict[str, Any] | None = None
    """None: the post-start update, once after creation. Otherwise a hot update of the updatable fields from this spec
    to `provider_spec`; other differences between the two are ignored."""
    untagged: bool = False
    """The VM was seen without its installation's tag. The post-start update adds it, if it may; a hot update adds it to
    whatever it writes tags on anyway."""


class UpdateMachineResponse(Request):
    changed: list[str] = Field(default_factory=list)
    """What was changed, in words; empty when all was already so."""
    resources: list[ResourceUpdate] = Field(default_factory=list)
    """For a hot update: the resources that were changed."""


class DeleteMachineRequest(MachineRequest):
    provider_id: str | None = None
    """The VM of this id, if there is one, and in any case everything that carries the machine's uid tag."""
    token: str = ""
    going: list[str] = Field(default_factory=list)
    """What the pass before answered as `going`. While these are all that is there, nothing but them is looked at."""
    kept: list[str] = Field(default_factory=list)
    """What the pass before answered as `kept`."""
    begun: list[BegunOperation] = Field(default_factory=list)
    """What the pass before answered as `begun`."""


class Evidence(StrEnum):
    PRESENT = "present"
    """Something is still there; its deletion has been requested."""
    TERMINATED = "terminated"
    """The cloud itself says that the VM is terminated, and nothing else is left."""
    NOT_FOUND = "not_found"
    """Found neither by id nor by tag, with credentials that can read: gone, if it is still so after the lag window."""


class DeleteMachineResponse(Request):
    evidence: Evidence
    left: list[str] = Field(default_factory=list)
    """Ids of what is still there, with their state: `i-1 shutting-down`."""
    kept: list[str] = Field(default_factory=list)
    """Ids that outlive the machine because the spec says so; retagged as released."""
    account_id: str = ""
    """The account that owns the VM which was found; "" when none was."""
    vms: dict[str, str] = Field(default_factory=dict)
    """providerID of each VM of the machine that the cloud still shows, in whatever state, to its node_name (as in
    MachineStatus), which many clouds give only for a living one."""
    going: list[str] = Field(default_factory=list)
    """providerIDs of its VMs, where all that is left to do is to wait for them to end. Empty where a pass is due, and
    for a driver that never says so."""
    begun: list[BegunOperation] = Field(default_factory=list)
    """The operations by which the cloud deletes what is left, where it has such."""


class ListMachinesRequest(Request):
    """All VMs of a cluster in the account and region of a provider spec, by owner tag, whatever the installation: the
    caller decides which are its own (`is_of`)."""

    cluster: str
    provider_spec: dict[str, Any]
    secret: Mapping[str, SecretStr] = Field(default_factory=dict)
    provider_ids: list[str] = Field(default_factory=list)
    """If given, these VMs instead, whosever they are; one that the cloud does not know is no error."""


class ListMachinesResponse(Request):
    machines: list[MachineStatus] = Field(default_factory=list)


class GetAccountRequest(Request):
    """Asks whose the credentials are, in the place of a provider spec's machines."""

    provider_spec: dict[str, Any]
    provider_id: str | None = None
    """The id of a machine there, for a spec that does not say where."""
    secret: Mapping[str, SecretStr] = Field(default_factory=dict)


class GetVolumeIDsRequest(Request):
    """Specs of PersistentVolumes as the API server has them."""

    persistent_volume_specs: list[dict[str, Any]]


class GetVolumeIDsResponse(Request):
    volume_ids: list[str] = Field(default_factory=list)
    """In the order of the request, without those of other providers."""


class Driver(Protocol):
    def create_machine(self, request: CreateMachineRequest) -> MachineStatus | Making:
        """Makes the VM with its disks and NICs, tagged in the same call where the cloud takes tags.

        Idempotent by token: a repeated call answers with the same VM. Raises IdempotencyMismatch when the token is
        bound to something else.

        A cloud that makes a NIC or a disk apart from the VM, or that takes minutes for the VM, is not waited for: each
        call is one pass, which begins what is due and answers Making, until it answers with the VM. What is there
        already is found by names that follow from uid and token, or by tags. The answer is the VM once the cloud has
        given it an id; whether it then runs, get_machine_status says. What was made separately is the machine's from
        its first moment: delete_machine finds it by uid, even where no VM was ever made.

        `begun` says with which code an operation ends that a worker before has begun. One that the cloud does not know
        (any longer), or that is not this account's, is as if there were none: what is there is found by its name.
        Raises OperationFailed for one that has ended badly: nothing is under way then.
        """

    def update_machine(self, request: UpdateMachineRequest) -> UpdateMachineResponse:
        """Brings a VM to its spec without replacing it. Idempotent: it looks first and changes only what differs.

        Raises Unimplemented where the cloud's driver has nothing to update.
        """

    def delete_machine(self, request: DeleteMachineRequest) -> DeleteMachineResponse:
        """Makes one pass: it has everything of the machine deleted, releases what is kept, and says what is left.

        Idempotent: called until it answers `terminated`, or `not_found` twice, further apart than the lag window. A
        pass that answers `going` may be followed by reads of these VMs (`list_machines`) until one of them has ended.
        Raises OperationFailed where something is still there because an operation of `begun` has ended badly.
        """

    def get_machine_status(self, request: GetMachineStatusRequest) -> MachineStatus:
        """Read only. Raises DriverError of class not_found when there is no living VM, conflict when there are two.

        Without an id, raises NameTaken when there is no VM of this uid, but a living one of the same cluster and
        machine name, of this installation or with no installation's tag: a VM on its way out takes no name.
        """

    def list_machines(self, request: ListMachinesRequest) -> ListMachinesResponse:
        """Read only. Lists living VMs, all pages."""

    def get_account(self, request: GetAccountRequest) -> str:
        """Read only. Returns the account that the credentials open, in the words of MachineStatus.account_id; never
        empty.

        It may be remembered for those very credentials, for some minutes at most.
        """

    def get_volume_ids(self, request: GetVolumeIDsRequest) -> GetVolumeIDsResponse:
        """Makes no call at all: the ids are in the specs."""


class DriverSettings(Request):
    """What a worker knows of a provider; `endpoint` replaces the cloud's own, for simulators and private regions."""

    endpoint: str | None = None
    timeout: timedelta = timedelta(seconds=20)
    """The timeout of one call to the cloud."""


def parsed(model: type[S], provider_spec: dict[str, Any]) -> S:
    """The spec, parsed. Raises DriverError of class invalid with the path of every wrong field, never its value."""
    try:
        return model.model_validate(provider_spec)
    except ValidationError as e:
        errors = e.errors(include_url=False, include_input=False)
    wrong = "; ".join(f"{'.'.join(map(str, x['loc'])) or 'spec'}: {x['msg']}" for x in errors)
    raise DriverError(ErrorClass.INVALID, f"providerSpec: {wrong}")


def volume_ids(request: GetVolumeIDsRequest, csi_driver: str, in_tree: Callable[[dict[str, Any]], str]) -> list[str]:
    """The ids of the volumes that are this cloud's: of its CSI driver, or by the Kubernetes API's own field for it.
    `in_tree`: the id that a spec has there, or ""."""
    found = []
    for spec in request.persistent_volume_specs:
        csi = spec.get("csi") or {}
        its = csi.get("driver") == csi_driver and csi.get("volumeHandle")
        found.append(its or in_tree(spec))
    return [id for id in found if id]


def load_driver(provider: str, settings: DriverSettings | None = None) -> Driver:
    """Loads a provider's driver. Its SDK is imported here and not before: it costs up to 1.6 s."""
    try:
        module = provider_of(provider).driver
    except UnknownProvider as e:
        raise DriverError(ErrorClass.INVALID, str(e)) from None
    driver: Driver = importlib.import_module(module).driver(settings or DriverSettings())
    return driver
