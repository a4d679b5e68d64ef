"""A disk that comes back late with batches of transactions: what was aborted stays away, all else is appended again."""

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.produce.append import ProduceTransaction
from streamhouse.model.names import TopicPartition
from streamhouse.model.transaction import Marker, ProducerIdentity, TransactionCall
from tests.broker.cluster.disk_cluster import DiskAgent, DiskCluster
from tests.broker.cluster.test_disk_cluster import cluster, die_and_be_succeeded, two_hosts
from tests.broker.support import batch, current, idempotent

__all__ = ["cluster"]


class Client:
    def __init__(self, name: str, identity: ProducerIdentity) -> None:
        self.name = name
        self.identity = identity
        self.sequence = 0
        self.number = 0

    async def send(self, broker: Broker, at: TopicPartition, value: bytes) -> None:
        producer, epoch = self.identity
        data = idempotent(value, sequence=self.sequence, producer=producer, epoch=epoch, is_transactional=True)
        pending = await broker.append(at, data, ProduceTransaction(self.name, enlists=True))
        await broker.acknowledge(pending)
        self.sequence += 1

    async def mark(self, broker: Broker, at: TopicPartition, *, commit: bool) -> None:
        """The marker alone; the transaction goes on as if another one had begun with the next batch."""
        self.number += 1
        marker = Marker(producer=self.identity, number=self.number, is_commit=commit)
        assert await broker.transactions.mark(marker, [at]) == {at: None}


async def client(broker: Broker, name: str = "alice") -> Client:
    return Client(name, await broker.transactions.init_producer(name, 600_000, None))


async def came_back(cluster: DiskCluster, name: TopicPartition) -> list[bytes | None]:
    """What is there of records, without markers."""
    return [value for value in (await cluster.read(name)).values() if value is not None and len(value) > 6]


async def flush_all(cluster: DiskCluster) -> None:
    for host in cluster.up():
        await current(host.up).flusher.flush_all()


async def decide(host: DiskAgent, alice: Client, *, commit: bool) -> None:
    call = TransactionCall(alice.name, alice.identity)
    await host.up.transactions.end(call, commit=commit, bump=False)


async def test_a_marker_in_the_same_log_says_what_counts(cluster: DiskCluster) -> None:
    first, _, (name, *_) = await two_hosts(cluster)
    alice = await client(first.up)
    await alice.send(first.up, name, b"committed")
    await alice.mark(first.up, name, commit=True)
    await alice.send(first.up, name, b"aborted")
    await cluster.produce(name, batch(b"without any"))
    for _ in range(30):  # its marker stands in another file
        await cluster.produce(name, batch(b"filler" * 20))
    await alice.mark(first.up, name, commit=False)
    await die_and_be_succeeded(cluster, first)
    await first.start()
    await cluster.pass_time(5)
    assert [value for value in await came_back(cluster, name) if value != b"filler" * 20] == [
        b"committed",
        b"without any",
    ]
    assert (first.up.wal_reappend.waiting, first.up.wal_reappend.records, first.up.wal_reappend.aborted_records) == (
        0,
        32,
        1,
    )


@pytest.mark.parametrize("is_known", [False, True])
async def test_what_the_next_leader_was_asked_to_abort_stays_away(cluster: DiskCluster, is_known: bool) -> None:
    first, second, (name, *_) = await two_hosts(cluster)
    alice = await client(first.up)
    if is_known:  # its producer is in a snapshot, without a transaction
        await alice.send(first.up, name, b"earlier")
        await decide(first, alice, commit=True)
        await current(first.up).flusher.flush_all()
    await alice.send(first.up, name, b"aborted")
    await cluster.produce(name, batch(b"without any"))
    await die_and_be_succeeded(cluster, first)
    await decide(second, alice, commit=False)
    await flush_all(cluster)
    await first.start()
    await cluster.pass_time(5)
    assert await came_back(cluster, name) == [b"earlier"] * is_known + [b"without any"]
    assert first.up.wal_reappend.waiting == 0


async def test_what_the_next_leader_was_asked_to_commit_comes_back(cluster: DiskCluster) -> None:
    first, second, (name, *_) = await two_hosts(cluster)
    alice = await client(first.up)
    await alice.send(first.up, name, b"committed")
    await die_and_be_succeeded(cluster, first)
    await decide(second, alice, commit=True)
    await flush_all(cluster)
    await first.start()
    await cluster.pass_time(5)
    assert await came_back(cluster, name) == [b"committed"]


async def test_what_is_not_decided_waits_and_what_is_decided_waits_for_the_flush(cluster: DiskCluster) -> None:
    first, _, (name, *_) = await two_hosts(cluster)
    alice = await client(first.up)
    await alice.send(first.up, name, b"aborted")
    await die_and_be_succeeded(cluster, first)
    await first.start()
    await cluster.pass_time(5)
    assert (first.up.wal_reappend.waiting, await came_back(cluster, name)) == (1, [])
    leader = await cluster.leader(name)
    assert leader is not None
    await decide(leader, alice, commit=False)
    await cluster.pass_time(10)
    assert (first.up.wal_reappend.waiting, await came_back(cluster, name)) == (1, [])
    await flush_all(cluster)
    await cluster.pass_time(10)
    assert (first.up.wal_reappend.waiting, await came_back(cluster, name)) == (0, [])
    assert first.up.wal_reappend.aborted_records == 1
