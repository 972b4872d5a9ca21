"""What an owner of machines and one that borrows them tell each other: signals both ways, each a whole snapshot.

A config pool borrows a machine before its node is given another config. While it is lent, the machine counts as
unavailable for its owner too: the two together keep one budget.
"""

from __future__ import annotations

from resources.base import Instant, Key, Name, Text, Value
from resources.orders import OrderTime


class Borrowing(Value):
    """The borrower's word to the owner (signal `lend`; `give_back` ends it). It may come several times."""

    machine: Name
    borrower: Key
    """The name of the config pool."""
    config: Name = ""
    """What the machine's node is to have."""
    time: OrderTime


class LendAnswer(Value):
    """The owner's answer (signal `lent`)."""

    machine: Name
    owner: Key
    """`Owner.listed`."""
    granted: bool
    message: Text = ""
    """Why it is not lent now."""
    time: OrderTime


class Lent(Value):
    """A machine that its owner has lent: until it is given back it counts as unavailable."""

    borrower: Key
    config: Name = ""
    since: Instant
    told: Instant
    """When the borrower last said that it has it. One that stays silent for long is gone, and the machine is back."""
