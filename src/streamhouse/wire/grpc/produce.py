"""Produce and ProduceBatches: one append per call."""

from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from streamhouse.broker.broker import Broker
from streamhouse.broker.forwarding.publish import check_batches
from streamhouse.errors import Rejected, StreamhouseError
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import Acks, NewRecord, Receipt
from streamhouse.wire.grpc.calls import Call, CallRunner
from streamhouse.wire.grpc.decoding import translate
from streamhouse.wire.grpc.errors import as_message
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from streamhouse.wire.grpc.requests import acks_of, new_records, partition_name, partition_of
from streamhouse.wire.topic_creation import check_creation

Results = Sequence[Receipt | StreamhouseError]

MAX_KEY_CHARS: Final = 255
"""Longest idempotency key, as over HTTP."""


class RecordsTarget(NamedTuple):
    """Topic and options of the records of a message."""

    topic: str
    acks: Acks
    idempotency_key: str | None

    @property
    def ordering_key(self) -> Hashable:
        return self.topic


class BatchesTarget(NamedTuple):
    """Partition and options of the batches of a message."""

    name: TopicPartition
    acks: Acks
    idempotency_key: None = None

    @property
    def ordering_key(self) -> Hashable:
        return self.name


def read_records(request: pb.ProduceRequest) -> tuple[RecordsTarget, list[NewRecord]]:
    key = request.idempotency_key or None
    if key is not None and len(key) > MAX_KEY_CHARS:
        raise Rejected(f"the key is too long; field=idempotency_key chars={len(key)} limit={MAX_KEY_CHARS}")
    target = RecordsTarget(partition_name(request.topic, "topic"), acks_of(request.acks), key)
    return target, new_records(request.records)


def read_batches(request: pb.ProduceBatchesRequest) -> tuple[BatchesTarget, list[memoryview]]:
    target = BatchesTarget(partition_of(request.topic, request.partition), acks_of(request.acks))
    if not request.batches:
        raise Rejected("there is nothing to append; field=batches")
    check_batches(len(request.batches))
    return target, [memoryview(batch) for batch in request.batches]


class ProduceService:
    def __init__(self, calls: CallRunner, broker: Broker) -> None:
        self._calls = calls
        self._broker = broker
        self._records = broker.records

    async def append_records(self, target: RecordsTarget, records: Sequence[NewRecord], call: Call) -> Results:
        call.access.check(Operation.WRITE, ResourceType.TOPIC, target.topic)
        await check_creation(self._broker, call.access, target.topic)
        with self._calls.admitted(call.size_bytes):
            return await self._records.publish(
                target.topic,
                records,
                acks=target.acks,
                idempotency_key=target.idempotency_key,
                timeout_s=call.timeout_s,
            )

    async def append_batches(self, target: BatchesTarget, batches: Sequence[memoryview], call: Call) -> Results:
        call.access.check(Operation.WRITE, ResourceType.TOPIC, target.name.topic)
        await check_creation(self._broker, call.access, target.name.topic)
        with self._calls.admitted(call.size_bytes):
            return await self._records.publish_batches(target.name, batches, acks=target.acks, timeout_s=call.timeout_s)

    async def produce(self, request: pb.ProduceRequest, call: Call) -> pb.ProduceResponse:
        target, records = await translate(read_records, request, size_bytes=call.size_bytes)
        results = await self.append_records(target, records, call)
        return await translate(produce_response, results, size_bytes=call.size_bytes)

    async def produce_batches(self, request: pb.ProduceBatchesRequest, call: Call) -> pb.ProduceBatchesResponse:
        target, batches = await translate(read_batches, request, size_bytes=call.size_bytes)
        results = await self.append_batches(target, batches, call)
        return await translate(produce_batches_response, results, size_bytes=call.size_bytes)


def produce_response(results: Results) -> pb.ProduceResponse:
    """Build the response for records, column by column; raise the first error if nothing was appended."""
    errors = _errors(results)
    return pb.ProduceResponse(
        partitions=[each.partition if isinstance(each, Receipt) else -1 for each in results],
        offsets=[_offset(each) for each in results],
        errors=errors,
    )


def produce_batches_response(results: Results) -> pb.ProduceBatchesResponse:
    """Build the response for batches; raise the first error if nothing was appended."""
    errors = _errors(results)
    return pb.ProduceBatchesResponse(base_offsets=[_offset(each) for each in results], errors=errors)


def _offset(result: Receipt | StreamhouseError) -> int:
    return result.offset if isinstance(result, Receipt) and result.offset is not None else -1


def _errors(results: Results) -> list[pb.RecordError]:
    failed = [(number, each) for number, each in enumerate(results) if isinstance(each, StreamhouseError)]
    if failed and len(failed) == len(results):
        raise failed[0][1]
    return [pb.RecordError(index=number, error=as_message(error)) for number, error in failed]
