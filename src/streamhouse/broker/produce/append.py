"""AppendService: validates and admits a batch before it is appended to a log.

Data path   broker -> **append** (validation, topic rules, memory, order) -> partition.log
Owns        admission; a batch never overtakes an earlier one that was rejected for the moment (`SequenceGapGuard`)
Leaves      offsets to `partition.log`; topic rules to `partition.topic_rules`; schema ids to
            `schemas.record_validation`; the state of transactions to `transactions`

The first batch of a transaction in a partition is appended only after the coordinator has confirmed that the
transaction is open. If a marker is written in the meantime, the confirmation is void and is requested again.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from streamhouse.broker.context import BrokerContext
from streamhouse.broker.partition.batch_decoder import INLINE_BYTES, StoredSize
from streamhouse.broker.partition.log import PartitionLog, PendingAppend
from streamhouse.broker.partition.topic_rules import RuleViolation, find_violation
from streamhouse.broker.record_traces import TRACED_PER_BATCH
from streamhouse.broker.schemas.record_validation import SchemaCheck
from streamhouse.errors import (
    BadRecords,
    ConcurrentTransactions,
    InvalidTransactionState,
    OutOfOrderSequence,
    PredecessorRefused,
    RecordTooLarge,
    Rejected,
    StreamhouseError,
)
from streamhouse.format.batch import (
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    check_batch,
    codec_of,
    correct_max_timestamp,
    read_header,
)
from streamhouse.format.compression import Codec
from streamhouse.format.record_codec import SchemaIds
from streamhouse.format.records import (
    RecordsSummary,
    check_record_count,
    find_records,
    schema_ids_in,
    stored_payload,
    validate_payload,
)
from streamhouse.format.trace_headers import find_traceparents
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.schema import Check
from streamhouse.model.topic import RecordPart
from streamhouse.model.transaction import ProducerIdentity

INSPECTED_RECORDS: Final = 10_000
"""Records of an invalid batch that are checked one by one; librdkafka's batches are not larger."""

AHEAD_BYTES: Final = 1024 * 1024
AHEAD_BATCHES: Final = 32
"""How much of the compressed batches of a request, and how many, are decompressed in one trip to a thread. A trip takes
milliseconds; one for each batch would cost more than decompressing it."""
AHEAD_CODEC: Final = Codec.ZSTD

NO_SCHEMA_IDS: Final[Mapping[RecordPart, SchemaIds]] = MappingProxyType({})

VERIFICATIONS: Final = 3
"""Retries of a verification while markers of the producer arrive; after that the client retries."""


class Inspection(NamedTuple):
    """The summary of a batch's records; their schema ids if the topic validates them; if tracing is on, the traces that
    some of them carry."""

    summary: RecordsSummary
    schema_ids: Mapping[RecordPart, SchemaIds]
    traceparents: Sequence[tuple[int, str]] = ()


class TransactionStart(NamedTuple):
    """A producer whose transaction may start in these partitions."""

    partition: PartitionId
    producer: ProducerIdentity


class ProduceTransaction(NamedTuple):
    """The transaction of a request's batches; with `enlists` their partitions are added to it. `verified` are the
    verified partitions, with the tokens of their logs."""

    transactional_id: str
    enlists: bool
    verified: Mapping[TransactionStart, int] | None = None


class VerifyTransaction(Protocol):
    """Raises unless the producer's transaction is open and contains all of the partitions."""

    def __call__(
        self, partitions: Sequence[PartitionId], transactional_id: str, producer: ProducerIdentity, enlists: bool
    ) -> Awaitable[None]: ...


class AppendService:
    def __init__(self, context: BrokerContext, *, schema_check: SchemaCheck, verifier: VerifyTransaction) -> None:
        dependencies = context.dependencies
        self._dependencies = dependencies
        self._schema_check = schema_check
        self._verifier = verifier
        self._settings = dependencies.settings.producers
        self._open_log = context.open_partitions.open_log
        self._agent_session = context.session_manager.current
        self._budget = context.budget
        self._decoder = context.decoder
        self._traffic = context.traffic
        # A single agent knows all rejections, because it made them itself.
        self._settle_s = 0.0 if dependencies.single_agent else dependencies.settings.producers.settle_s
        self._gap_guard = context.gap_guard
        self._traces = dependencies.traces

    def __repr__(self) -> str:
        return f"<AppendService {self._gap_guard!r} {self._budget!r}>"

    async def append(
        self,
        name: TopicPartition,
        data: memoryview,
        transaction: ProduceTransaction | None = None,
        inspection: Inspection | None = None,
    ) -> PendingAppend:
        """Check, admit and append one batch; raises `Retriable` if it may be sent again. `inspection` is the result of
        `inspect_ahead`."""
        began_ns = 0 if self._traces is None else self._traces.tracer.now_ns()
        try:
            opened = await self._open_log(name)
            if len(data) > opened.config.max_message_bytes:
                raise RecordTooLarge(name, size_bytes=len(data), limit_bytes=opened.config.max_message_bytes)
            header = check_batch(data)
            checks = opened.config.schema_checks
            if inspection is None or not checks.keys() <= inspection.schema_ids.keys():
                if header.codec or len(data) > INLINE_BYTES:
                    inspection = await self._inspect(data, header, checks)
                    opened = await self._open_log(name)  # a thread took time
                else:
                    inspection = self._inspect_inline(data, header, checks)
            summary, schema_ids, traceparents = inspection
            if (
                violation := find_violation(summary, opened.config, now_ms=self._dependencies.clock.now_ms())
            ) is not None:
                raise await self._bad_records(name, data, header, violation)
            if schema_ids:
                await self._check_schemas(name, data, header, opened.config.schema_checks, schema_ids)
            if summary.max_timestamp_ms != header.max_timestamp_ms:
                header = correct_max_timestamp(data, summary.max_timestamp_ms)
            if not self._budget.fits(len(data)):
                await self._budget.admit(len(data))
                opened = await self._open_log(name)
            if header.is_transactional:
                opened = await self._verified(name, header, transaction)
            elif not opened.barrier.is_open:
                await opened.barrier.wait()
            pending = self._append_to(opened, header, data)
            if self._traces is not None and pending.commit is not None:
                self._traces.appended(
                    name, opened.partition, pending.base_offset, traceparents, pending.commit, start_ns=began_ns
                )
            return pending
        except Rejected:
            raise
        except StreamhouseError:  # the client will send the same batch again
            with suppress(Rejected):
                self._gap_guard.rejected(name, [read_header(data)], now=self._dependencies.clock.monotonic())
            raise

    async def _verified(
        self, name: TopicPartition, header: BatchHeader, transaction: ProduceTransaction | None
    ) -> PartitionLog:
        """The log, when the batch may be appended; the caller must append without a suspension."""
        if transaction is None:
            raise InvalidTransactionState("", why=f"a transactional batch without a transactional id; partition={name}")
        producer = ProducerIdentity(header.producer_id, header.producer_epoch)
        known = transaction.verified or {}
        opened = await self._open_log(name)
        for _ in range(VERIFICATIONS):
            if not opened.barrier.is_open:
                await opened.barrier.wait()
            first = TransactionStart(opened.partition, producer)
            if not opened.needs_verification(header):
                return opened
            if (verified_token := known.get(first)) is not None and opened.verify(header, verified_token):
                return opened
            token = opened.transaction_token(header.producer_id)
            await self._verifier([opened.partition], transaction.transactional_id, producer, transaction.enlists)
            opened = await self._open_log(name)
            if not opened.barrier.is_open:
                await opened.barrier.wait()
            if opened.partition == first.partition and opened.verify(header, token):
                return opened
        raise ConcurrentTransactions(transaction.transactional_id)

    async def verify_ahead(
        self, transaction: ProduceTransaction, batches: Mapping[TopicPartition, Buffer]
    ) -> ProduceTransaction:
        """Verify all batches of a request in one call. If it fails, each batch is verified again and gets its own
        error."""
        firsts = dict(self._firsts(batches))
        producers = {first.producer for first in firsts}
        if len(firsts) <= 1 or len(producers) > 1:
            return transaction
        partitions = [first.partition for first in firsts]
        try:
            await self._verifier(partitions, transaction.transactional_id, producers.pop(), transaction.enlists)
        except StreamhouseError:
            return transaction
        return transaction._replace(verified=firsts)

    def _firsts(self, batches: Mapping[TopicPartition, Buffer]) -> Iterator[tuple[TransactionStart, int]]:
        """Batches that may start a transaction in a partition that is open here, with the tokens of their logs."""
        for name, data in batches.items():
            opened = self._agent_session().logs.find(name)
            header = None
            with suppress(Rejected):
                header = read_header(data)
            if opened is not None and header is not None and opened.needs_verification(header):
                producer = ProducerIdentity(header.producer_id, header.producer_epoch)
                yield TransactionStart(opened.partition, producer), opened.transaction_token(header.producer_id)

    def _append_to(self, opened: PartitionLog, header: BatchHeader, data: memoryview) -> PendingAppend:
        agent_session = self._agent_session()
        agent_session.require_valid(opened.name)
        clock = self._dependencies.clock
        now = clock.monotonic()
        missing = opened.sequence_gap_before(header)
        if missing is not None and self._is_settling(opened, header, now=now):
            raise _not_yet(opened.name, header, missing)
        awaited = self._gap_guard.missing(opened.name, header, now=now) if self._gap_guard else None
        if awaited is not None and not opened.knows_producer(header):
            raise _not_yet(opened.name, header, awaited)
        try:
            pending = opened.append(header, data, now=now, now_ms=clock.now_ms())
        except OutOfOrderSequence:
            # Clients with several batches in flight would treat it as a loss and start a new epoch, and then store
            # batches again whose outcome they don't know.
            if awaited is None:
                raise
            raise _not_yet(opened.name, header, awaited) from None
        if self._gap_guard:
            self._gap_guard.appended(opened.name, header)
        if pending.commit is not None:
            self._budget.take(len(data))
            self._traffic.appended(opened.name.topic, records=header.record_count, size_bytes=len(data))
        return pending

    def _is_settling(self, opened: PartitionLog, header: BatchHeader, *, now: float) -> bool:
        """Whether the batches before a gap may still be in flight, rejected by the previous leader. The time counts
        from the producer's first gap, because producers may find a new leader late."""
        first = self._gap_guard.since(opened.name, header, now=now)
        return self._settle_s > 0 and (first is None or now < first + self._settle_s)

    def _inspect_inline(self, data: memoryview, header: BatchHeader, checked: Iterable[RecordPart]) -> Inspection:
        """`_inspect` for a small uncompressed batch: on the event loop, and without the way through the decoder."""
        check_record_count(header, self._settings.max_batch_records)
        return self._open(data, header, tuple(checked), self._decoder.limit_bytes)

    async def _inspect(self, data: memoryview, header: BatchHeader, checked: Iterable[RecordPart]) -> Inspection:
        """Raise if the records don't match the header, or exceed the limits of a batch."""
        check_record_count(header, self._settings.max_batch_records)
        parts = tuple(checked)
        work = partial(self._open, data, header, parts)
        return await self._decoder.run(StoredSize(header.codec, len(data)), work)

    def _open(self, data: Buffer, header: BatchHeader, parts: Sequence[RecordPart], limit_bytes: int) -> Inspection:
        payload = stored_payload(data, header, limit_bytes)
        summary = validate_payload(payload, header, max_headers=self._settings.max_record_headers)
        if self._traces is None and not parts:
            return Inspection(summary, NO_SCHEMA_IDS)
        traced = [] if self._traces is None else find_traceparents(payload, header, limit=TRACED_PER_BATCH)
        return Inspection(summary, {part: schema_ids_in(payload, header, part=part) for part in parts}, traced)

    async def inspect_ahead(self, batches: Sequence[tuple[TopicPartition, Buffer]]) -> list[Inspection | None]:
        """Decompress the batches of a request together, in few trips to a thread. None for batches that are malformed,
        uncompressed or large: they are decompressed at their append. Does not check checksums."""
        inspections: list[Inspection | None] = [None] * len(batches)
        small = [job for number, (name, data) in enumerate(batches) if (job := self._ahead(number, name, data))]
        if len(small) <= 1:
            return inspections
        for jobs in trips(small):
            largest = StoredSize(AHEAD_CODEC, max(job.size_bytes for job in jobs))
            with suppress(StreamhouseError):
                for number, inspection in await self._decoder.run(largest, partial(_all, jobs)):
                    inspections[number] = inspection
        return inspections

    def _ahead(self, number: int, name: TopicPartition, data: Buffer) -> "AheadJob | None":
        if not HEADER_BYTES <= len(data) <= AHEAD_BYTES or codec_of(data) == Codec.NONE:
            return None
        opened = self._agent_session().logs.find(name)
        if opened is None:
            return None
        with suppress(Rejected):
            header = read_header(data)
            check_record_count(header, self._settings.max_batch_records)
            return AheadJob(number, len(data), partial(self._open, data, header, tuple(opened.config.schema_checks)))
        return None

    async def _check_schemas(
        self,
        name: TopicPartition,
        data: memoryview,
        header: BatchHeader,
        checks: Mapping[RecordPart, Check],
        schema_ids: Mapping[RecordPart, SchemaIds],
    ) -> None:
        """Raise for records without the schema ids that their topic requires."""
        for part, ids in schema_ids.items():
            if (check := checks.get(part)) is None:
                continue
            violation = await self._schema_check.find_violation(name.topic, ids, part=part, check=check)
            if violation is not None:
                raise await self._bad_records(name, data, header, violation)

    async def _bad_records(
        self, name: TopicPartition, data: memoryview, header: BatchHeader, violation: RuleViolation
    ) -> BadRecords:
        """The error of a batch that violates a rule, with the rejected records."""
        max_headers = self._settings.max_record_headers

        def blame(limit_bytes: int) -> list[int]:
            is_broken = violation.is_broken_by
            return find_records(
                data, header, is_broken, among=INSPECTED_RECORDS, limit_bytes=limit_bytes, max_headers=max_headers
            )

        to_blame = await self._decoder.run(StoredSize(header.codec, len(data)), blame, inline_bytes=0)
        return violation.error(f"{violation.text} partition={name}", records=to_blame)


class AheadJob(NamedTuple):
    """A batch of a request, by its number, that is decompressed together with others."""

    number: int
    size_bytes: int
    work: Callable[[int], Inspection]


def trips(jobs: Sequence[AheadJob]) -> Iterator[list[AheadJob]]:
    """Divide jobs, in order, by the limits of a trip to a thread."""
    trip: list[AheadJob] = []
    size = 0
    for job in jobs:
        if trip and (len(trip) == AHEAD_BATCHES or size + job.size_bytes > AHEAD_BYTES):
            yield trip
            trip, size = [], 0
        trip.append(job)
        size += job.size_bytes
    if trip:
        yield trip


def _all(jobs: Sequence[AheadJob], limit_bytes: int) -> list[tuple[int, Inspection]]:
    """The inspections of valid batches; the others are decompressed again at their append, which raises the error."""
    inspected: list[tuple[int, Inspection]] = []
    for job in jobs:
        with suppress(StreamhouseError):
            inspected.append((job.number, job.work(limit_bytes)))
    return inspected


def _not_yet(name: TopicPartition, header: BatchHeader, awaited: int) -> PredecessorRefused:
    return PredecessorRefused(name, producer_id=header.producer_id, awaited=awaited, got=header.base_sequence)
