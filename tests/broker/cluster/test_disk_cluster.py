"""The disk WAL in a cluster: offsets are reserved, a lost disk isn't waited for for ever, nothing on it is lost."""

import random
from collections.abc import Sequence
from uuid import UUID

import pytest

from streamhouse.broker.failover.wal_reappend import TransactionOutcomes, _Pass
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.broker.wal.disk_quarantine import quarantine_root
from streamhouse.config import ClusterSettings, FlushSettings, LeaseSettings, WalSettings
from streamhouse.errors import NotReserved
from streamhouse.format.batch import read_header
from streamhouse.format.wal_file import FILE_HEADER_BYTES, WalEntry
from streamhouse.model.cluster import AbandonedRange
from streamhouse.model.fetch import OffsetResult, PartitionFetch
from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId, TopicPartition
from tests.broker.cluster.disk_cluster import DiskAgent, DiskCluster
from tests.broker.conftest import MakeWorld
from tests.broker.support import WAL_ROOT, World, batch, current, idempotent, produce
from tests.support.depth import scaled

PARTITIONS = 6
AHEAD = 1000
DISK_WAIT_S = 5.0
LEASE = LeaseSettings(ttl_s=3.0, takeover_s=0.5, renew_s=0.5, margin_s=0.5)
NAMES = [TopicPartition("orders", number) for number in range(PARTITIONS)]


@pytest.fixture
async def cluster(make_world: MakeWorld) -> DiskCluster:
    """Nothing is flushed by age, so that what is acknowledged is on a disk and nowhere else."""
    return DiskCluster(
        await make_world(
            flush=FlushSettings(block_bytes=256, age_s=3600.0),
            wal=WalSettings(fsync="always", file_bytes=FILE_HEADER_BYTES + 1500),
            lease=LEASE,
            cluster=ClusterSettings(reserve_offsets=AHEAD, disk_wait_s=DISK_WAIT_S, rescue_delay_s=0.5),
        )
    )


async def two_hosts(cluster: DiskCluster) -> tuple[DiskAgent, DiskAgent, list[TopicPartition]]:
    """Two agents, and the partitions that the first one leads."""
    first, second = await cluster.host(), await cluster.host()
    await first.up.create_topic("orders", partitions=PARTITIONS, overrides={})
    await cluster.pass_time(0.5)
    mine = await cluster.led_by(first, NAMES)
    assert 0 < len(mine) < PARTITIONS
    return first, second, mine


async def die_and_be_succeeded(cluster: DiskCluster, host: DiskAgent) -> None:
    await host.kill()
    await cluster.pass_time(LEASE.ttl_s + DISK_WAIT_S + 2)


async def state_of(cluster: DiskCluster, name: TopicPartition) -> tuple[int, int]:
    topic = await cluster.up()[0].up.topic(name.topic)
    states = {each.partition: each for each in await cluster.world.sqlite.partitions([topic.topic_id])}
    state = states[PartitionId(topic.topic_id, name.partition)]
    return state.flushed_end, state.reserved_until


# --- reservation


