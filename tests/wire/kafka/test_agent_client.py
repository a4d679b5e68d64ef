"""An agent as a client of another one: what it appends is there, and what goes wrong says whether to try again."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Self
from uuid import UUID

import pytest

from streamhouse.config import AgentClientSettings
from streamhouse.config.fields import Address
from streamhouse.errors import Overloaded, RecordTooLarge, Unavailable
from streamhouse.format.batch import read_header, without_log_fields
from streamhouse.model.fetch import PartitionFetch
from streamhouse.model.names import PartitionId, TopicId, TopicPartition
from streamhouse.model.transaction import Marker, ProducerIdentity
from streamhouse.wire.kafka.agent_client import KafkaAgentClient, writes
from streamhouse.wire.kafka.agent_client.connections import AgentConnections, connect
from streamhouse.wire.kafka.codec import UnencodableMessage, encode_bytes
from streamhouse.wire.kafka.messages.header import ResponseHeader
from streamhouse.wire.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from streamhouse.wire.kafka.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from streamhouse.wire.kafka.transaction_errors import transaction_call
from tests.contracts.clocks import ManualClock
from tests.wire.kafka.producing import Transactional
from tests.wire.kafka.talk import Served, a_batch, batches_of, create_topic, fetch, fetch_request, until


@pytest.fixture
async def peers() -> AsyncIterator[KafkaAgentClient]:
    peers = KafkaAgentClient(AgentClientSettings(timeout_s=5))
    yield peers
    await peers.aclose()


async def partition_of(served: Served, number: int = 0) -> tuple[Address, PartitionId]:
    await create_topic(await served.client(), "orders", partitions=3)
    topic = await served.broker.topic("orders")
    return Address(served.host, served.port), PartitionId(topic.topic_id, number)


async def test_a_batch_gets_its_offset_from_the_agent_that_was_asked(served: Served, peers: KafkaAgentClient) -> None:
    at, partition = await partition_of(served)
    batch = a_batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=3)
    assert (await peers.append(at, partition, without_log_fields(batch))).offset == 0
    assert (await peers.append(at, partition, without_log_fields(batch))).offset == 2
    (part,) = await fetch(await served.client(), fetch_request("orders", (0, 0)))
    assert [each[61:] for each in batches_of(part)] == [bytes(batch[61:])] * 2


async def test_many_requests_share_a_connection_and_get_their_own_answers(
    served: Served, peers: KafkaAgentClient
) -> None:
    at, first = await partition_of(served)
    requests = [(first._replace(partition=number), number * 10 + turn) for turn in range(10) for number in range(3)]
    appended = await asyncio.gather(*(peers.append(at, where, a_batch(b"%d" % value)) for where, value in requests))
    assert sorted(each.offset for each in appended) == sorted([*range(10)] * 3)
    assert repr(peers) == "<KafkaAgentClient connections=1>"


async def test_a_topic_that_is_unknown_there_may_be_known_later(served: Served, peers: KafkaAgentClient) -> None:
    at, _ = await partition_of(served)
    with pytest.raises(Unavailable, match="UNKNOWN_TOPIC_ID"):
        await peers.append(at, PartitionId(TopicId(UUID(int=1)), 0), a_batch(b"a"))


async def test_what_the_topic_does_not_allow_is_refused_for_good(served: Served, peers: KafkaAgentClient) -> None:
    await create_topic(await served.client(), "small", configs=[("max.message.bytes", "100")])
    topic = await served.broker.topic("small")
    at = Address(served.host, served.port)
    with pytest.raises(RecordTooLarge, match="batch too large"):
        await peers.append(at, PartitionId(topic.topic_id, 0), a_batch(b"x" * 200))


async def test_an_agent_that_is_away_is_tried_anew_each_time(served: Served, peers: KafkaAgentClient) -> None:
    _, partition = await partition_of(served)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        at = Address(*nobody.getsockname())
        for _ in range(2):
            with pytest.raises(Unavailable):
                await peers.append(at, partition, a_batch(b"a"))
    assert repr(peers) == "<KafkaAgentClient connections=0>"


@pytest.mark.parametrize("response", [b"", b"\x00\x00\x00\x08\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x02xx"])
async def test_a_response_that_breaks_off_or_makes_no_sense_is_no_acknowledgement(
    served: Served, peers: KafkaAgentClient, response: bytes
) -> None:
    _, partition = await partition_of(served)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(response)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        at = Address(*server.sockets[0].getsockname()[:2])
        waiting = [peers.append(at, partition, a_batch(b"%d" % number)) for number in range(3)]
        got = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, Unavailable) for each in got), got


async def swapping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers two requests in the wrong order, each with the offset that its own correlation id says."""
    numbers = []
    for _ in range(2):
        body = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        numbers.append(int.from_bytes(body[4:8]))
    for number in reversed(numbers):
        writer.write(produce_answer(number))
    writer.close()


