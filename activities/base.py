"""What each class of activities says of itself: the role of the workers that run it. All else follows from the role."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from activities.deps import Deps
from resources.settings import Role


class Activities:
    """Its public methods are its activities. The SDK refuses one that is not decorated."""

    role: ClassVar[Role]
    """It decides on which task queues they run (`resources.queues`), and so with which limits."""

    def __init__(self, deps: Deps) -> None:
        self.deps = deps


def methods(of: Activities) -> list[Callable[..., Any]]:
    """The activities of one class, to be registered with a worker."""
    return [method for name, method in inspect.getmembers(of, inspect.ismethod) if not name.startswith("_")]
