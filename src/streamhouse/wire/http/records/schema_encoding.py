"""Schema encoding: records are encoded and decoded with schemas in threads, within a timeout.

Data path   publish_body, upload, formats -> **schema_encoding** -> threads, or a child process -> records
Owns        the number of concurrent and waiting requests, the timeout of each
Leaves      the encoding itself to `publish_body` and `schemas`

The cost of a schema is decided by the user who registered it. Threads check the deadline between records. A value that
may be expensive by itself (`ParsedSchema.encoding_cost`) goes to a child process, which is killed at the deadline. A
blocked thread keeps its slot: while all slots are taken, requests are rejected.
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
"""Limit of a value's cost in a thread: about a tenth of a second with the GIL held."""

MODULE: Final = "streamhouse.wire.http.records.schema_encoder_process"


class TooSlow(Exception):
    """The deadline has passed."""


class Deadline:
    """A deadline that threads check."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._at = clock.monotonic() + seconds

    @property
    def left_s(self) -> float:
        return max(self._at - self._clock.monotonic(), 0.0)

    def check(self) -> None:
        """Raise `TooSlow` if it has passed."""
        if not self.left_s:
            raise TooSlow


class SchemaEncoding:
    def __init__(self, settings: SchemaSettings, *, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._slots = asyncio.Semaphore(settings.encoders)
        self._waiting = 0
        self._idle: list[EncoderProcess] = []

    def __repr__(self) -> str:
        return f"<SchemaEncoding waiting={self._waiting} processes={len(self._idle)}>"

    async def run(self, work: Callable[[Deadline], T]) -> T:
        """Run `work` in a thread; raises `Unprocessable` if it takes too long, `TooManyRequests` if no slot becomes
        free."""
        deadline = Deadline(self._clock, self._settings.encode_timeout_s)
        await self._take_slot(deadline)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def finish(result: T | None, error: BaseException | None) -> None:
            self._slots.release()
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
            except BaseException as raised:  # noqa: BLE001 (raised again by the waiting coroutine)
                error = raised
            try:
                loop.call_soon_threadsafe(finish, result, error)
            except RuntimeError:  # the loop was closed meanwhile
                return

        try:
            threading.Thread(target=target, name="schema-encoder", daemon=True).start()
        except RuntimeError:
            self._slots.release()
            raise TooManyRequests("no thread can be started to apply the schemas") from None
        try:
            async with asyncio.timeout(deadline.left_s):
                return await done
        except (TimeoutError, TooSlow):
            raise self._too_slow() from None

    async def _take_slot(self, deadline: Deadline) -> None:
        limit = self._settings.max_waiting_encodes
        if self._slots.locked() and self._waiting >= limit:
            raise TooManyRequests(
                f"too many requests wait for schema encoding; limit={limit} setting=schemas.max_waiting_encodes"
            )
        self._waiting += 1
        try:
            async with asyncio.timeout(deadline.left_s):
                await self._slots.acquire()
        except TimeoutError:
            limit = self._settings.encoders
            raise TooManyRequests(
                f"other requests are still being encoded with schemas; limit={limit} setting=schemas.encoders"
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
        """Encode JSON values, some of which may be expensive; returns bytes or an error for each. Runs in a thread."""
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
    """A child process that serves one request after the other; used by threads. It ends with this object or the
    agent."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.end = weakref.finalize(self, _end, self._process)

    def __repr__(self) -> str:
        return f"<EncoderProcess pid={self._process.pid}>"

    def ask(self, job: Job, *, timeout_s: float) -> Results:
        """The results; raises `TooSlow` and kills the process if they take longer than `timeout_s`."""
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
