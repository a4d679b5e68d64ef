"""Producer: sends records to a topic; each record has a delivery that says where it was stored.

Chooses partitions, bounds the memory of what is pending, and interprets Produce responses. Order, batching and retries
are the partition senders'.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from aiokafka.errors import (
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    OutOfOrderSequenceNumber,
    RecordListTooLargeError,
    for_code,
)
from aiokafka.protocol.transaction import InitProducerIdRequest

from streamhouse.client.addresses import Bootstrap, resolve_bootstrap
from streamhouse.client.credentials import NO_CREDENTIALS, Credentials
from streamhouse.client.delivery import Batch, Delivery
from streamhouse.client.kafka_admin import Admin
from streamhouse.client.kafka_errors import from_code
from streamhouse.client.kafka_messages import Produce
from streamhouse.client.partition_sender import NotStored, PartitionSender, ProducerIdentity, Stored
from streamhouse.client.serde import AnyHeaders, Write, header_pairs, plain_key, plain_value
from streamhouse.client.types import Acks, Compression, Headers, Topic
from streamhouse.clock import Clock, Ids, SystemClock
from streamhouse.errors import InvalidPartitions, Rejected, Retriable, StreamhouseError, Unavailable, UnknownTopic
from streamhouse.format.compression import Codec
from streamhouse.format.partitioner import partition_for
from streamhouse.format.records import encode_batch
from streamhouse.model.record import NewRecord, Receipt

CLOSE_S: Final = 2.0
REFRESH_S: Final = 60.0
MAX_REQUEST_S: Final = 10.0
THREAD_BYTES: Final = 64 * 1024
RECORD_OVERHEAD_BYTES: Final = 24
MAX_UNSEEN: Final = 100

_UNKNOWN_SERVER_ERROR: Final = -1
_UNKNOWN_PRODUCER_ID: Final = 59
_TOO_LARGE: Final = (MessageSizeTooLargeError.errno, RecordListTooLargeError.errno)
_LOST: Final = (OutOfOrderSequenceNumber.errno, InvalidProducerEpoch.errno, _UNKNOWN_PRODUCER_ID)
_ACKS: Final[Mapping[Acks, int]] = {"0": 0, "1": 1, "all": -1}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Settings of a producer; the defaults suit most programs."""

    acks: Acks = "all"
    """Required acknowledgements; with `all`, a retry never stores a record twice."""
    compression: Compression = "none"
    linger_ms: int = 0
    """How long a batch that isn't full waits for more records when it could be sent."""
    batch_bytes: int = 512 * 1024
    buffer_bytes: int = 64 * 1024 * 1024
    """Memory for pending records; `enqueue` waits while it is full."""
    max_in_flight: int = 5
    """Batches in flight per partition; agents recognise as many as duplicates."""
    timeout_s: float = 30.0
    """Delivery timeout of a record, retries included."""


def _codec(settings: ProducerSettings) -> Codec:
    if settings.acks not in _ACKS:
        raise Rejected(f"no such acks; acks={settings.acks!r} allowed={', '.join(_ACKS)}")
    try:
        return Codec[settings.compression.upper()]
    except KeyError:
        known = ", ".join(codec.name.lower() for codec in Codec)
        raise Rejected(f"no such compression; compression={settings.compression!r} allowed={known}") from None


