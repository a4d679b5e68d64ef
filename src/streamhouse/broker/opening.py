"""Opening: logs that are wanted at the same time are opened together.

Data path   broker -> tenure -> **opening** -> leases and snapshots of many partitions in one go
Owns        who waits for what, what goes into the next go
Leaves      leases, snapshots and logs to whoever opens
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from streamhouse.errors import Internal, StreamhouseError, Unavailable

log = logging.getLogger(__name__)

MAX_TOGETHER: Final = 1000

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")
V = TypeVar("V")


class _Asked(NamedTuple, Generic[A, V]):
    about: A
    done: "asyncio.Future[V]"


class Opening(Generic[K, A, V]):
    """While a go is under way everything else that is asked for waits for the next one, together."""

    def __init__(self, open_many: Callable[[Mapping[K, A]], Awaitable[Mapping[K, V | StreamhouseError]]]) -> None:
        self._open_many = open_many
        self._waiting: dict[K, _Asked[A, V]] = {}
        self._under_way: dict[K, _Asked[A, V]] = {}
        self._worker: asyncio.Task[None] | None = None
        self._closed: StreamhouseError | None = None

    def __repr__(self) -> str:
        return f"<Opening waiting={len(self._waiting)} under_way={len(self._under_way)}>"

    def pending(self) -> list[tuple[K, "asyncio.Future[V]"]]:
        """What is being opened, or will be."""
        return [(key, asked.done) for key, asked in (*self._under_way.items(), *self._waiting.items())]

    async def open(self, key: K, about: A) -> V:
        """One log; whoever gives up waiting leaves the others alone."""
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        asked = self._under_way.get(key) or self._waiting.get(key)
        if asked is None:
            asked = self._waiting[key] = _Asked(about, asyncio.get_running_loop().create_future())
            if self._worker is None:
                self._worker = asyncio.get_running_loop().create_task(self._work(), name="opening")
        return await asyncio.shield(asked.done)

    async def aclose(self, why: StreamhouseError) -> None:
        """Open nothing more: whoever waits is told why, and nothing is left running."""
        self._closed = why  # somebody may come late, and would begin anew
        self._refuse_pending(why)
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _work(self) -> None:
        # Begins with the next turn of the loop, so whoever asks in this one comes along.
        try:
            while self._waiting:
                keys = list(self._waiting)[:MAX_TOGETHER]
                self._under_way = {key: self._waiting.pop(key) for key in keys}
                await self._go(self._under_way)
                self._under_way = {}
        finally:
            self._worker = None
            # Never a cancellation: those who wait would take it for their own, and their clients get no response.
            self._refuse_pending(Unavailable("logs are not opened any more"))

    def _refuse_pending(self, why: StreamhouseError) -> None:
        for _, done in self.pending():
            if not done.done():
                done.set_exception(why)
                done.exception()  # nobody may be waiting any more

    async def _go(self, together: Mapping[K, _Asked[A, V]]) -> None:
        found: Mapping[K, V | StreamhouseError]
        try:
            opened = await self._open_many({key: asked.about for key, asked in together.items()})
            found = {key: opened[key] for key in together}
        except StreamhouseError as error:
            found = dict.fromkeys(together, error)
        except Exception as error:
            log.exception("opening logs failed", extra={"logs": len(together)})
            found = dict.fromkeys(together, Internal(f"opening a log failed; why={type(error).__name__}: {error}"))
        for key, (_, done) in together.items():
            answer = found[key]
            if done.done():
                continue
            if isinstance(answer, StreamhouseError):
                done.set_exception(answer)
                done.exception()  # nobody may be waiting any more
            else:
                done.set_result(answer)
