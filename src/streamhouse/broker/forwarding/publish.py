"""PublishService: records of one call become batches, batches go to their leaders, and each record gets its receipt.

Data path   HTTP, gRPC -> **publish** -> forwarding_producer -> logs
Owns        the partition of each record, where a batch is split, rejecting single records, receipts in order
Leaves      hashing keys to `format.partitioner`; sending and retries to `forwarding_producer`
"""

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from itertools import count, repeat
from typing import Final

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.forwarding.forwarding_producer import ForwardingProducer, SendResult, StoredBatch
from streamhouse.broker.forwarding.leader_lookup import LocalBroker
from streamhouse.broker.forwarding.outbound_batch import (
    IdempotencyKey,
    OnRejected,
    RawBatch,
    RecordBatch,
    encode,
    has_many_elements,
)
from streamhouse.errors import (
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
    Retriable,
    StreamhouseError,
    Unavailable,
    UnknownTopic,
)
from streamhouse.format.compression import Codec
from streamhouse.format.partitioner import partition_for
from streamhouse.format.records import encode_batch
from streamhouse.limits import LargeWork, iterate_fairly
from streamhouse.model.names import TopicId, TopicPartition
from streamhouse.model.record import Acks, NewRecord, Receipt
from streamhouse.model.topic import Topic, TopicConfig
from streamhouse.model.topic_settings import MAX_LONG
from streamhouse.retry import RetryDeadline
from streamhouse.tracing import HEADER, SpanContext, current_context

MAX_BATCHES: Final = 10_000
"""Encoded batches of one request: the smallest are 70 bytes, and each costs as much as a large one."""

CONFIG_FRESH_S: Final = 1.0
MAX_CONFIGS: Final = 1000


def assign_partitions(
    topic: Topic, records: Sequence[NewRecord], *, sticky: int, refuse: OnRejected
) -> dict[int, list[int]]:
    """Positions of the records by partition, in their order; invalid ones are passed to `refuse`.

    Records without a key stay together, so that one call makes few batches.
    """
    partitions = topic.partitions
    sticky %= partitions
    by_partition: dict[int, list[int]] = {}
    for position, (_, key, _, timestamp_ms, partition) in enumerate(records):
        if partition is None:
            partition = sticky if key is None else partition_for(key, partitions)
        elif not 0 <= partition < partitions:
            refuse(position, UnknownTopic(TopicPartition(topic.name, partition)))
            continue
        if timestamp_ms is not None and not 0 <= timestamp_ms <= MAX_LONG:
            refuse(position, InvalidTimestamp(f"timestamp is out of range; timestamp_ms={timestamp_ms}"))
            continue
        if (positions := by_partition.get(partition)) is None:
            positions = by_partition[partition] = []
        positions.append(position)
    return by_partition


def check_batches(count: int) -> None:
    """Raise `InvalidRecord` for a request with too many batches."""
    if count > MAX_BATCHES:
        raise InvalidRecord(f"too many batches in one request; batches={count} limit={MAX_BATCHES}")


class TopicConfigs:
    """Cached settings of topics, parsed at most once per second: the leader checks the limits anyway."""

    def __init__(self, dependencies: Dependencies, here: LocalBroker) -> None:
        self._clock = dependencies.clock
        self._here = here
        self._known: dict[TopicId, tuple[float, Topic, TopicConfig]] = {}

    def of(self, topic: Topic) -> TopicConfig:
        now = self._clock.monotonic()
        at, same, config = self._known.get(topic.topic_id, (0.0, None, None))
        if config is None or same is not topic or now - at >= CONFIG_FRESH_S:
            if len(self._known) >= MAX_CONFIGS:
                self._known.clear()
            config = self._here.catalog.config_of(topic)
            self._known[topic.topic_id] = now, topic, config
        return config


class BatchBuilder:
    """Encodes the records of one call; rejected records are passed to `refuse`."""

    def __init__(
        self,
        dependencies: Dependencies,
        records: Sequence[NewRecord],
        *,
        config: TopicConfig,
        key: IdempotencyKey | None,
        refuse: OnRejected,
        large_calls: LargeWork,
    ) -> None:
        self._large_calls = large_calls
        self._compress_at_bytes = dependencies.settings.records.compress_at_bytes
        self._now_ms = dependencies.clock.now_ms()
        self._records = records
        self._config = config
        self._key = key
        self._refuse = refuse

    async def pack(self, name: TopicPartition, positions: Sequence[int]) -> list[RecordBatch]:
        """Encode batches, in order. A batch that is too large is halved until it fits; a single large record is
        rejected."""
        waiting, outbound_batches = [positions], list[RecordBatch]()
        while waiting:
            chosen = waiting.pop()
            records = self._records if len(chosen) == len(self._records) else [self._records[at] for at in chosen]
            size_bytes = sum([len(value or b"") + len(key or b"") for value, key, _, _, _ in records])
            codec = Codec.LZ4 if 0 < self._compress_at_bytes <= size_bytes else Codec.NONE
            try:
                encoded = await encode(records, codec=codec, now_ms=self._now_ms, size_bytes=size_bytes)
            except InvalidRecord as error:
                work = partial(self._without, chosen, error)
                if valid := await self._large_calls.run(work, is_large=has_many_elements(records)):
                    waiting.append(valid)
                continue
            if len(encoded) <= self._config.max_message_bytes:
                identity = self._key.identity(len(outbound_batches)) if self._key is not None else None
                outbound_batches.append(
                    RecordBatch(
                        records,
                        chosen,
                        codec=codec,
                        now_ms=self._now_ms,
                        identity=identity,
                        refuse=self._refuse,
                        first=encoded,
                    )
                )
            elif len(chosen) > 1:
                middle = len(chosen) // 2
                waiting += [chosen[middle:], chosen[:middle]]
            else:
                limit_bytes = self._config.max_message_bytes
                self._refuse(chosen[0], RecordTooLarge(name, size_bytes=len(encoded), limit_bytes=limit_bytes))
        return outbound_batches

    def _without(self, chosen: Sequence[int], error: InvalidRecord) -> list[int]:
        """The positions that can be encoded, found in one pass: encoding again per invalid record would be
        quadratic."""
        valid: list[int] = []
        for position in chosen:
            try:
                encode_batch([self._records[position]], codec=Codec.NONE, now_ms=self._now_ms)
            except InvalidRecord as own:
                self._refuse(position, own)
            else:
                valid.append(position)
        if len(valid) == len(chosen):  # each can be encoded alone, but not all together
            for position in valid:
                self._refuse(position, error)
            return []
        return valid


def with_trace(records: Sequence[NewRecord], context: SpanContext | None) -> Sequence[NewRecord]:
    """The records with the request's trace in a header, so that leaders and consumers can follow it; those that have
    one of their own keep it. Calls with an idempotency key are left as they are: a retry has another trace, and must be
    the same records."""
    if context is None or not context.is_sampled:
        return records
    header = (HEADER, context.traceparent.encode())
    return [
        record
        if any(name == HEADER for name, _ in record.headers)
        else record._replace(headers=(*record.headers, header))
        for record in records
    ]


RecordResult = Receipt | StreamhouseError

NOT_TRIED: Final = Unavailable("the record was not tried")


