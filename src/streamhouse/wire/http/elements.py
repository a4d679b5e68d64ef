"""Elements: the objects in lists of JSON bodies, counted while they are decoded.

Data path   endpoint -> decode_json -> **elements**
Owns        the number of elements of a body
Leaves      the size of bodies to `request_body`, values of records, which are no elements, to `records`

An empty object is three bytes in a body and a hundred in memory. msgspec checks the length of a list when all of it is
decoded, with the GIL held. Counting ends that at the limit, and gives other threads their turn.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

MAX_ELEMENTS: Final = 250_000
"""Elements of a body: more than the records of the largest one, each with a few headers."""


class _Budget(threading.local):
    left: int | None = None


_budget: Final = _Budget()


@contextmanager
def counted(limit: int = MAX_ELEMENTS) -> Iterator[None]:
    """Decoding more elements than `limit` in this thread raises `msgspec.ValidationError`."""
    before, _budget.left = _budget.left, limit
    try:
        yield
    finally:
        _budget.left = before


class Element(msgspec.Struct, frozen=True):
    """An object in a list of a body. Types of bodies have no lists of other objects."""

    def __post_init__(self) -> None:
        left = _budget.left
        if left is None:  # not of a body
            return
        if not left:
            raise ValueError(f"too many elements in the body; limit={MAX_ELEMENTS}")
        _budget.left = left - 1
