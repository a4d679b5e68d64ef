"""A transactional producer, request by request, in the versions that a test chooses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from streamhouse.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from streamhouse.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse
from streamhouse.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from streamhouse.wire.kafka.messages.produce import PartitionProduceResponse, ProduceResponse
from streamhouse.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.wire.kafka.talk import Client, a_batch, produce_request

PATIENT = 200
OLD, NEW = 3, 5
"""EndTxn's version before and since each transaction has an epoch of its own."""


async def init(
    client: Client, transactional_id: str, *, version: int = 5, timeout_ms: int = 60_000, **known: int
) -> InitProducerIdResponse:
    """Ask as clients do: again while the transaction before is being ended."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        **known,  # type: ignore[arg-type]
    )
    for _ in range(PATIENT):
        response = await client.call(request, InitProducerIdResponse, version)
        if response.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            return response
    raise AssertionError("the transaction before is never over")


@dataclass(slots=True, kw_only=True)
class Transactional:
    client: Client
    transactional_id: str
    producer_id: int
    epoch: int
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    @classmethod
    async def begin(cls, client: Client, transactional_id: str = "payments", **requested: int) -> "Transactional":
        response = await init(client, transactional_id, **requested)
        assert response.error_code == ErrorCode.NONE
        return cls(
            client=client,
            transactional_id=transactional_id,
            producer_id=response.producer_id,
            epoch=response.producer_epoch,
        )

    async def add(self, topic: str, *partitions: int, version: int = 3) -> list[int]:
        response = await self.client.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
            ),
            AddPartitionsToTxnResponse,
            version,
        )
        return [
            part.partition_error_code
            for each in response.results_by_topic_v3_and_below
            for part in each.results_by_partition
        ]

    async def send(self, topic: str, partition: int, *values: bytes, version: int = 11) -> PartitionProduceResponse:
        """A batch of the transaction; from version 12 on it enlists its partition by itself."""
        sequence = self.sequences.get((topic, partition), 0)
        batch = a_batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce_request(topic, (partition, batch))
        request.transactional_id = self.transactional_id
        response = await self.client.call(request, ProduceResponse, version)
        (part,) = response.responses[0].partition_responses
        if part.error_code == ErrorCode.NONE:
            self.sequences[topic, partition] = sequence + len(values)
        return part

    async def add_offsets(self, group_id: str, *, version: int = 3) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group_id,
        )
        return (await self.client.call(request, AddOffsetsToTxnResponse, version)).error_code

    async def commit_offsets(
        self, group_id: str, offsets: Mapping[tuple[str, int], int], *, version: int = 3, **member: object
    ) -> list[int]:
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, number), offset in offsets.items():
            part = TxnOffsetCommitRequestPartition(
                partition_index=number, committed_offset=offset, committed_metadata=None
            )
            topics.setdefault(topic, []).append(part)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
            **member,  # type: ignore[arg-type]
        )
        response = await self.client.call(request, TxnOffsetCommitResponse, version)
        return [part.error_code for topic in response.topics for part in topic.partitions]

    async def end(self, *, commit: bool, version: int = OLD) -> EndTxnResponse:
        """The answer of the first call that isn't told to wait; with it, this is the producer of the next one."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        for _ in range(PATIENT):
            response = await self.client.call(request, EndTxnResponse, version)
            if response.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
        if version >= NEW and response.error_code == ErrorCode.NONE:
            if (response.producer_id, response.producer_epoch) != (self.producer_id, self.epoch):
                self.sequences.clear()
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        return response


def good(codes: Sequence[int]) -> bool:
    return len(codes) > 0 and all(code == ErrorCode.NONE for code in codes)
