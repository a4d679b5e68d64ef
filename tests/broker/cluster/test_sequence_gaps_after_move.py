"""A partition moves between two batches that a producer has under way: what one agent has refused, the next can't know.

Told that the second is out of order, librdkafka would begin another epoch, and store again what it is unsure of
elsewhere. So for a while a gap is waited for, and only then called one.
"""

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.config import FlushSettings, ProducerSettings, WalSettings
from streamhouse.errors import NotLeader, OutOfOrderSequence, PredecessorRefused
from streamhouse.model.names import TopicPartition
from tests.broker.cluster.test_cluster import BrokerCluster
from tests.broker.conftest import MakeWorld
from tests.broker.support import current, idempotent, produce, values_of

SETTLE_S = 4.0


@pytest.fixture
async def cluster(make_world: MakeWorld) -> BrokerCluster:
    return BrokerCluster(
        await make_world(
            flush=FlushSettings(block_bytes=256, age_s=5.0),
            wal=WalSettings(window_ms=0),
            producers=ProducerSettings(settle_s=SETTLE_S),
        )
    )


async def moved(cluster: BrokerCluster, *, stored: int) -> tuple[TopicPartition, Broker]:
    """A partition that was led, and has so many batches of one producer, with its next leader; its log was just opened.

    The batch after those was sent to the leader before and refused.
    """
    first, second = await cluster.join(), await cluster.join()
    await cluster.topic()
    (name, *_) = await cluster.led_by(first)
    for sequence in range(stored):
        await produce(first, idempotent(b"%d" % sequence, sequence=sequence), name)
    await cluster.world.sqlite.drain_session(current(first).session.session_id)
    await cluster.pass_time(2)
    with pytest.raises(NotLeader):
        await first.append(name, idempotent(b"%d" % stored, sequence=stored))
    await second.open_log(name)
    return name, second


async def appended(broker: Broker, name: TopicPartition, *sequences: int) -> None:
    for sequence in sequences:
        await produce(broker, idempotent(b"%d" % sequence, sequence=sequence), name)


async def test_a_batch_that_the_leader_before_refused_is_waited_for(cluster: BrokerCluster) -> None:
    name, second = await moved(cluster, stored=2)
    for sequence in (3, 4):
        with pytest.raises(PredecessorRefused, match=f"got={sequence}"):
            await second.append(name, idempotent(b"%d" % sequence, sequence=sequence))
    await appended(second, name, 1)  # whose answer was lost: it has its place
    await appended(second, name, 2, 3, 4)
    assert list((await values_of(second, name)).values()) == [b"0", b"1", b"2", b"3", b"4"]


async def test_the_first_batch_of_a_new_producer_is_waited_for_too(cluster: BrokerCluster) -> None:
    """A log takes a producer that it doesn't know at its word: the second batch would stand before the first."""
    name, second = await moved(cluster, stored=0)
    with pytest.raises(PredecessorRefused, match="awaited=0 got=1"):
        await second.append(name, idempotent(b"1", sequence=1))
    await appended(second, name, 0, 1)
    assert list((await values_of(second, name)).values()) == [b"0", b"1"]


async def test_the_first_batch_of_a_new_epoch_is_waited_for_too(cluster: BrokerCluster) -> None:
    name, second = await moved(cluster, stored=1)
    with pytest.raises(PredecessorRefused, match="awaited=0 got=1"):
        await second.append(name, idempotent(b"b", sequence=1, epoch=1))
    for sequence, value in enumerate((b"a", b"b")):
        await produce(second, idempotent(value, sequence=sequence, epoch=1), name)
    assert list((await values_of(second, name)).values()) == [b"0", b"a", b"b"]


async def test_a_gap_that_stays_is_out_of_order_when_the_time_is_over(cluster: BrokerCluster) -> None:
    name, second = await moved(cluster, stored=1)
    for _ in range(3):
        with pytest.raises(PredecessorRefused):
            await second.append(name, idempotent(b"2", sequence=2))
        await cluster.pass_time(SETTLE_S / 3)
    await cluster.pass_time(0.1)
    with pytest.raises(OutOfOrderSequence, match="expected=1 got=2"):
        await second.append(name, idempotent(b"2", sequence=2))


async def test_a_producer_that_was_forgotten_is_believed_when_the_time_is_over(cluster: BrokerCluster) -> None:
    name, second = await moved(cluster, stored=0)
    with pytest.raises(PredecessorRefused):
        await second.append(name, idempotent(b"7", sequence=7))
    await cluster.pass_time(SETTLE_S + 0.1)
    with pytest.raises(PredecessorRefused):  # nothing has overtaken the first of them
        await second.append(name, idempotent(b"8", sequence=8))
    await appended(second, name, 7, 8)
    assert list((await values_of(second, name)).values()) == [b"7", b"8"]


async def test_a_gap_is_waited_for_however_long_a_partition_has_stayed(cluster: BrokerCluster) -> None:
    """A producer may have sent the missing batches to another agent, and learn of the new leader late."""
    name, second = await moved(cluster, stored=1)
    await appended(second, name, 1)
    await cluster.pass_time(SETTLE_S + 0.1)
    with pytest.raises(PredecessorRefused):
        await second.append(name, idempotent(b"3", sequence=3))
    await cluster.pass_time(SETTLE_S + 0.1)
    with pytest.raises(OutOfOrderSequence, match="expected=2 got=3"):
        await second.append(name, idempotent(b"3", sequence=3))


async def test_an_agent_that_slept_through_the_time_waits_all_the_same(cluster: BrokerCluster) -> None:
    """It finds the batches that came meanwhile in the order in which they came."""
    name, second = await moved(cluster, stored=1)
    await cluster.pass_time(SETTLE_S + 0.1)
    with pytest.raises(PredecessorRefused):
        await second.append(name, idempotent(b"2", sequence=2))
    await appended(second, name, 1, 2)
    assert list((await values_of(second, name)).values()) == [b"0", b"1", b"2"]


async def test_a_batch_before_what_is_known_is_not_waited_for(cluster: BrokerCluster) -> None:
    """It is no gap, and will be none."""
    first = await cluster.join()
    await cluster.topic()
    (name, *_) = await cluster.led_by(first)
    await produce(first, idempotent(b"a", b"b", b"c", sequence=0), name)
    with pytest.raises(OutOfOrderSequence):
        await first.append(name, idempotent(b"b", sequence=1))
