"""What anybody may want of an entity, and what it answers."""

from __future__ import annotations

from resources.base import Key, Said, Text, Value


class Intent(Value):
    """What an operator wants. It may arrive by update and by signal; it counts once per id.

    The sender makes the id, which is the update's id too. An intent typed by hand may leave it out.
    """

    id: Key = ""
    requested_by: Text = ""
    reason: Said = ""


class Answer(Value):
    """What will happen with an intent."""

    message: Text
