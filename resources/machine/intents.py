"""What people, and its pool, want of a machine. Intents with a state of their own stand beside it: preservation.py,
hooks.py."""

from __future__ import annotations

from pydantic import Field

from resources.base import Key
from resources.intents import Intent


class DeleteIntent(Intent):
    force: bool = False
    """Shortens the drain; never skips clean-up."""
    abandon_node: bool = False
    """Once the VM is gone, a cluster that does not answer is not waited for: what is left there is named."""


class RepairIntent(DeleteIntent):
    """A pool's intent for a machine that Failed and has no slot: it does not count if the machine is meanwhile to be
    preserved, and the machine then says so again."""


class RecreateIntent(DeleteIntent):
    """A complete delete, then a new life under the same name, by the newest spec and class."""


class AdoptIntent(Intent):
    """An intent for a machine that waits because of NameTaken: the VM of this uid, which carries its name, is its
    own."""

    uid: Key = Field(min_length=1, max_length=100)