class PublishService:
    def __init__(self, dependencies: Dependencies, here: LocalBroker, *, delivery: ForwardingProducer) -> None:
        self._dependencies = dependencies
        self._here = here
        self._delivery = delivery
        self._configs = TopicConfigs(dependencies, here)
        self._large_calls = LargeWork()
        self._calls = 0

    async def publish(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        acks: Acks,
        idempotency_key: str | None = None,
        timeout_s: float,
    ) -> list[RecordResult]:
        """Publish records; one result per record, in order. Raises `UnknownTopic`."""
        if not records:
            return []
        deadline = self._dependencies.deadline(timeout_s)
        target = await self._topic(topic, deadline)
        results: list[RecordResult] = [NOT_TRIED] * len(records)
        is_large = has_many_elements(records)
        if idempotency_key is None and self._dependencies.traces is not None:
            records = await self._large_calls.run(partial(with_trace, records, current_context()), is_large=is_large)
        key = None
        if idempotency_key is not None:
            key = await self._large_calls.run(partial(IdempotencyKey, idempotency_key, records), is_large=is_large)
        builder = BatchBuilder(
            self._dependencies,
            records,
            config=self._configs.of(target),
            key=key,
            refuse=results.__setitem__,
            large_calls=self._large_calls,
        )
        by_partition = await self._large_calls.run(
            partial(assign_partitions, target, records, sticky=self._sticky(key), refuse=results.__setitem__),
            is_large=is_large,
        )

        async def publish_to(partition: int, positions: Sequence[int]) -> None:
            name = TopicPartition(target.name, partition)
            outbound_batches = await builder.pack(name, positions)
            outcomes = await self._delivery.send(name, outbound_batches, acks=acks, deadline=deadline)
            for outbound, outcome in zip(outbound_batches, outcomes, strict=True):
                work = partial(_fill_receipts, results, partition, outbound, outcome)
                await self._large_calls.run(work, is_large=is_large)

        await _all([publish_to(partition, positions) for partition, positions in by_partition.items()])
        return results

    async def publish_batches(
        self, name: TopicPartition, batches: Sequence[memoryview], *, acks: Acks, timeout_s: float
    ) -> list[RecordResult]:
        """Publish encoded batches; one result per batch, in order. The buffers are copied. Raises `UnknownTopic`."""
        deadline = self._dependencies.deadline(timeout_s)
        await self._topic(name.topic, deadline)
        outbound_batches: dict[int, RawBatch] = {}
        results: dict[int, RecordResult] = {}
        async for position, batch in iterate_fairly(enumerate(batches)):
            try:
                outbound_batches[position] = RawBatch(batch)
            except StreamhouseError as error:
                results[position] = error
        outcomes = await self._delivery.send(name, list(outbound_batches.values()), acks=acks, deadline=deadline)
        for (position, outbound), outcome in zip(outbound_batches.items(), outcomes, strict=True):
            results[position] = _receipt(name.partition, outcome, outbound.timestamp_ms)
        return [results[position] for position in range(len(batches))]

    async def _topic(self, name: str, deadline: RetryDeadline) -> Topic:
        """Find the topic, or create it if settings allow it; retries while the store is unavailable."""
        while True:
            try:
                async with asyncio.timeout(deadline.left_s):
                    return await self._here.topic(name, create=True)
            except TimeoutError:
                raise Unavailable(f"the topic could not be looked up in time; name={name}") from None
            except Retriable as error:
                await deadline.wait_to_retry(error)

    def _sticky(self, key: IdempotencyKey | None) -> int:
        if key is not None:
            return key.sticky
        self._calls += 1
        return self._calls


async def _all(work: Sequence[Coroutine[object, object, None]]) -> None:
    """Run all concurrently; a single one without a task."""
    if len(work) == 1:
        return await work[0]
    async with asyncio.TaskGroup() as tasks:
        for each in work:
            tasks.create_task(each, name="publish")


def _fill_receipts(results: list[RecordResult], partition: int, outbound: RecordBatch, outcome: SendResult) -> None:
    """Set the results of a batch's records; a hot loop, so it iterates in C."""
    if not isinstance(outcome, StoredBatch):
        for position in outbound.positions:
            results[position] = outcome
        return
    offsets = repeat(None) if outcome.offset is None else count(outcome.offset)
    times = repeat(outcome.append_time_ms) if outcome.append_time_ms >= 0 else outbound.timestamps_ms()
    for position, receipt in zip(outbound.positions, map(Receipt, repeat(partition), offsets, times), strict=False):
        results[position] = receipt


def _receipt(partition: int, outcome: SendResult, timestamp_ms: int) -> RecordResult:
    if not isinstance(outcome, StoredBatch):
        return outcome
    return Receipt(partition, outcome.offset, outcome.append_time_ms if outcome.append_time_ms >= 0 else timestamp_ms)