def produce_answer(number: int) -> bytes:
    part = PartitionProduceResponse(index=0, base_offset=number)
    topic = TopicProduceResponse(topic_id=SOMEWHERE.topic_id, partition_responses=[part])
    body = encode_bytes(ResponseHeader(correlation_id=number), 1)
    body += encode_bytes(ProduceResponse(responses=[topic]), writes.PRODUCE_VERSION)
    return len(body).to_bytes(4) + body


async def test_a_response_to_another_request_is_no_response_and_ends_the_link(peers: KafkaAgentClient) -> None:
    async with await asyncio.start_server(swapping, "127.0.0.1", 0) as server:
        at = Address(*server.sockets[0].getsockname()[:2])
        got = await asyncio.gather(
            *(peers.append(at, SOMEWHERE, a_batch(b"%d" % number)) for number in range(2)), return_exceptions=True
        )
    assert all(isinstance(each, Unavailable) for each in got), got
    assert "expected=1 received=2" in str(got[0])
    assert repr(peers) == "<KafkaAgentClient connections=0>"


async def test_a_response_that_nobody_requested_ends_the_link() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(produce_answer(1))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        at = Address(*server.sockets[0].getsockname()[:2])
        link = await connect(at, clock=ManualClock(), max_unsent_bytes=1000)
        await until(lambda: not link.is_open)
        await link.aclose()


async def test_a_request_that_cannot_be_written_takes_nobody_elses_response(served: Served) -> None:
    link = await connect(Address(served.host, served.port), clock=ManualClock(), max_unsent_bytes=1000)
    with pytest.raises(UnencodableMessage):
        await link.send(ListGroupsRequest(types_filter=["classic"]), 3, ListGroupsResponse)
    async with asyncio.timeout(20):
        assert (await link.send(ListGroupsRequest(), 3, ListGroupsResponse)).groups == []
    await link.aclose()


