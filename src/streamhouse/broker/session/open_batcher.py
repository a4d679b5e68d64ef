"""OpenBatcher: opens logs that are requested at the same time in one step."""

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


class _OpenRequest(NamedTuple, Generic[A, V]):
    about: A
    done: "asyncio.Future[V]"


class OpenBatcher(Generic[K, A, V]):
    """Opens logs in batches: requests that arrive while a batch is being opened are opened together in the next one."""

    def __init__(self, open_many: Callable[[Mapping[K, A]], Awaitable[Mapping[K, V | StreamhouseError]]]) -> None:
        self._open_many = open_many
        self._waiting: dict[K, _OpenRequest[A, V]] = {}
        self._under_way: dict[K, _OpenRequest[A, V]] = {}
        self._worker: asyncio.Task[None] | None = None
        self._closed: StreamhouseError | None = None

    def __repr__(self) -> str:
        return f"<OpenBatcher waiting={len(self._waiting)} under_way={len(self._under_way)}>"

    def pending(self) -> list[tuple[K, "asyncio.Future[V]"]]:
        """Logs that are being opened or queued."""
        return [(key, request.done) for key, request in (*self._under_way.items(), *self._waiting.items())]

    async def open(self, key: K, about: A) -> V:
        """Open one log; cancelling a waiter doesn't affect the others."""
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        request = self._under_way.get(key) or self._waiting.get(key)
        if request is None:
            request = self._waiting[key] = _OpenRequest(about, asyncio.get_running_loop().create_future())
            if self._worker is None:
                self._worker = asyncio.get_running_loop().create_task(self._work(), name="opening")
        return await asyncio.shield(request.done)

    async def aclose(self, why: StreamhouseError) -> None:
        """Stop opening logs: all waiters get `why`, and no task is left."""
        self._closed = why  # a late request would start a new task
        self._refuse_pending(why)
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _work(self) -> None:
        # Starts in the next turn of the event loop, so that requests of this turn join.
        try:
            while self._waiting:
                keys = list(self._waiting)[:MAX_TOGETHER]
                self._under_way = {key: self._waiting.pop(key) for key in keys}
                await self._open_batch(self._under_way)
                self._under_way = {}
        finally:
            self._worker = None
            # Never a cancellation: waiters would treat it as their own, and their clients would get no response.
            self._refuse_pending(Unavailable("logs are not opened any more"))

    def _refuse_pending(self, why: StreamhouseError) -> None:
        for _, done in self.pending():
            if not done.done():
                done.set_exception(why)
                done.exception()  # there may be no waiter left

    async def _open_batch(self, together: Mapping[K, _OpenRequest[A, V]]) -> None:
        results: Mapping[K, V | StreamhouseError]
        try:
            opened = await self._open_many({key: request.about for key, request in together.items()})
            results = {key: opened[key] for key in together}
        except StreamhouseError as error:
            results = dict.fromkeys(together, error)
        except Exception as error:
            log.exception("opening logs failed", extra={"logs": len(together)})
            results = dict.fromkeys(together, Internal(f"opening a log failed; why={type(error).__name__}: {error}"))
        for key, (_, done) in together.items():
            response = results[key]
            if done.done():
                continue
            if isinstance(response, StreamhouseError):
                done.set_exception(response)
                done.exception()  # there may be no waiter left
            else:
                done.set_result(response)
