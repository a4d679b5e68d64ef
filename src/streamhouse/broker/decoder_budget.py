"""Decoder budget: the one limit on memory for large batches that are decompressed, over all requests.

Data path   decoder -> **decoder budget** -> a thread that decompresses; it gives the bytes back
Owns        who may decompress now, who waits, who is refused
Leaves      how much a batch may take to `decoder`

Requests are admitted in the order in which they came. A request waits for `max_wait_s` at most, behind `max_waiting` at
most, and is refused with `Overloaded` else, which clients retry.
"""

import asyncio
from collections import deque
from typing import Final

from streamhouse.config import DecoderSettings
from streamhouse.errors import Overloaded

RETRY_AFTER_S: Final = 1.0


class DecoderBudget:
    def __init__(self, settings: DecoderSettings) -> None:
        self._settings = settings
        self._used = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self.refused = 0

    def __repr__(self) -> str:
        limit = self._settings.memory_bytes
        return f"<DecoderBudget used={self._used >> 10}KiB of {limit >> 10}KiB waiting={len(self._waiting)}>"

    @property
    def used_bytes(self) -> int:
        return self._used

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def take(self, size_bytes: int) -> None:
        """Wait until so many bytes may be used; raises `Overloaded` when that takes too long.

        A request for more than the whole budget is admitted alone, so that the limit never refuses it for good.
        """
        if not self._waiting and self._fits(size_bytes):
            self._used += size_bytes
            return
        if len(self._waiting) >= self._settings.max_waiting:
            raise self.overloaded()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, size_bytes))
        try:
            async with asyncio.timeout(self._settings.max_wait_s):
                await turn
        except BaseException as error:
            self._leave(turn, size_bytes)
            if isinstance(error, TimeoutError):
                raise self.overloaded() from None
            raise

    def give_back(self, size_bytes: int) -> None:
        self._used -= size_bytes
        assert self._used >= 0, "more bytes were given back than were taken"
        self._admit()

    def overloaded(self) -> Overloaded:
        """The error for a request that can't wait any longer; it is counted."""
        self.refused += 1
        return Overloaded("decompression", limit_bytes=self._settings.memory_bytes, retry_after_s=RETRY_AFTER_S)

    def _fits(self, size_bytes: int) -> bool:
        return self._used + size_bytes <= self._settings.memory_bytes or self._used == 0

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0][1]):
            turn, size_bytes = self._waiting.popleft()
            if not turn.done():  # else it was cancelled, and hasn't left yet
                self._used += size_bytes
                turn.set_result(None)

    def _leave(self, turn: "asyncio.Future[None]", size_bytes: int) -> None:
        if turn.done() and not turn.cancelled():
            self.give_back(size_bytes)  # admitted in the moment in which its owner left
            return
        self._waiting = deque(item for item in self._waiting if item[0] is not turn)
        self._admit()
