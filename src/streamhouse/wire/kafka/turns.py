"""Turns: how much of one client is begun before others have their turn.

Data path   beside connection
Owns        giving way, without which a client that sends thousands of small requests at once stops all others
Leaves      the order of one client's requests to `connection`
"""

from collections.abc import Generator
from typing import Final

REQUESTS_A_TURN: Final = 8
"""So many requests of one connection are begun in a row; most take less than 0.1 ms."""


class NextTurn:
    """Awaited: whoever else is ready goes first. No time passes, so it is none of the clock's business."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield
