"""The base of all classes of activities. A class states the role of the workers that run it; all else follows from the
role."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from activities.deps import Deps
from resources.settings import Role


class Activities:
    """A class whose public methods are its activities. The SDK refuses one that is not decorated."""

    role: ClassVar[Role]
    """It decides which task queues they run on (`resources.queues`), and so which limits apply."""

    def __init__(self, deps: Deps) -> None:
        self.deps = deps


def methods(of: Activities) -> list[Callable[..., Any]]:
    """The activities of one class, to be registered with a worker."""
    return [method for name, method in inspect.getmembers(of, inspect.ismethod) if not name.startswith("_")]
