"""Machines without a workflow: what a sweep is asked, finds and reports."""

from __future__ import annotations

from pydantic import Field

from resources.base import Count, Instant, Key, Name, Span, Text, Value, Word
from resources.cluster.accounts import Account


class OwnedVm(Value):
    """A VM that carries our owner tags."""

    provider_id: Key = Field(alias="providerID")
    machine: Key
    """The name in its tag, which anybody may have written."""
    uid: Key
    state: Word
    account: Key
    """Account.key"""
    account_id: Key = ""
    """The account that owns it, in the cloud's own words."""
    tagged: bool = True
    """False: it carries no installation's tag, and was made, by this one or another, before there was one."""


class ListVmsInput(Value):
    cluster: Name
    account: Account


class ListVmsOutput(Value):
    vms: list[OwnedVm] = Field(default_factory=list)
    """VMs of this installation, and those without a tag of one."""
    others: Count = 0
    """How many VMs another installation has made for a cluster of the same name."""


class OwnersInput(Value):
    cluster: Name
    vms: list[OwnedVm]


class Orphan(Value):
    """A VM that no running workflow owns."""

    vm: OwnedVm
    workflow: Key
    """How the machine's newest workflow ended (TERMINATED, …); "" when there is none."""
    closed: Instant | None = None

    @property
    def doubtful(self) -> bool:
        """Whether nothing says that it was ever this installation's: neither its tags nor a workflow."""
        return not self.workflow and not self.vm.tagged


class OwnersOutput(Value):
    orphans: list[Orphan] = Field(default_factory=list)


class SweepInput(Value):
    """The argument of OrphanSweepWorkflow."""

    cluster: Name
    accounts: list[Account]
    queue_prefix: Name
    heartbeat: Span


class SweepReport(Value):
    """The result of OrphanSweepWorkflow."""

    orphans: list[Orphan] = Field(default_factory=list)
    unread: dict[Key, Text] = Field(default_factory=dict)
    """Account.key to why it could not be listed: what it holds is not known."""
    others: dict[Key, Count] = Field(default_factory=dict)
    """Account.key to how many VMs of a cluster of the same name another installation has there."""
    untagged: Count = 0
    """How many VMs carry no tag of an installation, with or without an owner."""
