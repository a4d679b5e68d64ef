"""Encoding: records are written and read with schemas beside the event loop, for a limited time.

Data path   publication, upload, views -> **encoding** -> threads, or a process of its own -> records
Owns        how many requests do so at once and wait for it, how long each may take
Leaves      what is written to `publish_body` and `schemas`

What a schema costs is up to whoever registered it. Work is done in threads that look at the time between records. A
value that may take long by itself (`ParsedSchema.encoding_cost`) goes to a process, which is ended when the time is
over. A thread that doesn't come back keeps its place: when all are taken, requests are refused until one does.
"""

import asyncio
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from streamhouse.clock import Clock, SystemClock
from streamhouse.config import SchemaSettings
from streamhouse.schemas.base import ParsedSchema
from streamhouse.schemas.json_schema import JsonSchema
from streamhouse.wire.http.errors import TooManyRequests, Unprocessable
from streamhouse.wire.http.records.schema_encoder_process import Job, Refused, Results, read_frame, write_frame

T = TypeVar("T")

MAX_STEPS: Final = 500_000
"""What one value may cost in a thread: about a tenth of a second, in which nothing else runs."""

MODULE: Final = "streamhouse.wire.http.records.schema_encoder_process"


class TooSlow(Exception):
    """The time is over."""


class Deadline:
    """When work must be done; for threads."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._at = clock.monotonic() + seconds

    @property
    def left_s(self) -> float:
        return max(self._at - self._clock.monotonic(), 0.0)

    def check(self) -> None:
        """Raise `TooSlow` when it is over."""
        if not self.left_s:
            raise TooSlow


class SchemaEncoding:
    def __init__(self, settings: SchemaSettings, *, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._places = asyncio.Semaphore(settings.encoders)
        self._waiting = 0
        self._idle: list[EncoderProcess] = []

    def __repr__(self) -> str:
        return f"<SchemaEncoding waiting={self._waiting} processes={len(self._idle)}>"

    async def run(self, work: Callable[[Deadline], T]) -> T:
        """Do the work in a thread; raises `Unprocessable` when it takes too long, `TooManyRequests` when its turn
        doesn't come."""
        deadline = Deadline(self._clock, self._settings.encode_timeout_s)
        await self._take_place(deadline)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def finish(result: T | None, error: BaseException | None) -> None:
            self._places.release()
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]

        def target() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = work(deadline)
            except BaseException as raised:  # noqa: BLE001 (it is raised where it is waited for)
                error = raised
            try:
                loop.call_soon_threadsafe(finish, result, error)
            except RuntimeError:  # the loop has ended meanwhile
                return

        try:
            threading.Thread(target=target, name="schema-encoder", daemon=True).start()
        except RuntimeError:
            self._places.release()
            raise TooManyRequests("no thread can be started to apply the schemas") from None
        try:
            async with asyncio.timeout(deadline.left_s):
                return await done
        except (TimeoutError, TooSlow):
            raise self._too_slow() from None

    async def _take_place(self, deadline: Deadline) -> None:
        limit = self._settings.max_waiting_encodes
        if self._places.locked() and self._waiting >= limit:
            raise TooManyRequests(
                f"too many requests wait to be written with schemas; limit={limit} setting=schemas.max_waiting_encodes"
            )
        self._waiting += 1
        try:
            async with asyncio.timeout(deadline.left_s):
                await self._places.acquire()
        except TimeoutError:
            limit = self._settings.encoders
            raise TooManyRequests(
                f"other requests are still being written with schemas; limit={limit} setting=schemas.encoders"
            ) from None
        finally:
            self._waiting -= 1

    def _too_slow(self) -> Unprocessable:
        limit_s = self._settings.encode_timeout_s
        return Unprocessable(
            f"it takes too long to apply the schemas; limit_s={limit_s:g} setting=schemas.encode_timeout_s"
            " do=send fewer records at once, or simplify the patterns and references of the schema"
        )

    # --- in a thread

    def encode(self, schema: ParsedSchema, values: Iterable[bytes], deadline: Deadline) -> Mapping[bytes, bytes | str]:
        """What such JSON values, of which some may take long, are written as, or why they can't be; for threads."""
        if not isinstance(schema, JsonSchema):
            return {}
        costly = [value for value in dict.fromkeys(values) if schema.encoding_cost(len(value)) > MAX_STEPS]
        if not costly:
            return {}
        job = Job(schema.type, schema.text, tuple(schema.references.items()), costly)
        results = self._ask(job, deadline)
        return {
            value: result.text if isinstance(result, Refused) else result
            for value, result in zip(costly, results, strict=True)
        }

    def _ask(self, job: Job, deadline: Deadline) -> Results:
        try:
            process = self._idle.pop()
        except IndexError:
            process = EncoderProcess()
        results = process.ask(job, timeout_s=deadline.left_s)
        self._idle.append(process)
        return results


class EncoderProcess:
    """One process, for one request after the other; for threads. It ends with this object, or with the agent."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.end = weakref.finalize(self, _end, self._process)

    def __repr__(self) -> str:
        return f"<EncoderProcess pid={self._process.pid}>"

    def ask(self, job: Job, *, timeout_s: float) -> Results:
        """The results; raises `TooSlow` when they don't come in time, and ends the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        ending = threading.Timer(timeout_s, self._process.kill)
        ending.daemon = True
        ending.start()
        try:
            write_frame(self._process.stdin, msgspec.msgpack.encode(job))
            frame = read_frame(self._process.stdout)
        except OSError:
            frame = None
        finally:
            ending.cancel()
        if frame is None:
            self.end()
            raise TooSlow
        return msgspec.msgpack.decode(frame, type=Results)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
