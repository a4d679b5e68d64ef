"""Buffering: what nobody waits for any more, and what became of it.

Data path   delivery -> **buffering**: appends whose publishers asked for acks=buffered
Owns        the work that goes on behind a publisher's back, its limit, the count of what failed
Leaves      the work itself to `delivery`
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Final

from streamhouse.broker.doors import Doors
from streamhouse.broker.log import Placed
from streamhouse.broker.records.gate import Gate
from streamhouse.errors import StreamhouseError

log = logging.getLogger(__name__)

CLOSE_S: Final = 1.0


class Buffering:
    def __init__(self, doors: Doors) -> None:
        settings = doors.settings.peers
        self._gate = Gate(
            "records with acks=buffered for other agents",
            max_items=settings.max_waiting,
            max_bytes=settings.max_buffered_bytes,
            max_waiting=settings.max_waiting,
        )
        self._work: set[asyncio.Task[None]] = set()
        self.lost_records = 0
        """Records that were accepted with acks=buffered and failed, or may have failed, after that."""

    def __repr__(self) -> str:
        return f"<Buffering under_way={len(self._work)} lost={self.lost_records}>"

    def watch(self, placed: Placed, records: int) -> None:
        """It is in this agent's memory, on its way into the log."""
        if placed.commit is not None:
            placed.commit.add_done_callback(lambda done: self._committed(done, records))

    def _committed(self, done: "asyncio.Future[None]", records: int) -> None:
        if done.cancelled() or done.exception() is not None:
            self.lost_records += records

    async def post(self, size_bytes: int, records: int, delivery: Coroutine[object, object, object]) -> None:
        """Let it be delivered; waits only while too much is under way already."""
        try:
            await self._gate.enter(size_bytes)
        except BaseException:
            delivery.close()
            raise
        task = asyncio.get_running_loop().create_task(self._deliver(size_bytes, records, delivery), name="buffered")
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _deliver(self, size_bytes: int, records: int, delivery: Coroutine[object, object, object]) -> None:
        delivered = False
        try:
            await delivery
            delivered = True
        except StreamhouseError as error:
            log.warning("records with acks=buffered were not delivered", extra={"records": records, "why": str(error)})
        finally:
            self._gate.leave(size_bytes)
            if not delivered:
                self.lost_records += records

    async def aclose(self) -> None:
        """What is nearly there may arrive; the rest is lost, and counted."""
        if self._work:
            await asyncio.wait(self._work, timeout=CLOSE_S)
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
