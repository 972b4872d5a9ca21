"""What of a cluster answers, and the news of it for its pools and machines."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from resources.base import Instant, Key, Name, Text, Value
from resources.machine.manifest import SecretRef
from resources.maintenance import Freeze
from resources.orders import OrderTime


class AccountNews(Value):
    """News for each machine that has a VM in an account (signal `account_news`): which one its Secret now opens."""

    opened: Key = ""
    """The account in the cloud's own words; "": it is the right one again."""
    owner: Key
    """The account that the VMs are in."""
    secret_ref: SecretRef


class Reachability(Value):
    reachable: bool
    message: Text = ""
    time: Instant
    """When it was found."""
    since: Instant | None = None
    """For an outage: the last time there was an answer, as far as its finder knows."""
    refused: bool = False
    """There are answers, but they say that our credentials are not accepted."""
    unasked: bool = False
    """Nobody could ask it, because the API server that has its Secret does not answer: the fault is not its own."""

    @property
    def began(self) -> datetime:
        """When it began. An outage lasts as long as nothing was heard, not as long as it is known."""
        return self.since or self.time

    @property
    def words(self) -> str:
        if self.reachable:
            return "answers"
        if self.unasked:
            return f"cannot be asked: {self.message}"
        if self.refused:
            return f"answers, but refuses: {self.message}"
        return f"cannot be reached: {self.message.rpartition(' cannot be reached: ')[2]}"  # which is not said twice

    @property
    def cloud_reason(self) -> str:
        """The reason for an account that is not reachable: what is to be mended."""
        return "APIUnreachable" if self.unasked else "CloudUnreachable"


class CloudReachability(Reachability):
    account: Key
    """Account.key"""


class NewsInput(Value):
    cluster: Name
    api: Reachability


class ClusterNews(Value):
    """A cluster's news to its pools (signal `cluster_news`): whether it can be seen, whether a person has paused it."""

    reachable: bool = True
    """Whether everything answers: the API server and every account. `trouble` says what concerns one pool."""
    message: Text = ""
    """Why it is not reachable."""
    silent: dict[Name, Text] | None = None
    """Why the VMs of a MachineClass cannot be listed, by its name; "" stands for what concerns every pool, such as the
    API server. None: an older worker's news, in which everything concerns everybody."""
    paused: bool = False
    paused_by: Text = ""
    reason: Text = ""
    """Why it is paused, in the person's words."""
    freeze: Freeze | None = None
    time: OrderTime
    """News older than the last changes nothing."""

    def trouble(self, classes: Iterable[str]) -> str:
        """Why machines of these classes cannot be seen; "" if they can."""
        if self.silent is None:
            return "" if self.reachable else self.message or "it cannot be reached"
        found = [self.silent[name] for name in ("", *sorted(classes)) if name in self.silent]
        return "; ".join(dict.fromkeys(found))
