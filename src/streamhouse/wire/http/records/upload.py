"""Upload: records as lines of a request body of any length.

Data path   body, in chunks -> **upload** -> broker.forwarding, some thousand records at a time
Owns        lines, batches of them, and the summary in the response
Leaves      records to `publish_body`, timeouts to `request_body`

Nothing is read while a batch is being published, so TCP slows down a client that is faster than the log. If a body
breaks off, the complete records before the break are published. With an idempotency key, batches depend on the lines
alone and not on pauses, and the last one is published only if the body was complete: a retry is cut into the same
batches.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Final

from streamhouse.broker.forwarding.records import RecordService
from streamhouse.config import HttpSettings
from streamhouse.errors import Retriable, Stopping, StreamhouseError
from streamhouse.limits import LargeWork, yield_to_loop
from streamhouse.model.record import NewRecord, Receipt
from streamhouse.wire.http.endpoint import INLINE_BYTES, decode_json
from streamhouse.wire.http.errors import MAX_FIELD_ERRORS, BodyTooLarge, Malformed, Refusal
from streamhouse.wire.http.records.formats import BAD_VALUE
from streamhouse.wire.http.records.publish_body import Defaults, new_record, prepare_values
from streamhouse.wire.http.records.schema_encoding import Deadline, SchemaEncoding
from streamhouse.wire.http.records.types import BadLine, RecordShape, Uploaded, UploadedPartition

LINES_AT_ONCE: Final = 200
"""Lines that are parsed before others have their turn: a line of three bytes takes as long as one of a hundred."""


class LineSplitter:
    def __init__(self) -> None:
        self._rest = bytearray()

    def __repr__(self) -> str:
        return f"<LineSplitter rest={len(self._rest)}>"

    @property
    def rest_bytes(self) -> int:
        """Bytes of the incomplete line."""
        return len(self._rest)

    def take(self, piece: bytes) -> list[bytes]:
        """The lines completed by this chunk, without line ends."""
        first, *others = piece.split(b"\n")
        self._rest += first
        if not others:
            return []
        lines = [bytes(self._rest), *others[:-1]]
        self._rest = bytearray(others[-1])
        return lines

    def take_rest(self) -> bytes:
        """The last line, which may lack a line end."""
        rest, self._rest = bytes(self._rest), bytearray()
        return rest


_Line = NewRecord | Malformed | None
"""A line: a record, an error, or None for an empty line."""


class _Stopped(Exception):
    """The upload is aborted; the error was noted."""


class Upload:
    def __init__(
        self,
        records: RecordService,
        settings: HttpSettings,
        *,
        topic: str,
        defaults: Defaults,
        encoding: SchemaEncoding,
        large_bodies: LargeWork,
        idempotency_key: str | None,
    ) -> None:
        self._encoding = encoding
        self._large_bodies = large_bodies
        self._records = records
        self._settings = settings
        self._topic = topic
        self._defaults = defaults
        self._key = idempotency_key
        self._splitter = LineSplitter()
        self._line = 0
        self._waiting: list[NewRecord] = []
        self._lines: list[int] = []
        self._waiting_bytes = 0
        self._batches = 0
        self._published = 0
        self._failed = 0
        self._errors: list[BadLine] = []
        self._partitions: dict[int, UploadedPartition] = {}
        self.first_error: StreamhouseError | None = None

    def __repr__(self) -> str:
        return f"<Upload {self._topic} lines={self._line} published={self._published} failed={self._failed}>"

    async def run(self, pieces: AsyncIterator[bytes]) -> Uploaded:
        """Publish until the body ends; if it is aborted, the reason is among the errors."""
        complete = True
        try:
            await self._read(pieces)
        except _Stopped:
            complete = False
        except (Refusal, Stopping) as error:  # client disconnected, body too slow, or line too long
            self._blame(self._line + 1, error)
            complete = False
            if self._key is None:
                with suppress(_Stopped):
                    await self._publish()
        return self._summary(complete=complete)

    async def _read(self, pieces: AsyncIterator[bytes]) -> None:
        reading: asyncio.Task[bytes] | None = None
        try:
            while True:
                reading = reading or asyncio.ensure_future(_next(pieces))
                is_patient = self._key is not None or not self._waiting
                await asyncio.wait({reading}, timeout=None if is_patient else self._settings.upload_linger_s)
                if not reading.done():
                    await self._publish()
                    continue
                piece, reading = reading.result(), None
                if not piece:
                    break
                await self._take(piece)
        finally:
            if reading is not None:
                reading.cancel()
        if (rest := self._splitter.take_rest()).strip():  # the last line may lack a line end
            await self._add_all([rest])
        await self._publish()

    async def _take(self, piece: bytes) -> None:
        await self._add_all(self._splitter.take(piece))
        self._check_length(self._splitter.rest_bytes)

    async def _add_all(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            self._check_length(len(line))
        at_once = max(len(lines), 1) if self._defaults.has_writer else LINES_AT_ONCE
        for start in range(0, len(lines), at_once):
            some = lines[start : start + at_once]
            for line, record in zip(some, await self._written(some), strict=True):
                self._add(line, record)
                if (
                    len(self._waiting) >= self._settings.upload_records
                    or self._waiting_bytes >= self._settings.upload_bytes
                ):
                    await self._publish()
            if len(some) < len(lines):
                await yield_to_loop()

    async def _written(self, lines: Sequence[bytes]) -> list[_Line]:
        """The record of each line; records with schemas, and many bytes, are translated in a thread."""
        if not lines or not self._defaults.has_writer:
            return await self._large_bodies.run(
                lambda: [_record_of(_shape_of(line), self._defaults) for line in lines],
                is_large=sum(map(len, lines)) > INLINE_BYTES,
            )
        return await self._encoding.run(lambda deadline: self._write(lines, deadline))

    def _write(self, lines: Sequence[bytes], deadline: Deadline) -> list[_Line]:
        shapes = [_shape_of(line) for line in lines]
        whole = [shape for shape in shapes if isinstance(shape, RecordShape)]
        defaults = prepare_values(whole, self._defaults, self._encoding, deadline)
        records: list[_Line] = []
        for shape in shapes:
            deadline.check()
            records.append(_record_of(shape, defaults))
        return records

    def _add(self, line: bytes, record: _Line) -> None:
        self._line += 1
        if isinstance(record, Malformed):
            self._blame(self._line, record)
        elif record is not None:
            self._waiting.append(record)
            self._lines.append(self._line)
            self._waiting_bytes += len(line)

    def _check_length(self, size: int) -> None:
        limit = self._settings.max_line_bytes
        if size > limit:
            raise BodyTooLarge(f"a line is too long; limit={limit} setting=http.max_line_bytes")

    async def _publish(self) -> None:
        if not self._waiting:
            return
        records, lines = self._waiting, self._lines
        self._waiting, self._lines, self._waiting_bytes = [], [], 0
        self._batches += 1
        try:
            responses = await self._records.publish(
                self._topic,
                records,
                acks=self._defaults.acks,
                idempotency_key=None if self._key is None else f"{self._key}/{self._batches}",
                timeout_s=self._settings.publish_timeout_s,
            )
        except StreamhouseError as error:  # the error applies to all following lines as well
            self._settle(lines, [error] * len(lines))
            raise _Stopped from None
        self._settle(lines, responses)
        if any(isinstance(response, Retriable) for response in responses):
            raise _Stopped

    def _settle(self, lines: Sequence[int], responses: Sequence[Receipt | StreamhouseError]) -> None:
        for line, response in zip(lines, responses, strict=True):
            if isinstance(response, Receipt):
                self._note(response)
            else:
                self._blame(line, response)

    def _note(self, receipt: Receipt) -> None:
        self._published += 1
        before = self._partitions.get(receipt.partition)
        self._partitions[receipt.partition] = UploadedPartition(
            partition=receipt.partition,
            records=1 if before is None else before.records + 1,
            last_offset=receipt.offset,
        )

    def _blame(self, line: int, error: StreamhouseError) -> None:
        self.first_error = self.first_error or error
        self._failed += 1
        if len(self._errors) < MAX_FIELD_ERRORS:
            self._errors.append(BadLine(line=line, reason=str(error)))

    def _summary(self, *, complete: bool) -> Uploaded:
        return Uploaded(
            records=self._published,
            failed=self._failed,
            errors=self._errors,
            partitions=[self._partitions[number] for number in sorted(self._partitions)],
            complete=complete,
        )


def _shape_of(line: bytes) -> RecordShape | Malformed | None:
    """Parse a line; None if it is empty."""
    if not line.strip():
        return None
    try:
        return decode_json(line, RecordShape)
    except Malformed as error:
        return error


def _record_of(shape: RecordShape | Malformed | None, defaults: Defaults) -> _Line:
    if not isinstance(shape, RecordShape):
        return shape
    try:
        return new_record(shape, defaults)
    except BAD_VALUE as error:
        return Malformed(f"the record can't be read; why={error}")


async def _next(pieces: AsyncIterator[bytes]) -> bytes:
    """The next chunk that isn't empty; None at the end."""
    async for piece in pieces:
        if piece:
            return piece
    return b""
