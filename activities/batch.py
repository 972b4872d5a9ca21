"""One call for each of many things, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from activities.boundary import progress

PARALLEL = 10
"""Calls at the same time: a large pool must not make everybody else wait."""

A = TypeVar("A")
T = TypeVar("T")


async def each(
    items: Sequence[A], call: Callable[[A], Awaitable[T]], words: Callable[[int], str] | None = None
) -> list[T]:
    """Returns the answers, in the order of the items. `words` tell the heartbeat how far it is.

    All are tried, and then the first error is raised, if there was one: an item in trouble must not keep the others
    from being reached, and a repetition finds them done.
    """
    slots = asyncio.Semaphore(PARALLEL)
    done = 0

    async def one(item: A) -> T:
        nonlocal done
        async with slots:
            answer = await call(item)
        done += 1
        if words is not None:
            progress(words(done))
        return answer

    answers: list[T] = []
    for answer in await asyncio.gather(*map(one, items), return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer
        answers.append(answer)
    return answers
