"""Compacted topics with transactions: open ones are left alone, aborted ones go, all readers see what was committed."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.fetch.read_plans import OffsetRange
from streamhouse.broker.maintenance.run_rewriter import TRIES
from streamhouse.broker.produce.append import ProduceTransaction
from streamhouse.config import CompactionSettings, TransactionSettings
from streamhouse.errors import Unavailable
from streamhouse.format.batch import Buffer, iter_batches
from streamhouse.format.records import Record, build_batch
from streamhouse.format.run_rewrite import batches_of
from streamhouse.format.transactions import drop_aborted
from streamhouse.model.fetch import FetchResult, PartitionFetch
from streamhouse.model.transaction import AbortedTransaction, Marker, ProducerIdentity
from tests.broker.conftest import MakeWorld
from tests.broker.maintenance.test_compaction import COMPACT, cleaned_to, flush, later, partition_of, put, written
from tests.broker.support import MANY_BYTES, NOW_MS, ORDERS, World, records_of, settle
from tests.format.kafka_cleaner import Entry, Item, committed
from tests.format.transactional_logs import entries
from tests.support.depth import scaled

DAY_S = 86_400
Pair = tuple[bytes, bytes | None]


@dataclass
class Client:
    """A transactional producer whose markers come whenever a test says so."""

    name: str
    identity: ProducerIdentity
    sequence: int = 0
    number: int = 0
    is_open: bool = False

    async def send(self, broker: Broker, *pairs: Pair, timestamp_ms: int = NOW_MS) -> None:
        producer, epoch = self.identity
        data = build_batch(
            [Record(key=key, value=value, timestamp_ms=timestamp_ms) for key, value in pairs],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        pending = await broker.append(ORDERS, memoryview(data), ProduceTransaction(self.name, enlists=True))
        await broker.acknowledge(pending)
        self.sequence += len(pairs)
        self.is_open = True

    async def end(self, broker: Broker, *, commit: bool) -> None:
        self.number += 1
        marker = Marker(producer=self.identity, number=self.number, is_commit=commit)
        assert await broker.transactions.mark(marker, [ORDERS]) == {ORDERS: None}
        self.is_open = False


async def client(broker: Broker, name: str = "alice") -> Client:
    return Client(name, await broker.transactions.init_producer(name, 800_000, None))


@dataclass
class View:
    """What readers of one kind get of the whole partition."""

    log: list[Buffer] = field(default_factory=list)
    aborted: set[AbortedTransaction] = field(default_factory=set)

    @property
    def entries(self) -> list[Entry]:
        return entries([batch for data in self.log for batch in batches_of(data)])

    @property
    def committed(self) -> list[Item]:
        return committed(self.entries, self.aborted)

    @property
    def items(self) -> list[Item]:
        return [item for entry in self.entries for item in entry.items]


async def as_kafka(broker: Broker, *, is_committed: bool = True, max_bytes: int = 300) -> View:
    """All records as a Kafka consumer gets them, response by response."""
    view, offset = View(), 0
    while True:
        request = PartitionFetch(ORDERS, offset, max_bytes, committed=is_committed)
        (result,) = await broker.fetch([request], max_bytes=MANY_BYTES, min_bytes=0, max_wait_s=0)
        assert result.error is None
        following = end_of(result, offset)
        if following == offset:
            return view
        view.log += [
            batch for data in result.records for batch in batches_of(data) if iter_batches(batch)[0].end > offset
        ]
        view.aborted |= set(result.aborted)
        offset = following


async def as_http(broker: Broker, *, start: int = 0, end: int | None = None) -> list[Item]:
    """Everything as HTTP, gRPC and tails of Spark get it."""
    results: list[Item] = []
    offset = start
    while end is None or offset < end:
        (got,) = await broker.records.read(
            [PartitionFetch(ORDERS, offset, 300)], max_bytes=MANY_BYTES, min_bytes=0, max_wait_s=0
        )
        assert got.error is None
        results += [
            Item(each.offset, each.key, each.value) for each in records_of(got.records) if each.offset >= offset
        ]
        following = end_of(got, offset)
        if following == offset:
            assert end is None, "it ends before the plan does"
            break
        offset = following
    return results


async def as_planned(broker: Broker) -> list[Item]:
    """Everything as executors of Spark get it: segments by a plan, and the tail."""
    (plan,) = (await broker.plans.plan([OffsetRange(ORDERS)])).partitions
    pieces: list[Buffer] = []
    for run in plan.runs:
        source = await broker.compactor.rewriter.open(run)
        pieces += [piece async for piece in broker.compactor.rewriter.pieces(source)]
    batches = [batch for data in drop_aborted(pieces, plan.aborted) for batch in batches_of(data)]
    read = [item for entry in entries(batches) for item in entry.items if item.offset < plan.settled_end]
    return read + await as_http(broker, start=plan.settled_end, end=plan.end)


def end_of(found: FetchResult, offset: int) -> int:
    return max((span.end for data in found.records for span in iter_batches(data)), default=offset)


async def rows(world: World, broker: Broker) -> Sequence[AbortedTransaction]:
    partition = await partition_of(broker)
    return (await world.sqlite.aborted({partition: 0}, limit=1000)).get(partition, ())


def markers(view: View) -> list[int]:
    return [entry.base for entry in view.entries if entry.marker is not None]


@pytest.fixture
async def broker(world: World) -> Broker:
    return await world.start_with(**COMPACT)


# --- what goes, and what stays


async def test_what_was_aborted_goes_and_supersedes_nothing(world: World, broker: Broker) -> None:
    alice = await client(broker)
    await put(broker, (b"a", b"1"), (b"b", b"2"))
    await alice.send(broker, (b"a", b"3"))
    await alice.end(broker, commit=False)
    await alice.send(broker, (b"b", b"4"))
    await alice.end(broker, commit=True)
    await flush(broker)
    await broker.compactor.run_once()
    everything = await as_kafka(broker, is_committed=False)
    assert [(item.offset, item.value) for item in everything.items] == [(0, b"1"), (4, b"4")]
    assert markers(everything) == [3, 5]
    assert await cleaned_to(world, broker) == 6


async def test_nothing_from_an_open_transaction_on_is_touched(world: World, broker: Broker) -> None:
    alice = await client(broker)
    await written(broker, (b"a", b"1"), (b"a", b"2"))
    await alice.send(broker, (b"a", b"3"))
    await flush(broker)
    await written(broker, (b"b", b"4"), (b"b", b"5"))
    await broker.compactor.run_once()
    assert [item.offset for item in (await as_kafka(broker, is_committed=False)).items] == [1, 2, 3, 4]
    assert await cleaned_to(world, broker) == 2
    await alice.end(broker, commit=True)
    await broker.compactor.run_once()
    assert await cleaned_to(world, broker) == 2, "that it ended is in no segment yet"
    await flush(broker)
    await broker.compactor.run_once()
    assert [item.offset for item in (await as_kafka(broker, is_committed=False)).items] == [2, 4]
    assert await cleaned_to(world, broker) == 6


async def test_an_open_transaction_is_left_alone_by_agents_that_do_not_lead_the_partition(
    world: World, broker: Broker
) -> None:
    alice = await client(broker)
    await written(broker, (b"a", b"1"))
    await alice.send(broker, (b"a", b"2"))
    await flush(broker)
    world.kill()
    broker = await world.start()
    await broker.compactor.run_once()
    assert [item.offset for item in (await as_kafka(broker, is_committed=False)).items] == [0, 1]
    assert await cleaned_to(world, broker) == 1


async def test_a_marker_goes_long_after_its_records_and_readers_see_its_transaction_until_then(
    world: World, broker: Broker
) -> None:
    alice = await client(broker)
    await put(broker, (b"a", b"1"))
    await alice.send(broker, (b"a", b"2"))
    await alice.end(broker, commit=False)
    await flush(broker)
    result = AbortedTransaction(alice.identity.producer_id, 1, 2)
    await written(broker, (b"b", b"0"))
    await broker.compactor.run_once()
    assert list(await rows(world, broker)) == [result], "there was something of it"
    await written(broker, (b"b", b"1"))
    await broker.compactor.run_once()
    assert (list(await rows(world, broker)), markers(await as_kafka(broker))) == ([], [2])
    log = await broker.open_log(ORDERS)
    assert list(log.aborted_between(0, 100)) == []
    await later(world, broker, 2 * DAY_S)
    await written(broker, (b"b", b"2"))
    await broker.compactor.run_once()
    assert markers(await as_kafka(broker)) == []
    assert [(item.offset, item.value) for item in await as_http(broker)] == [(0, b"1"), (5, b"2")]


async def test_what_another_agent_forgot_is_forgotten_by_the_leader(world: World, broker: Broker) -> None:
    alice = await client(broker)
    await alice.send(broker, (b"a", b"2"))
    await alice.end(broker, commit=False)
    await flush(broker)
    log = await broker.open_log(ORDERS)
    assert len(log.aborted_between(0, 100)) == 1
    await world.sqlite.forget_aborted(await partition_of(broker), [1])
    await broker.compactor.run_once()
    assert list(log.aborted_between(0, 100)) == []


async def test_a_pass_that_fails_after_it_forgot_leaves_nothing_that_was_aborted_to_see(
    world: World, broker: Broker
) -> None:
    alice = await client(broker)
    await put(broker, (b"a", b"1"))
    await alice.send(broker, (b"a", b"2"))
    await alice.end(broker, commit=False)
    await written(broker, (b"b", b"1"))
    await broker.compactor.run_once()
    await written(broker, (b"b", b"2"))
    world.metadata.refuse("replace_runs", times=TRIES)
    looking = asyncio.ensure_future(broker.compactor.run_once())
    while not looking.done():
        await world.clock.advance(0.5)
    await looking
    assert list(await rows(world, broker)) == []
    expected = [(0, b"1"), (3, b"1"), (4, b"2")]
    assert [(item.offset, item.value) for item in await as_http(broker)] == expected
    assert [(item.offset, item.value) for item in await as_planned(broker)] == expected


async def test_a_snapshot_that_can_not_be_read_now_stops_the_pass(world: World, broker: Broker) -> None:
    await written(broker, (b"a", b"1"), (b"a", b"2"))
    world.metadata.refuse("last_runs")
    await broker.compactor.run_once()
    assert await cleaned_to(world, broker) == 0
    await broker.compactor.run_once()
    assert await cleaned_to(world, broker) == 2


# --- plans


async def test_a_plan_ends_where_transactions_are_open_and_names_those_that_were_aborted(
    world: World, broker: Broker
) -> None:
    alice, bob = await client(broker), await client(broker, "bob")
    await alice.send(broker, (b"a", b"0"))
    await alice.end(broker, commit=False)
    await bob.send(broker, (b"a", b"2"))
    await flush(broker)
    (plan,) = (await broker.plans.plan([OffsetRange(ORDERS)])).partitions
    assert (plan.end, plan.settled_end, plan.flushed_end) == (2, 2, 3)
    assert list(plan.aborted) == [AbortedTransaction(alice.identity.producer_id, 0, 1)]
    await bob.end(broker, commit=False)
    await put(broker, (b"c", b"4"))
    (plan,) = (await broker.plans.plan([OffsetRange(ORDERS)])).partitions
    assert (plan.end, plan.settled_end, plan.flushed_end) == (5, 2, 3), "the leader alone knows how it ended"
    assert [item.offset for item in await as_planned(broker)] == [4]
    await flush(broker)
    (plan,) = (await broker.plans.plan([OffsetRange(ORDERS)])).partitions
    assert (plan.end, plan.settled_end, len(plan.aborted)) == (5, 5, 2)
    (plan,) = (await broker.plans.plan([OffsetRange(ORDERS, 2, 5)])).partitions
    assert [each.first_offset for each in plan.aborted] == [2]
    assert [item.offset for item in await as_planned(broker)] == [4]


async def test_no_leader_is_asked_about_what_is_settled(world: World, broker: Broker) -> None:
    await written(broker, (b"a", b"1"), (b"b", b"2"))
    world.kill()
    broker = await world.start()
    (plan,) = (await broker.plans.plan([OffsetRange(ORDERS, 0, 2)])).partitions
    assert plan.end == 2
    assert not broker.agent_session or not list(broker.agent_session.logs)


async def test_snapshots_are_read_once_for_each_flush(world: World, broker: Broker) -> None:
    await written(broker, (b"a", b"1"))
    for _ in range(3):
        await broker.plans.plan([OffsetRange(ORDERS)])
    assert world.metadata.count("last_runs") <= 2  # one of them when the log was opened
    before = world.metadata.count("last_runs")
    await written(broker, (b"a", b"2"))
    for _ in range(3):
        await broker.plans.plan([OffsetRange(ORDERS)])
    assert world.metadata.count("last_runs") == before + 1


async def test_an_object_store_that_is_away_makes_plans_wait_not_guess(world: World, broker: Broker) -> None:
    await written(broker, (b"a", b"1"))
    world.objects.refuse("get_range", times=50)
    with pytest.raises(Unavailable):
        await broker.plans.plan([OffsetRange(ORDERS)])
    world.objects.heal()
    (plan,) = (await broker.plans.plan([OffsetRange(ORDERS)])).partitions
    assert plan.settled_end == 1


# --- readers that are no Kafka clients


async def test_readers_are_taken_over_what_they_may_not_see(world: World, broker: Broker) -> None:
    alice = await client(broker)
    await alice.send(broker, (b"a", b"0"), (b"b", b"1"))
    await alice.end(broker, commit=False)
    (result,) = await broker.records.read([PartitionFetch(ORDERS, 0, 1000)], max_bytes=1000, min_bytes=0, max_wait_s=0)
    assert (end_of(result, 0), records_of(result.records), result.high_watermark) == (3, [], 3)
    await alice.send(broker, (b"a", b"3"))
    (result,) = await broker.records.read([PartitionFetch(ORDERS, 3, 1000)], max_bytes=1000, min_bytes=0, max_wait_s=0)
    assert (list(result.records), result.high_watermark) == ([], 3)
    assert (await broker.records.stable_end(ORDERS)).offset == 3
    assert (await broker.records.latest(ORDERS)).offset == 4
    assert await broker.records.at_time(ORDERS, NOW_MS + 1) is None


# --- against a model


@pytest.mark.parametrize("seed", range(scaled(quick=7, nightly=100)))
async def test_whatever_happens_readers_from_zero_see_each_keys_final_committed_value(
    make_world: MakeWorld, seed: int
) -> None:
    """Plain records, transactions that commit, abort and stay open; flushed, compacted, merged, restarted at random."""
    chance = random.Random(seed)
    compaction = CompactionSettings(
        max_keys=chance.choice([2, 1000]),
        segment_bytes=chance.choice([200, 100_000]),
        merge_runs=chance.choice([0, 2, 4]),
        read_bytes=chance.choice([1, 1000]),
    )
    world = await make_world(
        compaction=compaction, transactions=TransactionSettings(aborted_kept=chance.choice([1, 1000]))
    )
    broker = await world.start_with(**COMPACT | {"delete.retention.ms": "20000"})
    clients = [await client(broker, name) for name in ("alice", "bob", "carol")]
    for _ in range(100):
        action, who = chance.random(), chance.choice(clients)
        pairs = [
            (b"k%d" % chance.randrange(6), None if chance.random() < 0.2 else b"v%d" % chance.randrange(10**6))
            for _ in range(chance.randrange(1, 4))
        ]
        if action < 0.2:
            await put(broker, *pairs, timestamp_ms=world.clock.now_ms())
        elif action < 0.4:
            await who.send(broker, *pairs, timestamp_ms=world.clock.now_ms())
        elif action < 0.6:
            if who.is_open:
                await who.end(broker, commit=chance.random() < 0.5)
        elif action < 0.75:
            await flush(broker)
        elif action < 0.9:
            await broker.compactor.run_once()
        elif action < 0.95:
            await later(world, broker, chance.randrange(15))
        else:
            await flush(broker)
            world.kill()
            broker = await world.start()
        if chance.random() < 0.3:
            await check(world, broker)
    for each in clients:
        if each.is_open:
            await each.end(broker, commit=chance.random() < 0.5)
    for _ in range(20):
        await put(broker, (b"last", b"%d" % chance.randrange(10**6)), timestamp_ms=world.clock.now_ms())
        await flush(broker)
        await later(world, broker, 11)
        await broker.compactor.run_once()
        await broker.compactor.run_once()
    await check(world, broker)
    for _ in range(100):
        await broker.compactor.run_once()
    left = await as_kafka(broker, is_committed=False)
    assert len({item.key for item in left.items}) == len(left.items)
    assert left.items == (await as_kafka(broker)).committed
    if compaction.max_keys > 2:  # with fewer a pass may end before a marker, now and then
        assert list(await rows(world, broker)) == []
        assert markers(left) == [
            entry.base for entry in left.entries if entry.marker is not None and is_busy(left, entry)
        ]


def is_busy(view: View, marker: Entry) -> bool:
    """Whether something of the marker's transaction is left."""
    before = [entry for entry in view.entries if entry.producer == marker.producer and entry.base < marker.base]
    return bool(before) and before[-1].marker is None


async def check(world: World, broker: Broker) -> None:
    """All readers of committed records get the same, and what was compacted is what it was before, key by key."""
    consumer = await as_kafka(broker)
    assert await as_http(broker) == consumer.committed
    assert await as_planned(broker) == consumer.committed
    clean = await cleaned_to(world, broker)
    everything = await as_kafka(broker, is_committed=False)
    below = [item for item in everything.items if item.offset < clean]
    assert below == [item for item in consumer.committed if item.offset < clean], "nobody sees what was aborted there"
    await settle()
