"""The scene that the metadata contracts play in: topics, sessions, and how to lead and publish."""

import uuid
from dataclasses import replace

import pytest

from streamhouse.config.fields import Address
from streamhouse.model.cluster import PartitionState
from streamhouse.model.names import PartitionId, SessionId, TopicId
from streamhouse.model.segment import Run, SegmentCommit, SegmentObject
from streamhouse.model.topic import Topic
from streamhouse.stores.metadata.base import MetadataStore, NewSession
from tests.contracts.clocks import ManualClock

TTL_MS = 30_000
ORDERS = TopicId(uuid.UUID(int=1))
CLICKS = TopicId(uuid.UUID(int=2))
ALICE = SessionId("s-" + "a" * 32)
BOB = SessionId("s-" + "b" * 32)
CAROL = SessionId("s-" + "c" * 32)
NOBODY = SessionId("s-" + "0" * 32)


def topic(topic_id: TopicId = ORDERS, name: str = "orders", partitions: int = 3) -> Topic:
    return Topic(
        topic_id=topic_id, name=name, partitions=partitions, overrides={"retention.ms": "1000"}, created_at_ms=123
    )


def part(number: int, topic_id: TopicId = ORDERS) -> PartitionId:
    return PartitionId(topic_id, number)


def new_session(session_id: SessionId) -> NewSession:
    return NewSession(
        session_id=session_id,
        kafka=Address(host="127.0.0.1", port=9092),
        http=Address(host="::1", port=8080),
        ttl_ms=TTL_MS,
    )


def run_of(state: PartitionState, base: int, end: int, key: str) -> Run:
    return Run(
        partition=state.partition,
        base=base,
        end=end,
        stored_base=base,
        epoch=state.epoch,
        object_key=key,
        position=32,
        length=1000,
        index_position=1032,
        index_length=64,
        records=end - base,
        max_timestamp_ms=end,
    )


def commit_of(key: str, *runs: Run) -> SegmentCommit:
    return SegmentCommit(
        segment=SegmentObject(key=key, size_bytes=4096, created_at_ms=99),
        runs=tuple(replace(run, object_key=key) for run in runs),
    )


async def lead(store: MetadataStore, session: SessionId, *partitions: PartitionId) -> list[PartitionState]:
    """Acquire these and insist on having all of them."""
    states = list(await store.acquire(session, partitions))
    assert [state.partition for state in states] == sorted(partitions)
    return states


async def publish(store: MetadataStore, session: SessionId, state: PartitionState, *ends: int) -> None:
    """One object per run, the runs one after the other from the flushed end."""
    base = state.flushed_end
    for end in ends:
        key = f"segments/{state.partition}/{base}"
        await store.commit_segments(session, [commit_of(key, run_of(state, base, end, key))])
        base = end


async def state_of(store: MetadataStore, partition: PartitionId) -> PartitionState:
    return next(s for s in await store.partitions([partition.topic_id]) if s.partition == partition)


async def spans(store: MetadataStore, partition: PartitionId, from_offset: int = 0) -> list[tuple[int, int]]:
    return [(run.base, run.end) for run in await store.runs(partition, from_offset=from_offset, limit=1000)]


class MetadataScene:
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    async def ready(self, store: MetadataStore) -> MetadataStore:
        """The topic `orders` with three partitions, and Alice's and Bob's sessions."""
        await store.create_topic(topic())
        await store.open_session(new_session(ALICE))
        await store.open_session(new_session(BOB))
        return store
