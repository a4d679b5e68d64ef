"""An agent as a client of another one: what it appends is there, and what goes wrong says whether to try again."""

import asyncio
import socket
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from streamhouse.config import PeerSettings
from streamhouse.errors import RecordTooLarge, Unavailable
from streamhouse.format.batch import as_new
from streamhouse.model.lease import Address
from streamhouse.model.names import PartitionId, TopicId
from streamhouse.wire.kafka.peers import KafkaPeers
from tests.wire.kafka.talk import Served, a_batch, batches_of, create_topic, fetch, fetch_request


@pytest.fixture
async def peers() -> AsyncIterator[KafkaPeers]:
    peers = KafkaPeers(PeerSettings(timeout_s=5))
    yield peers
    await peers.aclose()


async def partition_of(served: Served, number: int = 0) -> tuple[Address, PartitionId]:
    await create_topic(await served.client(), "orders", partitions=3)
    topic = await served.broker.topic("orders")
    return Address(served.host, served.port), PartitionId(topic.topic_id, number)


async def test_a_batch_gets_its_offset_from_the_agent_that_was_asked(served: Served, peers: KafkaPeers) -> None:
    at, partition = await partition_of(served)
    batch = a_batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=3)
    assert (await peers.append(at, partition, as_new(batch))).offset == 0
    assert (await peers.append(at, partition, as_new(batch))).offset == 2
    (part,) = await fetch(await served.client(), fetch_request("orders", (0, 0)))
    assert [each[61:] for each in batches_of(part)] == [bytes(batch[61:])] * 2


async def test_many_requests_share_a_connection_and_get_their_own_answers(served: Served, peers: KafkaPeers) -> None:
    at, first = await partition_of(served)
    asked = [(first._replace(partition=number), number * 10 + turn) for turn in range(10) for number in range(3)]
    appended = await asyncio.gather(*(peers.append(at, where, a_batch(b"%d" % value)) for where, value in asked))
    assert sorted(each.offset for each in appended) == sorted([*range(10)] * 3)
    assert repr(peers) == "<KafkaPeers links=1>"


async def test_a_topic_that_is_unknown_there_may_be_known_later(served: Served, peers: KafkaPeers) -> None:
    at, _ = await partition_of(served)
    with pytest.raises(Unavailable, match="UNKNOWN_TOPIC_ID"):
        await peers.append(at, PartitionId(TopicId(UUID(int=1)), 0), a_batch(b"a"))


async def test_what_the_topic_does_not_allow_is_refused_for_good(served: Served, peers: KafkaPeers) -> None:
    await create_topic(await served.client(), "small", configs=[("max.message.bytes", "100")])
    topic = await served.broker.topic("small")
    at = Address(served.host, served.port)
    with pytest.raises(RecordTooLarge, match="batch too large"):
        await peers.append(at, PartitionId(topic.topic_id, 0), a_batch(b"x" * 200))


async def test_an_agent_that_is_away_is_tried_anew_each_time(served: Served, peers: KafkaPeers) -> None:
    _, partition = await partition_of(served)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        at = Address(*nobody.getsockname())
        for _ in range(2):
            with pytest.raises(Unavailable):
                await peers.append(at, partition, a_batch(b"a"))
    assert repr(peers) == "<KafkaPeers links=0>"


@pytest.mark.parametrize("answer", [b"", b"\x00\x00\x00\x08\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x02xx"])
async def test_an_answer_that_breaks_off_or_makes_no_sense_is_no_acknowledgement(
    served: Served, peers: KafkaPeers, answer: bytes
) -> None:
    _, partition = await partition_of(served)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        at = Address(*server.sockets[0].getsockname()[:2])
        waiting = [peers.append(at, partition, a_batch(b"%d" % number)) for number in range(3)]
        got = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, Unavailable) for each in got), got


async def test_an_agent_that_says_nothing_is_not_waited_for_for_ever(served: Served) -> None:
    _, partition = await partition_of(served)
    peers = KafkaPeers(PeerSettings(timeout_s=0.05))
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        with pytest.raises(Unavailable, match="TimeoutError"):
            await peers.append(Address(*mute.getsockname()), partition, a_batch(b"a"))
    await peers.aclose()