class Producer:
    """`send` returns when a record is stored; `enqueue` returns a `Delivery` as soon as there is room.

    Leaving the block flushes. `flush` and leaving raise failures that the caller did not read.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        topic: str,
        *,
        settings: ProducerSettings | None = None,
        write_value: Write | None = None,
        write_key: Write | None = None,
        credentials: Credentials = NO_CREDENTIALS,
        clock: Clock | None = None,
    ) -> None:
        self.topic = topic
        self._given_bootstrap = bootstrap
        self._credentials = credentials
        self._settings = settings or ProducerSettings()
        self._write_value, self._write_key = write_value or plain_value, write_key or plain_key
        self._clock = clock or SystemClock()
        self._idempotent = self._settings.acks == "all"
        self._codec = _codec(self._settings)
        self._admin: Admin | None = None
        self._layout: Topic | None = None
        self._refresh_at = 0.0
        self._senders: dict[int, PartitionSender] = {}
        self._runs: dict[int, asyncio.Task[None]] = {}
        self._sticky = 0
        self._buffered_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._gone: UnknownTopic | None = None
        self._unseen: list[Batch] = []

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<Producer {self.topic} {state} buffered={self._buffered_bytes // 1024}KiB>"

    @property
    def is_open(self) -> bool:
        return self._admin is not None

    async def __aenter__(self) -> Self:
        request_s = min(MAX_REQUEST_S, self._settings.timeout_s / 2)
        admin = Admin(
            await resolve_bootstrap(self._given_bootstrap),
            timeout_s=request_s,
            clock=self._clock,
            credentials=self._credentials,
            client_id="streamhouse-producer",
        )
        await admin.__aenter__()
        try:
            self._layout = await admin.topic(self.topic, create=True)
            for write in (self._write_value, self._write_key):
                await write.open()
        except BaseException:
            await admin.__aexit__(None, None, None)
            raise
        self._admin = admin
        self._refresh_at = self._clock.monotonic() + REFRESH_S
        self._sticky = int(Ids().token(), 16) % len(self._layout.partitions)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.flush()
            else:
                await self._settled(CLOSE_S)
        finally:
            await self._close()

    async def _close(self) -> None:
        runs, self._runs = self._runs, {}
        senders = list(self._senders.values())
        for run in runs.values():
            run.cancel()
        await asyncio.gather(*runs.values(), return_exceptions=True)
        for sender in senders:
            sender.fail_all(Unavailable("the producer was closed before the record was stored"))
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.__aexit__(None, None, None)

    # --- sending

    async def send(
        self,
        value: Any,
        *,
        key: Any = None,
        headers: AnyHeaders = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Receipt:
        """Store a record; returns its position. Without a schema a value is bytes, text, or is encoded as JSON."""
        return await (
            await self.enqueue(value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition)
        )

    async def enqueue(
        self,
        value: Any,
        *,
        key: Any = None,
        headers: AnyHeaders = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Add a record to the buffer; waits only while the buffer is full. Await the `Delivery` for the receipt."""
        return await self.put(self.record(value, key, headers, timestamp_ms, partition))

    def record(
        self, value: Any, key: Any, headers: AnyHeaders, timestamp_ms: int | None, partition: int | None
    ) -> NewRecord:
        """Encode a record; raises `Rejected` for values that can't be encoded."""
        if key is None and value is None:
            raise Rejected("a record needs a key or a value")
        return NewRecord(
            None if value is None else self._write_value(value),
            None if key is None else self._write_key(key),
            header_pairs(headers) if headers else (),
            self._clock.now_ms() if timestamp_ms is None else timestamp_ms,
            partition,
        )

    async def put(self, record: NewRecord) -> Delivery:
        """`enqueue` for an encoded record."""
        if not self.is_open:
            raise Rejected("the producer is not open; use it in: async with client.producer(...) as producer")
        while self._buffered_bytes >= self._settings.buffer_bytes:
            self._room.clear()
            self._flush_now()
            await self._room.wait()
        size_bytes = size_of(record)
        delivery, full = self._sender(record).append(record, size_bytes)
        self._buffered_bytes += size_bytes
        if full:
            self._sticky += 1
            await self._clock.sleep(0)  # let the sender run
        return delivery

    async def flush(self) -> None:
        """Wait until no record is pending; raises the first failure that the caller has not read."""
        await self._settled(None)
        unseen, self._unseen = [batch for batch in self._unseen if batch.is_unseen], []
        for batch in unseen:
            if batch.error is not None:
                raise batch.error

    async def _settled(self, limit_s: float | None) -> None:
        """Wait for the records that are pending now, at most `limit_s`."""
        self._flush_now()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                for delivery in self._pending():
                    if not delivery.done():
                        await delivery.settled()

    def _pending(self) -> list[Delivery]:
        return [
            delivery for sender in self._senders.values() for batch in sender.batches() for delivery in batch.deliveries
        ]

    def _flush_now(self) -> None:
        for sender in self._senders.values():
            sender.flush_now()

    # --- which partition

    def _sender(self, record: NewRecord) -> PartitionSender:
        assert self._layout is not None
        count = len(self._layout.partitions)
        number = record.partition
        if number is None and record.key is not None:
            number = partition_for(record.key, count)
        elif number is None:
            number = self._sticky_partition(count)
        elif not 0 <= number < count:
            raise InvalidPartitions(
                f"no such partition; topic={self.topic} partition={number} allowed=0 to {count - 1}"
            )
        return self._senders.get(number) or self._new_sender(number)

    def _sticky_partition(self, count: int) -> int:
        """The same partition as long as its batch is open: few large batches rather than many small ones."""
        sender = self._senders.get(self._sticky % count)
        if sender is not None and not sender.has_open_batch:
            self._sticky += 1
        return self._sticky % count

    def _new_sender(self, number: int) -> PartitionSender:
        settings = self._settings
        sender = PartitionSender(
            number,
            self,
            clock=self._clock,
            batch_bytes=settings.batch_bytes,
            linger_s=settings.linger_ms / 1000,
            timeout_s=settings.timeout_s,
            max_in_flight=settings.max_in_flight,
            numbered=self._idempotent,
        )
        self._senders[number] = sender
        run = asyncio.get_running_loop().create_task(sender.run(), name=f"sender-{self.topic}-{number}")
        run.add_done_callback(lambda _: self._senders.pop(number, None))
        self._runs[number] = run
        return sender

    # --- for the senders

    async def encode(self, records: list[NewRecord], identity: ProducerIdentity, sequence: int) -> bytes:
        size_bytes = sum(map(size_of, records)) if self._codec != Codec.NONE else 0
        if size_bytes < THREAD_BYTES:
            return self._encoded(records, identity, sequence)
        return await asyncio.to_thread(self._encoded, records, identity, sequence)

    def _encoded(self, records: list[NewRecord], identity: ProducerIdentity, sequence: int) -> bytes:
        return bytes(
            encode_batch(
                records,
                codec=self._codec,
                now_ms=self._clock.now_ms(),
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=sequence,
            )
        )

    async def post(self, partition: int, body: bytes) -> Stored:
        assert self._admin is not None
        if self._clock.monotonic() >= self._refresh_at:
            await self.refresh_leaders()
        assert self._layout is not None
        if self._gone is not None:
            raise NotStored(self._gone, kind="refused")
        leader = next((p.leader for p in self._layout.partitions if p.partition == partition), None)
        topics = [(self.topic, [(partition, body)])]
        timeout_ms = int(min(MAX_REQUEST_S, self._settings.timeout_s / 2) * 1000)
        request = Produce(None, _ACKS[self._settings.acks], timeout_ms, topics)
        try:
            response = await self._admin.send(request, subject=self.topic, node=leader)
        except Retriable as error:
            raise NotStored(error) from None
        except StreamhouseError as error:  # not the agent's response: the batch may be stored or not
            raise NotStored(error, kind="unknown") from None
        return check_response(response, self.topic)

    async def init_producer_id(self) -> ProducerIdentity:
        """Get a producer id for a sender."""
        assert self._admin is not None
        response = await self._admin.send(InitProducerIdRequest(None, 0), subject=self.topic)
        if response.error_code:
            raise from_code(response.error_code, subject=self.topic)
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    async def refresh_leaders(self) -> None:
        """Look the leaders up; keep those known if no agent responds. Batches for a deleted topic fail."""
        self._refresh_at = self._clock.monotonic() + REFRESH_S
        assert self._admin is not None
        try:
            self._layout, self._gone = await self._admin.topic(self.topic), None
        except UnknownTopic as error:
            self._gone = error
        except StreamhouseError:
            return

    def release(self, batch: Batch) -> None:
        """A batch has its result."""
        if batch.error is not None:
            self._unseen = [failed for failed in self._unseen if failed.is_unseen][-MAX_UNSEEN:]
            self._unseen.append(batch)
        self._buffered_bytes -= batch.size_bytes
        if self._buffered_bytes < self._settings.buffer_bytes:
            self._room.set()


