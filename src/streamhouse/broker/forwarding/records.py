"""RecordService: publishing, reading and groups for HTTP and gRPC clients.

Data path   wire.http, wire.grpc -> **records** -> logs of this agent, or of others over Dependencies.agents
Owns        the public calls; building and closing the parts
Leaves      publishing, fetching and groups to their own modules; JSON and protobuf to `wire`

Every call works at any agent. While a leader changes, the call is retried within its deadline.
"""

from collections.abc import Mapping, Sequence

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.forwarding.acks import BufferedAcks, FlushWaiter
from streamhouse.broker.forwarding.fan_out import FanOutFetch
from streamhouse.broker.forwarding.forwarding_producer import ForwardingProducer
from streamhouse.broker.forwarding.group_lag import GroupLagReader
from streamhouse.broker.forwarding.groups import GroupService
from streamhouse.broker.forwarding.leader_lookup import LeaderLookup, LocalBroker, OffsetLookup
from streamhouse.broker.forwarding.publish import PublishService
from streamhouse.broker.groups import DescribedGroup, ListedGroup, OffsetToCommit
from streamhouse.errors import StreamhouseError
from streamhouse.model.fetch import FetchResult, OffsetResult, PartitionFetch
from streamhouse.model.group import CommittedOffset
from streamhouse.model.group_lag import GroupLag, LagHistory
from streamhouse.model.group_requests import Outcomes
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import Acks, NewRecord, Receipt


class RecordService:
    def __init__(self, dependencies: Dependencies, here: LocalBroker) -> None:
        self._dependencies = dependencies
        leader_lookup = LeaderLookup(dependencies, here)
        self.buffered_acks = BufferedAcks(dependencies)
        self.stored = FlushWaiter(dependencies, here)
        self.delivery = ForwardingProducer(
            dependencies, here, leader_lookup=leader_lookup, stored=self.stored, buffered_acks=self.buffered_acks
        )
        self._publishing = PublishService(dependencies, here, delivery=self.delivery)
        self._reading = FanOutFetch(dependencies, here, leader_lookup=leader_lookup)
        self._offsets = OffsetLookup(dependencies, here, leader_lookup=leader_lookup)
        self._groups = GroupService(dependencies, here)
        self.lag_reader = GroupLagReader(
            dependencies, here, groups=self._groups, offsets=self._offsets, read=self._read_first_batches
        )

    def __repr__(self) -> str:
        return f"<RecordService {self.delivery!r} {self.stored!r}>"

    async def aclose(self) -> None:
        """End background deliveries and waits for flushes."""
        await self.buffered_acks.aclose()
        await self.stored.aclose()

    # --- publishing

    async def publish(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        acks: Acks,
        idempotency_key: str | None = None,
        timeout_s: float,
    ) -> list[Receipt | StreamhouseError]:
        """One receipt, or error, per record, in order. Raises `UnknownTopic` for all of them at once.

        Records of one call keep their order in each partition. A retry with the same idempotency key and the same
        records stores nothing twice and gets the same offsets; with other records it is `IdempotencyKeyReused`.
        """
        return await self._publishing.publish(
            topic, records, acks=acks, idempotency_key=idempotency_key, timeout_s=timeout_s
        )

    async def publish_batches(
        self, name: TopicPartition, batches: Sequence[memoryview], *, acks: Acks, timeout_s: float
    ) -> list[Receipt | StreamhouseError]:
        """Whole Kafka record batches: one receipt per batch, with the offset of its first record.

        The buffers are copied. Numbers of an idempotent producer in them hold; batches without any are stored at most
        once per call.
        """
        return await self._publishing.publish_batches(name, batches, acks=acks, timeout_s=timeout_s)

    # --- reading

    async def read(
        self, fetches: Sequence[PartitionFetch], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> list[FetchResult]:
        """One result per fetch, in order; waits for `min_bytes`, the first error, or the end of the time.

        Always read_committed, whatever `fetches` say: results end at the last stable offset, which is their high
        watermark, without markers and aborted records. A last batch without records takes readers past those. A
        partition whose leader changes has an empty result with a high watermark of -1 while others have records; its
        error is returned only after `records.patience_s`. A cancelled read leaves no requests running.
        """
        return await self._reading.read(fetches, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s)

    async def _read_first_batches(self, fetches: Sequence[PartitionFetch]) -> Sequence[FetchResult]:
        """The first batch of each partition, also beyond the last stable offset."""
        return await self._reading.read(fetches, max_bytes=1, min_bytes=0, max_wait_s=0.0, is_committed=False)

    async def earliest(self, name: TopicPartition) -> OffsetResult:
        return await self._offsets.earliest(name)

    async def latest(self, name: TopicPartition) -> OffsetResult:
        """The high watermark: the offset that the next record will have."""
        return await self._offsets.latest(name)

    async def stable_end(self, name: TopicPartition) -> OffsetResult:
        """The last stable offset: where reading ends now, and where a reader of new records alone starts."""
        return await self._offsets.stable_end(name)

    async def at_time(self, name: TopicPartition, timestamp_ms: int) -> OffsetResult | None:
        """The first record with this timestamp or a later one; None when there is none below the last stable offset."""
        return await self._offsets.at_time(name, timestamp_ms)

    # --- groups

    async def groups(self) -> Sequence[ListedGroup]:
        """The groups of the whole cluster, by name."""
        return await self._groups.of_all_agents()

    async def describe_group(self, group_id: str) -> DescribedGroup:
        """Raises `GroupNotFound`. The generation is -1 if another agent coordinates the group."""
        return await self._groups.describe(group_id)

    async def committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """The group's offsets; raises `GroupNotFound`."""
        return await self._groups.committed(group_id)

    async def lag(self, group_id: str) -> GroupLag:
        """The group's lag in every partition that it reads; raises `GroupNotFound`."""
        return await self.lag_reader.lag(group_id)

    async def lag_histories(self, group_ids: Sequence[str]) -> Sequence[LagHistory]:
        """The lag of these groups as it was last measured, by group id; unknown ones are left out."""
        return await self._dependencies.metadata.group_lags(group_ids) if group_ids else []

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, OffsetToCommit]) -> Outcomes:
        """Reset offsets of a group without members, else raises `NonEmptyGroup`; returns the outcome per partition."""
        return await self._groups.commit(group_id, offsets)

    async def delete_group(self, group_id: str) -> None:
        """Raises `NonEmptyGroup` or `GroupNotFound`."""
        await self._groups.delete(group_id)