async def test_offsets_are_reserved_before_the_first_append_and_at_half(cluster: DiskCluster) -> None:
    first, _, (name, *_) = await two_hosts(cluster)
    await cluster.produce(name, batch(b"a"))
    _, reserved = await state_of(cluster, name)
    assert reserved == AHEAD + 1
    await cluster.produce(name, batch(*[b"x"] * (AHEAD // 2 - 2)))
    assert first.metadata.count("reserve_offsets") == 1
    await cluster.produce(name, batch(*[b"x"] * 10))
    assert first.metadata.count("reserve_offsets") == 2
    assert (await state_of(cluster, name))[1] == AHEAD // 2 + 9 + AHEAD


async def test_many_partitions_are_reserved_with_one_call(cluster: DiskCluster) -> None:
    host = await cluster.host()
    await host.up.create_topic("orders", partitions=PARTITIONS, overrides={})
    await host.up.open_many(NAMES)
    assert host.metadata.count("reserve_offsets") == 1
    for name in NAMES:
        assert (await state_of(cluster, name))[1] == AHEAD + 1


async def test_a_leader_that_has_no_reserve_left_refuses_until_it_gets_more(cluster: DiskCluster) -> None:
    first, _, (name, *_) = await two_hosts(cluster)
    await cluster.produce(name, batch(b"a"))
    first.metadata.refuse("reserve_offsets", times=1000)
    assert (await produce(first.up, batch(*[b"x"] * (AHEAD - 1)), name)).base_offset == 1
    assert (await produce(first.up, batch(b"last"), name)).base_offset == AHEAD
    with pytest.raises(NotReserved):
        await produce(first.up, batch(b"too much"), name)
    first.metadata.heal()
    assert await cluster.produce(name, batch(b"then")) == AHEAD + 1


async def test_a_batch_with_more_records_than_are_reserved_ahead_gets_through(cluster: DiskCluster) -> None:
    _, _, (name, *_) = await two_hosts(cluster)
    assert await cluster.produce(name, batch(*[b"x"] * (3 * AHEAD))) == 0
    assert await cluster.produce(name, batch(b"y")) == 3 * AHEAD


async def test_what_a_leader_had_reserved_serves_the_next_one(cluster: DiskCluster) -> None:
    first, second, (name, *_) = await two_hosts(cluster)
    await cluster.produce(name, batch(b"a"))
    first.up.stop()
    await cluster.pass_time(3)
    before = second.metadata.count("reserve_offsets")
    assert await cluster.produce(name, batch(b"b")) == 1
    assert second.metadata.count("reserve_offsets") == before


async def test_an_agent_that_is_alone_reserves_nothing(make_world: MakeWorld) -> None:
    world = await make_world()
    broker = await world.start_with(NAMES[0])
    world.run(broker)
    await produce(broker, batch(b"a"), NAMES[0])
    assert world.metadata.count("reserve_offsets") == 0


# --- taking over


async def test_an_agent_that_comes_back_in_time_recovers_its_records_where_they_were(cluster: DiskCluster) -> None:
    first, second, mine = await two_hosts(cluster)
    for name in mine:
        await cluster.produce(name, batch(b"a", b"b"))
    await first.kill()
    await cluster.pass_time(LEASE.ttl_s + DISK_WAIT_S / 2)
    await first.start()
    for name in mine:
        assert await cluster.produce(name, batch(b"c")) == 2
        assert await cluster.read(name) == {0: b"a", 1: b"b", 2: b"c"}
    assert second.up.dead_session_recovery.recovered.abandoned_sessions == 0
    assert first.up.recovered.records == 2 * len(mine)


async def test_nobody_takes_over_before_the_disk_was_waited_for(cluster: DiskCluster) -> None:
    first, second, mine = await two_hosts(cluster)
    await cluster.produce(mine[0], batch(b"a"))
    await first.kill()
    await cluster.pass_time(DISK_WAIT_S)
    assert second.up.dead_session_recovery.recovered.abandoned_sessions == 0
    assert await cluster.try_produce(mine[0], batch(b"b")) is None
    await cluster.pass_time(LEASE.ttl_s + 1)
    assert second.up.dead_session_recovery.recovered.abandoned_sessions == 1


async def test_an_agent_that_takes_over_goes_on_above_all_that_was_reserved(cluster: DiskCluster) -> None:
    first, second, mine = await two_hosts(cluster)
    for name in mine:
        await cluster.produce(name, batch(b"a"))
    await die_and_be_succeeded(cluster, first)
    for name in mine:
        assert await cluster.produce(name, batch(b"b")) == AHEAD + 1
        assert await cluster.read(name) == {AHEAD + 1: b"b"}
    assert second.up.dead_session_recovery.recovered.abandoned_sessions == 1


async def test_a_consumer_passes_the_gap(cluster: DiskCluster) -> None:
    first, second, (name, *_) = await two_hosts(cluster)
    await cluster.produce(name, batch(b"flushed"))
    await current(first.up).flusher.flush_all()
    await cluster.produce(name, batch(b"on disk"))
    await die_and_be_succeeded(cluster, first)
    await cluster.produce(name, batch(b"later"))
    gap_end = AHEAD + 1
    assert await cluster.read(name) == {0: b"flushed", gap_end: b"later"}
    await current(second.up).flusher.flush_all()
    assert await cluster.read(name) == {0: b"flushed", gap_end: b"later"}


@pytest.mark.parametrize("is_flushed", [False, True])
async def test_a_consumer_gets_to_the_end_where_that_is_a_gap(cluster: DiskCluster, is_flushed: bool) -> None:
    """A reader that stops at the log's end must reach it although there are no more appends."""
    first, second, (name, *_) = await two_hosts(cluster)
    await cluster.produce(name, batch(b"a"))
    if is_flushed:
        await current(first.up).flusher.flush_all()
    await die_and_be_succeeded(cluster, first)
    gap_start, gap_end = int(is_flushed), AHEAD + 1
    for start in (gap_start, gap_start + 7, gap_end - 1):
        (got,) = await second.up.fetch([PartitionFetch(name, start, 1000)], max_bytes=1000, min_bytes=1, max_wait_s=0)
        (header,) = [read_header(data) for data in got.records]
        assert (header.base_offset, header.end, header.record_count) == (start, gap_end, 0)
        assert got.high_watermark == gap_end
    (got,) = await second.up.fetch([PartitionFetch(name, gap_end, 1000)], max_bytes=1000, min_bytes=1, max_wait_s=0)
    assert (got.error, list(got.records)) == (None, [])
    assert await cluster.read(name) == ({0: b"a"} if is_flushed else {})


async def test_a_flush_while_a_reader_looks_for_the_end_of_a_gap_takes_no_record_from_it(
    cluster: DiskCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first records behind the gap leave the memory; those that came since must not be taken for the first."""
    first, second, (name, *_) = await two_hosts(cluster)
    await cluster.produce(name, batch(b"a"))
    await die_and_be_succeeded(cluster, first)
    await cluster.produce(name, batch(b"b"))
    look = SegmentReader.is_gap

    async def slowly(self: SegmentReader, partition: PartitionId, offset: int, *, end: int) -> bool:
        monkeypatch.setattr(SegmentReader, "is_gap", look)
        await current(second.up).flusher.flush_all()
        await cluster.produce(name, batch(b"c"))
        return await look(self, partition, offset, end=end)

    monkeypatch.setattr(SegmentReader, "is_gap", slowly)
    (got,) = await second.up.fetch([PartitionFetch(name, 0, 1000)], max_bytes=1000, min_bytes=1, max_wait_s=0)
    (header,) = [read_header(data) for data in got.records]
    assert (header.base_offset, header.end, header.record_count) == (0, AHEAD + 1, 0)
    assert await cluster.read(name) == {AHEAD + 1: b"b", AHEAD + 2: b"c"}


@pytest.mark.parametrize("is_flushed", [False, True])
async def test_a_consumer_that_had_read_in_the_gap_is_not_told_that_the_log_was_truncated(
    cluster: DiskCluster, is_flushed: bool
) -> None:
    first, second, (name, *_) = await two_hosts(cluster)
    await cluster.produce(name, batch(b"a"))
    if is_flushed:
        await current(first.up).flusher.flush_all()
        await cluster.produce(name, batch(b"b"))
    epoch = first.up.leader_epoch(name)
    await die_and_be_succeeded(cluster, first)
    for _ in range(2):
        await cluster.produce(name, batch(b"later"))
        reported = await second.up.epoch_end(name, epoch)
        assert reported is not None
        assert (reported.offset, reported.leader_epoch) == (AHEAD + 1, epoch)
        await current(second.up).flusher.flush_all()


async def test_an_idempotent_producer_goes_on_with_the_next_leader(cluster: DiskCluster) -> None:
    first, second, (name, *_) = await two_hosts(cluster)
    assert await cluster.produce(name, idempotent(b"a", sequence=0)) == 0
    await current(first.up).flusher.flush_all()
    assert await cluster.produce(name, idempotent(b"b", sequence=1)) == 1
    await die_and_be_succeeded(cluster, first)
    assert await cluster.produce(name, idempotent(b"c", sequence=2)) == AHEAD + 1
    assert await cluster.produce(name, idempotent(b"c", sequence=2)) == AHEAD + 1
    assert await cluster.produce(name, idempotent(b"a", sequence=0)) == 0, "what was flushed is still known"
    await current(second.up).flusher.flush_all()
    assert await cluster.produce(name, idempotent(b"d", sequence=3)) == AHEAD + 2


# --- the disk comes back


async def test_a_disk_that_comes_back_late_is_appended_again_at_new_offsets(cluster: DiskCluster) -> None:
    first, second, mine = await two_hosts(cluster)
    for name in mine:
        for value in (b"a", b"b", b"c"):
            await cluster.produce(name, idempotent(value, sequence=ord(value) - ord("a")))
    old = first.session_id
    await die_and_be_succeeded(cluster, first)
    for name in mine:
        await cluster.produce(name, idempotent(b"between", sequence=3))
    await first.start()
    await cluster.pass_time(5)
    for name in mine:
        await cluster.produce(name, idempotent(b"after", sequence=4))
        found = await cluster.read(name)
        assert list(found.values()) == [b"between", b"a", b"b", b"c", b"after"]
        assert min(found) == AHEAD + 1
    assert first.up.wal_reappend.records == 3 * len(mine)
    assert (first.up.wal_reappend.waiting, first.up.wal_reappend.skipped_records) == (0, 0)
    assert first.logs_on_disk() == [first.session_id]
    assert await cluster.world.sqlite.abandoned_ranges(old) == []
    assert second.up.dead_session_recovery.recovered.abandoned_sessions == 1


async def test_what_others_lead_now_is_appended_there(cluster: DiskCluster) -> None:
    first, second, mine = await two_hosts(cluster)
    for name in mine:
        await cluster.produce(name, batch(b"a"))
    await die_and_be_succeeded(cluster, first)
    topic = await second.up.topic("orders")
    node = second.up.node_id
    await cluster.world.sqlite.pin_partitions({PartitionId(topic.topic_id, name.partition): node for name in mine})
    await first.start()
    await cluster.pass_time(5)
    for name in mine:
        assert list((await cluster.read(name)).values()) == [b"a"]
    assert cluster.forwarded == len(mine)
    assert first.logs_on_disk() == [first.session_id]


async def test_what_was_flushed_before_is_not_appended_again(cluster: DiskCluster) -> None:
    first, _, (name, neighbour, *_) = await two_hosts(cluster)
    await cluster.produce(neighbour, batch(b"holds the file"))
    await cluster.produce(name, batch(b"flushed"))
    await current(first.up).flusher.flush_all([await first.up.open_log(name)])
    await cluster.produce(name, batch(b"on disk"))
    await die_and_be_succeeded(cluster, first)
    await first.start()
    await cluster.pass_time(5)
    assert list((await cluster.read(name)).values()) == [b"flushed", b"on disk"]
    assert list((await cluster.read(neighbour)).values()) == [b"holds the file"]
    assert first.up.wal_reappend.records == 2


async def test_what_an_earlier_lease_of_the_same_session_left_is_not_appended_again(cluster: DiskCluster) -> None:
    first, second, (name, neighbour, *_) = await two_hosts(cluster)
    topic = await first.up.topic("orders")
    partition = PartitionId(topic.topic_id, name.partition)
    await cluster.produce(neighbour, batch(b"holds the file"))
    await cluster.produce(name, batch(b"first lease"))
    for host in (second, first):
        await cluster.world.sqlite.pin_partitions({partition: host.up.node_id})
        await cluster.pass_time(2)
        await cluster.produce(name, batch(b"of %d" % host.up.node_id))
    await die_and_be_succeeded(cluster, first)
    await first.start()
    await cluster.pass_time(5)
    assert list((await cluster.read(name)).values()) == [b"first lease", b"of 2", b"of 1"]
    assert first.up.wal_reappend.records == 2


async def nobody_asks(name: TopicPartition) -> OffsetResult:
    raise AssertionError(name)


def test_only_entries_of_the_lease_and_within_what_was_given_up_count() -> None:
    """An append that failed under an earlier lease may have left an entry whose offset was given to another record."""
    partition = PartitionId(TopicId(UUID(int=1)), 0)
    given_up = AbandonedRange(session_id=SessionId("s"), partition=partition, epoch=Epoch(5), from_offset=10, until=20)
    outcomes = TransactionOutcomes(World().dependencies(), latest=nobody_asks)
    work = _Pass(ranges={partition: given_up}, topics={}, acknowledged={partition: 12}, outcomes=outcomes)
    entries = [(5, 9), (5, 10), (4, 12), (5, 12), (6, 12), (5, 19), (5, 20)]
    wanted = [(e, base) for e, base in entries if work.wants(WalEntry(partition, Epoch(e), base, base + 1, b""))]
    assert wanted == [(5, 12), (5, 19)]


async def test_records_of_a_topic_that_was_deleted_meanwhile_are_left_out_and_counted(cluster: DiskCluster) -> None:
    first, second, (name, *_) = await two_hosts(cluster)
    await first.up.create_topic("clicks", partitions=PARTITIONS, overrides={})
    clicks = (await cluster.led_by(first, [TopicPartition("clicks", number) for number in range(PARTITIONS)]))[0]
    await cluster.produce(name, batch(b"a"))
    await cluster.produce(clicks, batch(b"x", b"y"))
    await die_and_be_succeeded(cluster, first)
    await second.up.delete_topic(await second.up.topic("clicks"))
    await second.up.create_topic("clicks", partitions=PARTITIONS, overrides={})
    await first.start()
    await cluster.pass_time(5)
    assert list((await cluster.read(name)).values()) == [b"a"]
    assert await cluster.read(clicks) == {}
    assert (first.up.wal_reappend.records, first.up.wal_reappend.skipped_records) == (1, 2)
    assert first.logs_on_disk() == [first.session_id]


async def test_the_log_stays_while_a_leader_refuses_and_nothing_overtakes(cluster: DiskCluster) -> None:
    first, second, (name, *_) = await two_hosts(cluster)
    old = first.session_id
    for value in (b"a", b"b"):
        await cluster.produce(name, batch(value))
    await die_and_be_succeeded(cluster, first)
    await cluster.produce(name, batch(b"between"))
    topic = await second.up.topic("orders")
    await cluster.world.sqlite.pin_partitions({PartitionId(topic.topic_id, name.partition): second.up.node_id})
    second.metadata.refuse("reserve_offsets", times=10_000)
    log = await second.up.open_log(name)
    log.reserve.extend(log.next_offset + 1, ahead=0)
    await first.start()
    await cluster.pass_time(5)
    assert first.up.wal_reappend.waiting == 1
    assert old in first.logs_on_disk()
    assert list((await cluster.read(name)).values()) == [b"between", b"a"]
    second.metadata.heal()
    await cluster.pass_time(cluster.world.settings.flush.retry_max_s * 2)
    assert list((await cluster.read(name)).values()) == [b"between", b"a", b"b"]
    assert first.logs_on_disk() == [first.session_id]


async def test_whichever_agent_dies_while_appending_again_begins_with_the_first_file_that_is_left(
    cluster: DiskCluster,
) -> None:
    first, second, (name, *_) = await two_hosts(cluster)
    values = [b"%03d" % number + b"." * 200 for number in range(40)]
    for value in values:
        await cluster.produce(name, batch(value))
    await die_and_be_succeeded(cluster, first)
    await cluster.produce(name, batch(b"between"))
    topic = await second.up.topic("orders")
    await cluster.world.sqlite.pin_partitions({PartitionId(topic.topic_id, name.partition): second.up.node_id})
    log = await second.up.open_log(name)
    second.metadata.refuse("reserve_offsets", times=10_000)
    log.reserve.extend(log.next_offset + 20, ahead=0)
    await first.start()
    await cluster.pass_time(5)
    await first.kill()
    second.metadata.heal()
    await cluster.pass_time(LEASE.ttl_s + 2)
    await first.start()
    await cluster.pass_time(10)
    found = list((await cluster.read(name)).values())[1:]
    assert set(found) == set(values)
    assert 20 <= found.index(values[-1]) <= 20 + len(values)
    assert first.up.wal_reappend.records < len(values), "files that were done are not begun again"
    assert first.logs_on_disk() == [first.session_id]


# --- a zombie


async def test_a_zombie_begins_anew_and_appends_again_what_only_it_has(cluster: DiskCluster) -> None:
    first, second, mine = await two_hosts(cluster)
    for name in mine:
        await cluster.produce(name, batch(b"a"))
    old = first.session_id
    first.metadata.is_cut = True
    await cluster.pass_time(LEASE.ttl_s + DISK_WAIT_S + 2)
    assert second.up.dead_session_recovery.recovered.abandoned_sessions == 1
    first.metadata.is_cut = False
    await cluster.pass_time(8)
    assert first.session_id != old
    for name in mine:
        found = await cluster.read(name)
        assert list(found.values()) == [b"a"]
        assert min(found) > AHEAD
    assert first.logs_on_disk() == [first.session_id]


async def test_a_zombie_that_wakes_before_it_is_given_up_goes_on_as_it_was(cluster: DiskCluster) -> None:
    first, second, (name, *_) = await two_hosts(cluster)
    await cluster.produce(name, batch(b"a"))
    old = first.session_id
    first.metadata.is_cut = True
    await cluster.pass_time(LEASE.ttl_s + DISK_WAIT_S / 2)
    first.metadata.is_cut = False
    assert await cluster.produce(name, batch(b"b")) == 1
    assert first.session_id == old
    assert second.up.dead_session_recovery.recovered.abandoned_sessions == 0


# --- everything at once


@pytest.mark.parametrize("seed", range(scaled(quick=1, nightly=40)))
async def test_no_offset_comes_twice_and_nothing_acknowledged_is_lost_whichever_agent_dies(
    cluster: DiskCluster, seed: int
) -> None:
    chance = random.Random(seed)
    for _ in range(3):
        await cluster.host()
    await cluster.hosts[0].up.create_topic("orders", partitions=PARTITIONS, overrides={})
    acked: dict[TopicPartition, list[tuple[int, bytes]]] = {name: [] for name in NAMES}
    sent = 0
    for _ in range(60):
        for _ in range(chance.randrange(4)):
            name, value = chance.choice(NAMES), b"%d" % sent
            sent += 1
            if (offset := await cluster.try_produce(name, batch(value))) is not None:
                acked[name].append((offset, value))
        await something_happens(cluster, chance)
    await come_back(cluster)
    for name in NAMES:
        check(acked[name], await cluster.read(name))
    for host in cluster.hosts:
        assert host.up.wal_reappend.waiting == 0
        assert host.logs_on_disk() == [host.session_id]


async def something_happens(cluster: DiskCluster, chance: random.Random) -> None:
    host = chance.choice(cluster.hosts)
    match chance.choice(("kill", "start", "cut", "mend", "flush", "time", "long time")):
        case "kill" if len(cluster.up()) > 1 and host.is_up:
            await host.kill()
        case "start" if not host.is_up and not host.metadata.is_cut:
            await host.start()
        case "cut":
            if sum(not each.metadata.is_cut for each in cluster.up()) > 1:
                host.metadata.is_cut = True
        case "mend":
            host.metadata.is_cut = False
        case "flush" if host.is_up and not host.metadata.is_cut and host.up.agent_session is not None:
            await host.up.agent_session.flusher.flush_once(list(host.up.agent_session.logs))
        case "long time":
            await cluster.pass_time(LEASE.ttl_s + DISK_WAIT_S * chance.random() * 2, step=0.25)
        case _:
            await cluster.pass_time(chance.random(), step=0.1)


async def come_back(cluster: DiskCluster) -> None:
    for host in cluster.hosts:
        host.metadata.is_cut = False
    await cluster.pass_time(1)
    for host in cluster.hosts:
        if not host.is_up:
            await host.start()
    await cluster.pass_time(LEASE.ttl_s + DISK_WAIT_S + 15, step=0.25)


def check(acked: Sequence[tuple[int, bytes]], found: dict[int, bytes | None]) -> None:
    """Each is at the offset of its ack, or that offset names nothing any more and the record has another one."""
    offsets = [offset for offset, _ in acked]
    assert len(offsets) == len(set(offsets)), "an offset was acknowledged twice"
    for offset, value in acked:
        assert found.get(offset, value) == value, f"offset {offset} names another record"
        copies = sum(each == value for each in found.values())
        assert copies >= 1, f"{value!r} is lost; acknowledged at {offset}"
        if offset in found:
            assert copies == 1, f"{value!r} is there twice, though its place was kept"


async def test_a_damaged_file_of_a_disk_that_comes_back_is_kept_beside_when_all_else_is_appended_again(
    cluster: DiskCluster,
) -> None:
    first, _, mine = await two_hosts(cluster)
    old = first.session_id
    for value in (b"first value", b"damaged value", b"third value"):
        await cluster.produce(mine[0], batch(value))
    await die_and_be_succeeded(cluster, first)
    (path,) = first.spoil(old, b"damaged value", b"dam\0ged value")
    await first.start()
    await cluster.pass_time(5)
    assert list((await cluster.read(mine[0])).values()) == [b"first value", b"third value"]
    assert first.logs_on_disk() == [first.session_id]
    (log,) = await first.up.damaged_logs.list()
    assert (log.kept.session_id, log.kept.files, log.is_loss) == (old, 1, True)
    assert log.kept.where == str(quarantine_root(WAL_ROOT) / old)
    assert path.name in first.files_in(quarantine_root(WAL_ROOT) / old)
