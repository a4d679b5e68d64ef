"""Segments that others wrote become part of partitions: at one agent that leads them all."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.external_commits.commit_request import ExternalCommitRequest
from streamhouse.broker.external_commits.partition_freezes import MAX_CANCELLED
from streamhouse.broker.partition.producer_state import ProducerTable
from streamhouse.broker.segments.producer_snapshots import load_producers
from streamhouse.config import CompactionSettings, ExternalCommitSettings, FlushSettings
from streamhouse.errors import (
    CommitRefused,
    InvalidTopicName,
    OutOfOrderSequence,
    PartitionHeld,
    Retriable,
    StaleCommit,
    UnknownCommit,
    UnknownTopic,
)
from streamhouse.format.batch import iter_batches, read_header
from streamhouse.model.external_commit import FreezeRequest, FreezeTarget, Outcome, QueryId, StoredCommit
from streamhouse.model.fetch import PartitionFetch
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.segment import SegmentObject
from tests.broker.conftest import MakeWorld
from tests.broker.external_commits.support import QUERY, commit_of, until_done, write_segment, written
from tests.broker.support import (
    NOW_MS,
    ORDERS,
    World,
    batch,
    current,
    fetch,
    idempotent,
    produce,
    settle,
    values_of,
)

OTHER = TopicPartition("orders", 1)


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    return await make_world(flush=FlushSettings(block_bytes=256, age_s=3600.0))


@pytest.fixture
async def broker(world: World) -> Broker:
    """With a topic of two partitions; it runs."""
    broker = await world.start()
    await broker.create_topic("orders", partitions=2, overrides={})
    world.run(broker)
    await settle()
    return broker


async def commit(world: World, broker: Broker, wanted: ExternalCommitRequest) -> StoredCommit:
    return await until_done(world, broker.commits.commit(wanted))


def ranges(done: StoredCommit) -> list[tuple[int, int, int]]:
    return [(each.partition.partition, each.base, each.end) for each in done.placed]


async def test_records_of_a_commit_stand_behind_those_that_were_there(world: World, broker: Broker) -> None:
    await produce(broker, batch(b"a", b"b"))
    done = await commit(world, broker, await written(broker, world.bucket, {ORDERS: [b"x", b"y"], OTHER: [b"z"]}))
    assert (ranges(done), done.is_replayed) == ([(0, 2, 4), (1, 0, 1)], False)
    await produce(broker, batch(b"c"))
    assert await values_of(broker) == {0: b"a", 1: b"b", 2: b"x", 3: b"y", 4: b"c"}
    assert await values_of(broker, OTHER) == {0: b"z"}


async def test_a_consumer_that_waits_wakes_when_a_commit_is_placed(world: World, broker: Broker) -> None:
    await produce(broker, batch(b"a"))
    requests = [PartitionFetch(ORDERS, 1, 1 << 20)]
    waiting = asyncio.ensure_future(broker.fetch(requests, max_bytes=1 << 20, min_bytes=1, max_wait_s=30))
    await settle()
    await commit(world, broker, await written(broker, world.bucket, {ORDERS: [b"x"]}))
    (result,) = await waiting
    assert (result.error, result.high_watermark, len(result.records)) == (None, 2, 1)


async def test_placed_batches_are_served_with_their_offsets_and_the_leaders_epoch(world: World, broker: Broker) -> None:
    """Also the first of all, whose offsets in the object are those that it gets."""
    await commit(world, broker, await written(broker, world.bucket, {ORDERS: [b"x", b"y"]}))
    await commit(world, broker, await written(broker, world.bucket, {ORDERS: [b"z"]}, epoch=2))
    epoch = broker.leader_epoch(ORDERS)
    assert epoch > 0
    for offset, count in ((0, 2), (2, 1)):
        (data, *_) = (await fetch(broker, offset)).records
        result = iter_batches(data)
        assert [span.base for span in result] == list(range(offset, offset + count))
        assert {int.from_bytes(bytes(data[span.position + 12 : span.position + 16])) for span in result} == {epoch}


async def test_the_same_commit_again_is_told_and_stores_nothing_twice(world: World, broker: Broker) -> None:
    request = await written(broker, world.bucket, {ORDERS: [b"x"]}, progress='{"to": 7}')
    done = await commit(world, broker, request)
    assert await commit(world, broker, request) == replace(done, is_replayed=True)
    anew = await written(broker, world.bucket, {ORDERS: [b"other"]})
    assert await commit(world, broker, anew) == replace(done, is_replayed=True)
    assert await values_of(broker) == {0: b"x"}
    assert await broker.commits.last(QUERY) == done


async def test_epochs_only_grow_and_the_progress_of_the_last_is_reported(world: World, broker: Broker) -> None:
    with pytest.raises(UnknownCommit):
        await broker.commits.last(QUERY)
    await commit(world, broker, await written(broker, world.bucket, {ORDERS: [b"x"]}, epoch=7, progress="7"))
    with pytest.raises(StaleCommit):
        await commit(world, broker, await written(broker, world.bucket, {ORDERS: [b"y"]}, epoch=6))
    await commit(world, broker, await written(broker, world.bucket, {ORDERS: [b"y"]}, epoch=9, progress="9"))
    assert (await broker.commits.last(QUERY)).progress == "9"


async def test_a_commit_without_segments_keeps_its_progress(world: World, broker: Broker) -> None:
    done = await commit(world, broker, commit_of(epoch=3, progress='{"to": 3}'))
    assert (done.placed, done.is_replayed) == ((), False)
    assert (await broker.commits.last(QUERY)).progress == '{"to": 3}'


async def test_several_segments_of_a_partition_come_one_after_the_other(world: World, broker: Broker) -> None:
    first = await write_segment(broker, world.bucket, {ORDERS: [b"a", b"b"], OTHER: [b"c"]})
    second = await write_segment(broker, world.bucket, {OTHER: [b"d"], ORDERS: [b"e"]})
    done = await commit(world, broker, commit_of(first, second))
    assert ranges(done) == [(0, 0, 3), (1, 0, 2)]
    assert await values_of(broker) == {0: b"a", 1: b"b", 2: b"e"}
    assert await values_of(broker, OTHER) == {0: b"c", 1: b"d"}


# --- what can't be placed


async def test_segments_that_are_not_what_the_commit_says_are_refused(world: World, broker: Broker) -> None:
    good = await written(broker, world.bucket, {ORDERS: [b"x"], OTHER: [b"y"]})
    (segment,) = good.segments
    missing = await write_segment(broker, world.bucket, {ORDERS: [b"x"]}, put=False)
    strange = SegmentObject(key="segments/s-1/0", size_bytes=1, created_at_ms=0)
    bad = [
        commit_of(missing),
        commit_of(replace(segment, runs=segment.runs[:1])),
        commit_of(replace(segment, runs=())),
        commit_of(replace(segment, runs=(replace(segment.runs[0], records=2), segment.runs[1]))),
        commit_of(replace(segment, runs=(replace(segment.runs[0], name=OTHER), segment.runs[1]))),
        commit_of(replace(segment, runs=(replace(segment.runs[0], stored_end=0), segment.runs[1]))),
        commit_of(replace(segment, segment=replace(segment.segment, size_bytes=segment.segment.size_bytes - 1))),
        commit_of(replace(segment, segment=strange)),
        commit_of(segment, segment),
        commit_of(segment, epoch=2),
        commit_of(segment, query=QueryId("01234567-89ab-cdef-0123-456789abcde0")),
        commit_of(segment, query=QueryId("../../x")),
    ]
    for each in bad:
        with pytest.raises(CommitRefused):
            await commit(world, broker, each)
    assert await values_of(broker) == {}
    assert len(broker.freezes) == 0
    await commit(world, broker, good)


async def test_a_commit_to_a_topic_that_is_not_there_or_not_the_clients_is_refused(
    world: World, broker: Broker
) -> None:
    (segment,) = (await written(broker, world.bucket, {ORDERS: [b"x"]})).segments
    for name, kind in (
        (TopicPartition("nothing", 0), UnknownTopic),
        (TopicPartition("orders", 9), UnknownTopic),
        (TopicPartition("__consumer_offsets", 0), InvalidTopicName),
    ):
        with pytest.raises(kind):
            await commit(world, broker, commit_of(replace(segment, runs=(replace(segment.runs[0], name=name),))))


@pytest.mark.parametrize(
    "limits",
    [
        ExternalCommitSettings(max_segments=1),
        ExternalCommitSettings(max_runs=2),
        ExternalCommitSettings(max_progress_bytes=3),
    ],
)
async def test_a_commit_has_limits(make_world: MakeWorld, limits: ExternalCommitSettings) -> None:
    world = await make_world(placing=limits)
    broker = await world.start()
    await broker.create_topic("orders", partitions=2, overrides={})
    segments = [await write_segment(broker, world.bucket, {ORDERS: [b"x"], OTHER: [b"y"]}) for _ in range(2)]
    with pytest.raises(CommitRefused, match=r"setting=placing\.max_"):
        await broker.commits.commit(commit_of(*segments, progress='"12345"'))


async def test_so_many_commits_at_once_and_no_more(make_world: MakeWorld) -> None:
    world = await make_world(placing=ExternalCommitSettings(max_commits=1))
    broker = await world.start()
    await broker.create_topic("orders", partitions=2, overrides={})
    going_on = world.metadata.hold("commit_external_segments")
    request = await written(broker, world.bucket, {ORDERS: [b"x"]})
    first = asyncio.ensure_future(broker.commits.commit(request))
    await settle()
    with pytest.raises(Retriable, match="too many commits"):
        await broker.commits.commit(request)
    going_on.set()
    await first


# --- producers meanwhile


async def test_appends_wait_while_a_commit_is_placed_and_keep_their_order(world: World, broker: Broker) -> None:
    await produce(broker, idempotent(b"0", sequence=0))
    going_on = world.metadata.hold("commit_external_segments")
    placing = asyncio.ensure_future(broker.commits.commit(await written(broker, world.bucket, {ORDERS: [b"x", b"y"]})))
    await world.clock.advance(1)
    waiting = [asyncio.ensure_future(produce(broker, idempotent(b"%d" % n, sequence=n))) for n in range(1, 5)]
    await world.clock.advance(1)
    assert not any(each.done() for each in waiting)
    going_on.set()
    await until_done(world, placing)
    late = asyncio.ensure_future(produce(broker, idempotent(b"5", sequence=5)))
    assert [(await each).base_offset for each in (*waiting, late)] == [3, 4, 5, 6, 7]


async def test_an_idempotent_producer_keeps_its_numbers_across_a_placement_and_a_restart(world: World) -> None:
    broker = await world.start()
    await broker.create_topic("orders", partitions=2, overrides={})
    running = world.run(broker)
    await settle()
    first = await produce(broker, idempotent(b"a", sequence=0))
    await commit(world, broker, await written(broker, world.bucket, {ORDERS: [b"x"]}))
    await commit(world, broker, await written(broker, world.bucket, {ORDERS: [b"y"]}, epoch=2))
    await world.stop(broker, running)
    broker = await world.start()
    again = await produce(broker, idempotent(b"a", sequence=0))
    assert (again.base_offset, again.commit) == (first.base_offset, None)
    assert (await produce(broker, idempotent(b"b", sequence=1))).base_offset == 3


async def test_a_killed_leader_is_recovered_behind_what_was_placed(world: World, broker: Broker) -> None:
    await produce(broker, idempotent(b"a", sequence=0))
    await commit(world, broker, await written(broker, world.bucket, {ORDERS: [b"x"]}))
    await produce(broker, idempotent(b"b", sequence=1))
    world.kill()
    broker = await world.start()
    assert await values_of(broker) == {0: b"a", 1: b"x", 2: b"b"}
    assert (await produce(broker, idempotent(b"b", sequence=1))).base_offset == 2
    assert (await produce(broker, idempotent(b"c", sequence=2))).base_offset == 3


# --- holds that go wrong


async def hold(broker: Broker, hold_id: str = "h", *, timeout_s: float = 5.0, name: TopicPartition = ORDERS) -> None:
    partition = PartitionId((await broker.topic("orders")).topic_id, name.partition)
    request = FreezeTarget(name=name, partition=partition, offsets=1)
    await broker.freezes.hold(
        FreezeRequest(hold_id=hold_id, query=QUERY, epoch=1, partitions=(request,)), timeout_s=timeout_s
    )


async def test_a_log_that_can_not_be_opened_in_time_is_not_waited_for(world: World, broker: Broker) -> None:
    """A leader that loses the metadata store in between responds all the same, and freezes nothing."""
    going_on = world.metadata.hold("acquire")
    with pytest.raises(PartitionHeld):
        await hold(broker, timeout_s=0.02)
    going_on.set()
    await settle()
    assert len(broker.freezes) == 0
    assert (await produce(broker, batch(b"a"))).base_offset == 0


async def test_a_hold_that_nobody_ends_costs_the_epoch_and_appends_go_on(world: World, broker: Broker) -> None:
    await produce(broker, batch(b"a"))
    before = broker.leader_epoch(ORDERS)
    await until_done(world, hold(broker))
    waiting = asyncio.ensure_future(produce(broker, batch(b"b")))
    await world.clock.advance(world.settings.placing.hold_s - 1)
    assert not waiting.done()
    await world.clock.advance(3)
    with pytest.raises(PartitionHeld):
        await waiting
    assert (await produce(broker, batch(b"b"))).base_offset == 1
    assert broker.leader_epoch(ORDERS) > before
    assert (len(broker.freezes), broker.freezes.expired) == (0, 1)


@pytest.mark.parametrize("second", [OTHER, ORDERS])
async def test_a_hold_whose_id_is_taken_is_refused_and_both_partitions_go_on(
    world: World, broker: Broker, second: TopicPartition
) -> None:
    await until_done(world, hold(broker))
    with pytest.raises(CommitRefused, match="id"):
        await until_done(world, hold(broker, name=second))
    await broker.freezes.end("h", Outcome.UNUSED)
    assert (await produce(broker, batch(b"a"))).base_offset == 0
    assert (await until_done(world, produce(broker, batch(b"b"), OTHER))).base_offset == 0
    await until_done(world, hold(broker))


async def test_ends_of_holds_that_never_began_are_remembered_up_to_a_limit(world: World, broker: Broker) -> None:
    for number in range(MAX_CANCELLED + 5):
        await broker.freezes.end(f"h-{number}", Outcome.UNUSED)
    await until_done(world, hold(broker, "h-0"))
    await broker.freezes.end("h-0", Outcome.UNUSED)
    with pytest.raises(PartitionHeld, match="cancelled before it began"):
        await until_done(world, hold(broker, f"h-{MAX_CANCELLED}"))


async def test_two_holds_of_one_id_that_begin_together_are_one(world: World, broker: Broker) -> None:
    both = [asyncio.ensure_future(hold(broker, name=name)) for name in (ORDERS, OTHER)]
    got = await until_done(world, asyncio.gather(*both, return_exceptions=True))
    assert [type(each) for each in got if each is not None] == [CommitRefused]
    await broker.freezes.end("h", Outcome.UNUSED)
    for name in (ORDERS, OTHER):
        assert (await until_done(world, produce(broker, batch(b"a"), name))).base_offset == 0


async def test_an_id_is_free_again_when_its_hold_could_not_begin_or_was_cancelled(world: World, broker: Broker) -> None:
    going_on = world.metadata.hold("acquire")
    with pytest.raises(PartitionHeld):
        await hold(broker, timeout_s=0.02)
    cancelled = asyncio.ensure_future(hold(broker))
    await settle()
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    going_on.set()
    await until_done(world, hold(broker))
    await broker.freezes.end("h", Outcome.UNUSED)
    assert (await produce(broker, batch(b"a"))).base_offset == 0


async def test_a_hold_that_ends_while_its_lease_can_not_be_given_up_is_ended_later(
    world: World, broker: Broker
) -> None:
    await produce(broker, batch(b"a"))
    before = broker.leader_epoch(ORDERS)
    await until_done(world, hold(broker))
    world.metadata.refuse("release", times=10_000)
    await world.clock.advance(world.settings.placing.hold_s + 3)
    world.metadata.heal()
    await world.clock.advance(3)
    assert (await until_done(world, produce(broker, batch(b"b")))).base_offset == 1
    assert broker.leader_epoch(ORDERS) > before
    assert len(broker.freezes) == 0


async def test_a_late_transaction_fails_after_the_hold_expired(world: World, broker: Broker) -> None:
    await produce(broker, batch(b"a"))
    going_on = world.metadata.hold("commit_external_segments")
    placing = asyncio.ensure_future(broker.commits.commit(await written(broker, world.bucket, {ORDERS: [b"x"]})))
    await world.clock.advance(world.settings.placing.hold_s + 2)
    await produce(broker, batch(b"b"))
    going_on.set()
    done = await until_done(world, placing)
    assert ranges(done) == [(0, 2, 3)]  # tried again, behind what came meanwhile
    assert await values_of(broker) == {0: b"a", 1: b"b", 2: b"x"}


async def test_a_hold_that_was_not_used_costs_nothing(world: World, broker: Broker) -> None:
    await produce(broker, batch(b"a"))
    before = broker.leader_epoch(ORDERS)
    await until_done(world, hold(broker))
    waiting = asyncio.ensure_future(produce(broker, batch(b"b")))
    await broker.freezes.end("h", Outcome.UNUSED)
    assert (await waiting).base_offset == 1
    assert broker.leader_epoch(ORDERS) == before


async def test_a_hold_that_was_given_up_before_it_began_holds_nothing(world: World, broker: Broker) -> None:
    await broker.freezes.end("h", Outcome.UNUSED)
    with pytest.raises(PartitionHeld):
        await until_done(world, hold(broker))
    await produce(broker, batch(b"a"))
    await until_done(world, hold(broker, "other"))


async def test_a_transaction_without_a_response_is_requested_again(world: World, broker: Broker) -> None:
    await produce(broker, batch(b"a"))
    before = broker.leader_epoch(ORDERS)
    world.metadata.lose_answer("commit_external_segments", times=2)
    done = await commit(world, broker, await written(broker, world.bucket, {ORDERS: [b"x"]}))
    assert ranges(done) == [(0, 1, 2)]
    assert (await produce(broker, batch(b"b"))).base_offset == 2
    assert broker.leader_epoch(ORDERS) == before
    assert await values_of(broker) == {0: b"a", 1: b"x", 2: b"b"}


async def test_a_transaction_that_never_happens_is_reported_as_such_and_nothing_is_assumed(
    world: World, broker: Broker
) -> None:
    await produce(broker, batch(b"a"))
    before = broker.leader_epoch(ORDERS)
    world.metadata.refuse("commit_external_segments", times=10_000)
    request = await written(broker, world.bucket, {ORDERS: [b"x"]})
    with pytest.raises(Retriable):
        await until_done(world, broker.commits.commit(request), within_s=120)
    world.metadata.heal()
    await world.clock.advance(world.settings.placing.hold_s + 2)
    assert (await produce(broker, batch(b"b"))).base_offset == 1
    assert broker.leader_epoch(ORDERS) > before  # it might yet have happened
    assert ranges(await commit(world, broker, request)) == [(0, 2, 3)]


async def test_a_transaction_whose_answers_are_all_lost_is_found_by_its_row(world: World, broker: Broker) -> None:
    await produce(broker, batch(b"a"))
    world.metadata.lose_answer("commit_external_segments", times=10_000)
    request = await written(broker, world.bucket, {ORDERS: [b"x"]})
    done = await until_done(world, broker.commits.commit(request), within_s=120)
    assert (ranges(done), done.is_replayed) == ([(0, 1, 2)], True)
    assert (await until_done(world, produce(broker, batch(b"b")))).base_offset == 2


async def test_two_queries_place_in_the_same_partitions_one_after_the_other(world: World, broker: Broker) -> None:
    queries = [QueryId(f"01234567-89ab-cdef-0123-{number:012x}") for number in range(6)]
    requests = [
        await written(broker, world.bucket, {ORDERS: [b"%d" % number], OTHER: [b"%d" % number]}, query=query)
        for number, query in enumerate(queries)
    ]
    done = await until_done(world, asyncio.gather(*map(broker.commits.commit, requests)))
    for partition in (ORDERS, OTHER):
        assert sorted((await values_of(broker, partition)).values(), key=str) == [b"%d" % n for n in range(6)]
    assert len({tuple(ranges(each)) for each in done}) == 6


async def test_a_commit_whose_log_can_not_be_flushed_holds_nobody_forever(world: World, broker: Broker) -> None:
    await produce(broker, batch(b"a"))
    world.objects.refuse("put_new", times=10_000)
    with pytest.raises(PartitionHeld):
        await until_done(world, hold(broker, timeout_s=0.05))
    assert (await produce(broker, batch(b"b"))).base_offset == 1
    world.objects.heal()


# --- readers and maintenance


async def test_offsets_of_times_are_found_in_placed_runs(world: World, broker: Broker) -> None:
    await produce(broker, batch(b"a", timestamp_ms=NOW_MS - 10))
    await commit(world, broker, await written(broker, world.bucket, {ORDERS: [b"x", b"y", b"z"]}))
    result = await broker.at_time(ORDERS, NOW_MS + 1)
    assert result is not None
    assert (result.offset, result.timestamp_ms, result.leader_epoch) == (2, NOW_MS + 1, broker.leader_epoch(ORDERS))


async def test_placed_runs_are_merged_and_producers_are_known_after_it(make_world: MakeWorld) -> None:
    world = await make_world(
        flush=FlushSettings(block_bytes=256, age_s=3600.0), compaction=CompactionSettings(merge_runs=4)
    )
    broker = await world.start_with(ORDERS)
    running = world.run(broker)
    await settle()
    first = await produce(broker, idempotent(b"a", sequence=0))
    for epoch in range(5):
        await commit(world, broker, await written(broker, world.bucket, {ORDERS: [b"%d" % epoch]}, epoch=epoch))
    await broker.compactor.run_once()
    assert broker.compactor.merger.merges == 1
    expected = {0: b"a", 1: b"0", 2: b"1", 3: b"2", 4: b"3", 5: b"4"}
    assert await values_of(broker) == expected
    (data, *_) = (await fetch(broker, 1)).records
    assert {int.from_bytes(bytes(data[span.position + 12 : span.position + 16])) for span in iter_batches(data)} == {
        broker.leader_epoch(ORDERS)
    }
    await world.stop(broker, running)
    broker = await world.start()
    assert await values_of(broker) == expected
    assert (await produce(broker, idempotent(b"a", sequence=0))).base_offset == first.base_offset


async def test_retention_takes_placed_runs_like_others(world: World, broker: Broker) -> None:
    await commit(world, broker, await written(broker, world.bucket, {ORDERS: [b"x"]}))
    await commit(world, broker, await written(broker, world.bucket, {ORDERS: [b"y"]}, epoch=2))
    await broker.topic_admin.delete_records(ORDERS, 1)
    assert await values_of(broker, offset=1) == {1: b"y"}
    await broker.topic_admin.delete_records(ORDERS, 2)
    assert (await produce(broker, batch(b"z"))).base_offset == 2


async def test_a_lease_that_was_given_up_twice_and_taken_in_between_stays_taken(world: World, broker: Broker) -> None:
    """A hold expires while the partition is handed over anyway, and the store refuses one of the two."""
    await produce(broker, batch(b"a"))
    agent_session = current(broker)
    (opened,) = agent_session.logs
    why = PartitionHeld("over")
    world.metadata.refuse("release", times=1)
    twice = [asyncio.ensure_future(agent_session.transfer([opened], {ORDERS: why})) for _ in range(2)]
    await settle()
    with suppress(Retriable):
        await produce(broker, batch(b"b"))
    await world.clock.advance(5)
    await asyncio.gather(*twice)
    await produce(broker, batch(b"b"))
    held = await world.sqlite.held_by(agent_session.session.session_id)
    assert [(state.partition, state.epoch) for state in held] == [(opened.partition, broker.leader_epoch(ORDERS))]


async def test_of_what_lies_before_a_gap_and_a_placed_run_nothing_is_certain(world: World, broker: Broker) -> None:
    """A producer may have gone on behind the gap: its next number is taken from itself, once."""
    await produce(broker, idempotent(b"a", sequence=0))
    await commit(world, broker, await written(broker, world.bucket, {ORDERS: [b"x"]}))
    (opened,) = current(broker).logs
    tables = {}
    for is_doubtful in (False, True):
        [run] = await world.sqlite.last_runs([opened.partition])
        assert run.carried is not None
        changed = replace(run, carried=replace(run.carried, is_doubtful=is_doubtful))
        metadata = SimpleNamespace(last_runs=AsyncMock(return_value=[changed]))
        tables[is_doubtful] = await load_producers(
            {opened.partition: run.end}, world.settings.producers, metadata=cast(Any, metadata), reader=broker.reader
        )
    later = read_header(idempotent(b"c", sequence=7))
    certain, doubted = (tables[each][opened.partition] for each in (False, True))
    assert isinstance(certain, ProducerTable)
    assert isinstance(doubted, ProducerTable)
    with pytest.raises(OutOfOrderSequence):
        certain.check_sequence(ORDERS, later)
    assert doubted.check_sequence(ORDERS, later) is None