def size_of(record: NewRecord) -> int:
    size_bytes = RECORD_OVERHEAD_BYTES + len(record.value or b"") + len(record.key or b"")
    return size_bytes + _headers_bytes(record.headers) if record.headers else size_bytes


def _headers_bytes(headers: Headers) -> int:
    return sum(len(name) + len(value or b"") + 4 for name, value in headers)


def check_response(response: Any, topic: str) -> Stored:
    """Read the response to one batch, None with acks=0; raises `NotStored`."""
    if response is None:
        return Stored(None)
    result = response.topics[0][1][0]
    partition, code, offset, timestamp_ms = result[:4]
    if not code:
        return Stored(offset, timestamp_ms if timestamp_ms >= 0 else None)
    if code == DuplicateSequenceNumber.errno:
        return Stored(None)
    rejected, text = (result[5], result[6]) if len(result) > 6 else ((), None)
    reason = next((why for _, why in rejected if why), None)
    error = from_code(code, subject=f"{topic}-{partition}", text=text or reason)
    if code in _LOST:
        raise NotStored(error, kind="lost")
    if code in _TOO_LARGE:
        raise NotStored(error, kind="refused", splits=True)
    if code == _UNKNOWN_SERVER_ERROR or for_code(code).retriable:
        raise NotStored(error, may_be_stored=code != NotEnoughReplicasError.errno)
    raise NotStored(error, kind="refused", rejected_positions=[position for position, _ in rejected])
