"""Turns: how much of one request is done before other requests have their turn.

Data path   beside handlers and whatever goes through the many elements of a request one by one
Owns        giving way to others on the event loop, without which one request for everything stops all others
Leaves      how many requests of a client are begun in a row to the wires
"""

from collections.abc import AsyncIterator, Generator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

ELEMENTS_A_TURN: Final = 200
"""So many elements of one request are handled in a row; most take less than 0.05 ms."""


class NextTurn:
    """Awaited: whoever else is ready goes first. No time passes, so it is none of the clock's business."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield


async def in_turns(elements: Iterable[T]) -> AsyncIterator[T]:
    """The elements, one after the other; others have their turn after every `ELEMENTS_A_TURN` of them."""
    left = ELEMENTS_A_TURN
    for each in elements:
        if left == 0:
            await NextTurn()
            left = ELEMENTS_A_TURN
        left -= 1
        yield each