async def test_an_agent_that_reads_nothing_gets_no_further_requests() -> None:
    """What callers that gave up have sent is still in the buffer, and must not grow without end."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        link = await connect(Address(*mute.getsockname()), clock=ManualClock(), max_unsent_bytes=1_000_000)
        partition = PartitionId(TopicId(UUID(int=1)), 0)
        request = writes.append_request(partition, a_batch(b"x" * 16_000_000), timeout_s=1, request_flush=False)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await link.send(request, writes.PRODUCE_VERSION, ProduceResponse)
        with pytest.raises(ConnectionResetError, match="reads nothing"):
            async with asyncio.timeout(5):
                await link.send(ListGroupsRequest(), 3, ListGroupsResponse)
        await link.aclose()


async def test_an_agent_that_says_nothing_is_not_waited_for_forever(served: Served) -> None:
    _, partition = await partition_of(served)
    peers = KafkaAgentClient(AgentClientSettings(timeout_s=0.05))
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        with pytest.raises(Unavailable, match="TimeoutError"):
            await peers.append(Address(*mute.getsockname()), partition, a_batch(b"a"))
    await peers.aclose()


# --- the ends of transactions


async def test_a_marker_is_told_to_another_agent_and_counts_once(served: Served, peers: KafkaAgentClient) -> None:
    at, first = await partition_of(served)
    second = first._replace(partition=1)
    producer = await Transactional.begin(await served.client())
    await producer.add("orders", 0)
    await producer.send("orders", 0, b"a")
    call = transaction_call("payments", producer.producer_id, producer.epoch)
    decided = await served.broker._dependencies.metadata.end_transaction(call, commit=False, bump=False, fresh_id=-1)
    marker = decided.marker
    for _ in range(2):
        assert await peers.mark(at, marker, [first, second], timeout_s=5) == {first: None, second: None}
    request = PartitionFetch(TopicPartition("orders", 0), 0, 1 << 20, committed=True)
    (got,) = await peers.fetch(at, [(first, request)], max_bytes=1 << 20, min_bytes=0, max_wait_s=0, timeout_s=5)
    assert (got.last_stable, got.high_watermark) == (2, 2)
    assert list(got.aborted) == [(producer.producer_id, 0, 1)]


async def test_an_aborted_transaction_whose_marker_was_not_read_yet_reaches_beyond_what_was(
    served: Served, peers: KafkaAgentClient
) -> None:
    at, first = await partition_of(served)
    producer = await Transactional.begin(await served.client())
    for values in ([b"a" * 1000], [b"b" * 1000]):
        await producer.add("orders", 0)
        await producer.send("orders", 0, *values)
    await producer.end(commit=False)
    request = PartitionFetch(TopicPartition("orders", 0), 0, 1000, committed=True)
    (got,) = await peers.fetch(at, [(first, request)], max_bytes=1000, min_bytes=0, max_wait_s=0, timeout_s=5)
    assert [read_header(piece).end for piece in got.records] == [1]
    assert [(each.first_offset, each.last_offset) for each in got.aborted] == [(0, 2**63 - 1)]


async def test_a_marker_for_a_topic_that_is_unknown_there_may_be_known_later(
    served: Served, peers: KafkaAgentClient
) -> None:
    at, known = await partition_of(served)
    unknown = PartitionId(TopicId(UUID(int=1)), 0)
    marker = Marker(producer=ProducerIdentity(7, 0), number=1, is_commit=True)
    result = await peers.mark(at, marker, [known, unknown], timeout_s=5)
    assert result[known] is None
    assert isinstance(result[unknown], Unavailable)


# --- links, and how much of another agent is asked at once


class Mute:
    """An agent that takes everything and answers when it is told to, with the same bytes to everybody."""

    def __init__(self) -> None:
        self.requests = 0
        self.connections = 0
        self.open = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    @property
    def at(self) -> Address:
        assert self._server is not None
        return Address(*self._server.sockets[0].getsockname()[:2])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.connections += 1
        self.open += 1
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                await reader.readexactly(size)
                self.requests += 1
        except (asyncio.IncompleteReadError, ConnectionResetError):
            self.open -= 1
            writer.close()


SOMEWHERE = PartitionId(TopicId(UUID(int=1)), 0)
WANTED = [(SOMEWHERE, PartitionFetch(TopicPartition("orders", 0), 0, 1000))]


async def test_a_caller_with_little_time_does_not_close_the_link_of_the_others() -> None:
    peers = KafkaAgentClient(AgentClientSettings(timeout_s=60))
    async with Mute() as mute:
        patient = asyncio.ensure_future(peers.append(mute.at, SOMEWHERE, a_batch(b"a")))
        for number in (2, 3):
            with pytest.raises(Unavailable):
                await peers.append(mute.at, SOMEWHERE, a_batch(b"b"), timeout_s=0.05)
            await until(lambda: mute.requests == number)  # noqa: B023 (called before the next one)
        assert (mute.connections, mute.open, patient.done()) == (1, 1, False)
        await peers.aclose()
        with pytest.raises(Unavailable):
            await patient


async def test_an_agent_that_is_silent_for_too_long_gets_a_new_link() -> None:
    peers = KafkaAgentClient(AgentClientSettings(timeout_s=0.1))
    async with Mute() as mute:
        for _ in range(2):
            with pytest.raises(Unavailable):
                await peers.append(mute.at, SOMEWHERE, a_batch(b"a"), timeout_s=0.15)
        await until(lambda: mute.connections == 2)
    await peers.aclose()


async def test_no_more_is_asked_at_once_than_settings_allow() -> None:
    peers = KafkaAgentClient(AgentClientSettings(max_inflight_requests=3, max_waiting=2))
    async with Mute() as mute:
        pending = [asyncio.ensure_future(peers.append(mute.at, SOMEWHERE, a_batch(b"a"))) for _ in range(6)]
        await until(lambda: mute.requests == 3 and any(task.done() for task in pending))
        refused = [task.exception() for task in pending if task.done()]
        assert [type(error) for error in refused] == [Overloaded]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        assert mute.requests <= 3 + 2
    await peers.aclose()


async def test_an_agent_that_could_not_be_reached_is_left_alone_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, tries = ManualClock(), 0

    async def refuse(*_: object, **__: object) -> None:
        nonlocal tries
        tries += 1
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio, "open_connection", refuse)
    peer = AgentConnections(Address("127.0.0.1", 1), AgentClientSettings(reconnect_s=1.0), clock)
    for expected in (1, 1, 2):
        with pytest.raises(Unavailable):
            await peer.send("appends", ListGroupsRequest(), 5, ListGroupsResponse, timeout_s=5)
        assert tries == expected
        clock.advance(ms=600)


async def test_reads_have_links_of_their_own_that_serve_the_next_read(served: Served, peers: KafkaAgentClient) -> None:
    at, partition = await partition_of(served)
    await peers.append(at, partition, a_batch(b"a"))
    requests = [(partition, PartitionFetch(TopicPartition("orders", 0), 0, 1000))]
    for _ in range(5):
        (got,) = await peers.fetch(at, requests, max_bytes=1000, min_bytes=1, max_wait_s=5, timeout_s=10)
        assert got.high_watermark == 1
    assert repr(peers) == "<KafkaAgentClient connections=2>"
    others = served.counted("streamhouse_kafka_connections") - 2
    await peers.aclose()
    await until(lambda: served.counted("streamhouse_kafka_connections") == others)


async def test_a_read_that_is_given_up_closes_its_link(peers: KafkaAgentClient) -> None:
    async with Mute() as mute:
        reading = asyncio.ensure_future(
            peers.fetch(mute.at, WANTED, max_bytes=1000, min_bytes=1, max_wait_s=60, timeout_s=60)
        )
        await until(lambda: mute.requests == 1)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await until(lambda: mute.open == 0)
    assert repr(peers) == "<KafkaAgentClient connections=0>"
