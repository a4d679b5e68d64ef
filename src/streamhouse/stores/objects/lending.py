"""Lending: buffers that a client in another thread reads, and the proof that it has stopped.

Data path   put_new -> **lending** -> the bucket's client
Owns        which pieces of a body are copied and which are lent; waiting until every lent one is back
Leaves      sending to the client

Small pieces are joined, because each one costs a crossing between languages; large ones are lent as they are, never
copied. A call that was cancelled or timed out has ended for us, but its thread may still be reading, so the caller's
buffers are its own again only when the client has let go of every view. A view says so itself: it can't be released
while somebody holds it.
"""

import asyncio
from typing import Final

from streamhouse.clock import Clock
from streamhouse.stores.objects.base import Buffers

LENT_FROM_BYTES: Final = 64 * 1024
JOINED_BYTES: Final = 1024 * 1024
_FIRST_LOOK_S: Final = 0.0005
_LONGEST_LOOK_S: Final = 0.02


def lend(body: Buffers) -> list[memoryview]:
    """Views of the body, in order: large buffers themselves, runs of small ones as copies."""
    views: list[memoryview] = []
    small: list[memoryview] = []
    waiting_bytes = 0
    for buffer in body:
        view = memoryview(buffer).cast("B")
        if view.nbytes >= LENT_FROM_BYTES or waiting_bytes + view.nbytes > JOINED_BYTES:
            _join(small, views)
            waiting_bytes = 0
        if view.nbytes >= LENT_FROM_BYTES:
            views.append(view)
        else:
            small.append(view)
            waiting_bytes += view.nbytes
    _join(small, views)
    return views


def _join(small: list[memoryview], views: list[memoryview]) -> None:
    if small:
        views.append(memoryview(b"".join(small)))
        small.clear()


async def take_back(views: list[memoryview], clock: Clock) -> None:
    """Return when nobody reads the views any more; a cancellation is passed on, but only then."""
    cancelled: asyncio.CancelledError | None = None
    look_s = _FIRST_LOOK_S
    held = [view for view in views if not _is_back(view)]
    while held:
        try:
            await clock.sleep(look_s)
        except asyncio.CancelledError as error:
            cancelled = error
        look_s = min(_LONGEST_LOOK_S, look_s * 2)
        held = [view for view in held if not _is_back(view)]
    if cancelled is not None:
        raise cancelled


def _is_back(view: memoryview) -> bool:
    try:
        view.release()
    except BufferError:
        return False
    return True
