"""One connection: order, limits, and clients that don't behave."""

import asyncio
import os
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.config import KafkaSettings, Settings
from streamhouse.model.names import TopicPartition
from streamhouse.wire.kafka.codec import encode_bytes
from streamhouse.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from streamhouse.wire.kafka.messages.fetch import FetchResponse
from streamhouse.wire.kafka.messages.header import RequestHeader
from streamhouse.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from streamhouse.wire.kafka.messages.produce import ProduceResponse
from tests.contracts.clocks import ManualClock
from tests.wire.kafka.talk import (
    Client,
    Served,
    a_batch,
    a_broker,
    a_server,
    batches_of,
    create_topic,
    fetch_request,
    produce,
    produce_request,
    quick_settings,
    request_bytes,
    until,
)

WATCHES = ["kafka-connections", "kafka-revoked-logins", "kafka-watch"]
LIMIT_BYTES = 64 * 1024


@pytest.fixture
def kafka_settings() -> KafkaSettings:
    return KafkaSettings(
        max_request_bytes=LIMIT_BYTES,
        max_inflight_bytes=4 * LIMIT_BYTES,
        small_request_bytes=1024,
        small_inflight_bytes=16 * 1024,
        max_inflight_requests=5,
        max_connections=20,
        write_buffer_bytes=16 * 1024,
    )


async def is_served(served: Served) -> bool:
    """Whether somebody else still gets answers."""
    other = await served.client()
    response = await other.call(MetadataRequest(topics=[]), MetadataResponse, 9)
    await other.close()
    return len(response.brokers) == 1


# --- frames ---------------------------------------------------------------------------------------------------------


async def test_a_request_may_come_byte_by_byte(client: Client) -> None:
    frame = request_bytes(MetadataRequest(topics=[]), 9, correlation=77)
    for n in range(len(frame)):
        await client.send_raw(frame[n : n + 1])
        await asyncio.sleep(0)
    assert (await client.receive_raw())[:4] == struct.pack(">i", 77)


async def test_many_requests_may_come_in_one_piece(client: Client) -> None:
    frames = b"".join(request_bytes(MetadataRequest(topics=[]), 9, correlation=n) for n in range(100))
    await client.send_raw(frames)
    for n in range(100):
        assert (await client.receive_raw())[:4] == struct.pack(">i", n)


@pytest.mark.parametrize("size", [0, -1, LIMIT_BYTES + 1, 2**31 - 1])
async def test_an_impossible_size_closes_the_connection(client: Client, served: Served, size: int) -> None:
    await client.send_raw(struct.pack(">i", size) + b"whatever")
    assert await client.is_closed()
    assert await is_served(served)


async def test_the_largest_request_is_still_read(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    overhead = len(request_bytes(produce_request("orders", (0, a_batch(b"x" * 32_000))), 9)) - 4 - 32_000
    batch = a_batch(b"x" * (LIMIT_BYTES - overhead))
    frame = request_bytes(produce_request("orders", (0, batch)), 9)
    assert LIMIT_BYTES - 4 <= len(frame) - 4 <= LIMIT_BYTES
    await client.send_raw(frame)
    await client.receive_raw()
    log = await served.broker.open_log(TopicPartition("orders", 0))
    assert log.high_watermark == 1


@pytest.mark.parametrize(
    "hello",
    [
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\r\n\r\n",
        b"PRI * HTTP/2",
    ],
    ids=["http", "tls", "newlines", "http2"],
)
async def test_another_protocol_is_closed_quietly(
    client: Client, served: Served, hello: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        await client.send_raw(hello)
        assert await client.is_closed()
    lines = [record for record in caplog.records if record.name.startswith("streamhouse.wire")]
    assert [record.levelname for record in lines] == ["INFO"]
    assert await is_served(served)


async def test_garbage_never_harms_others(served: Served) -> None:
    for seed in range(15):
        client = await served.client()
        body = bytes((n * 31 + seed * 17) % 256 for n in range(200 + seed))
        await client.send_raw(struct.pack(">i", len(body)) + body)
        assert await client.is_closed()
    assert await is_served(served)


async def test_damaged_requests_never_harm_others(served: Served) -> None:
    frame = request_bytes(produce_request("orders", (0, a_batch(b"x"))), 9)
    for position in range(12, 60, 3):
        client = await served.client()
        damaged = bytearray(frame)
        damaged[position] ^= 0xFF
        await client.send_raw(bytes(damaged))
        client.writer.write_eof()
        await client.reader.read()
        await client.close()
    assert await is_served(served)


async def test_a_header_that_is_cut_off_closes_the_connection(client: Client) -> None:
    await client.send_raw(struct.pack(">i", 3) + b"\0\x12\0")
    assert await client.is_closed()


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 99), (1, 3), (3, 14), (68, 0), (4, 0), (999, 0), (-1, 0)])
async def test_an_api_or_version_that_is_not_served_closes_the_connection(
    client: Client, served: Served, key: int, version: int
) -> None:
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="x")
    body = encode_bytes(header, 1) + bytes(20)
    await client.send_raw(struct.pack(">i", len(body)) + body)
    assert await client.is_closed()
    assert await is_served(served)


async def test_what_came_before_a_fatal_request_is_answered_and_what_comes_after_is_not(
    client: Client, served: Served
) -> None:
    await create_topic(client, "orders")
    batch = bytes(a_batch(b"x"))
    await client.send(produce_request("orders", (0, batch)), 9)
    await client.send_raw(struct.pack(">i", 2) + b"??" + request_bytes(produce_request("orders", (0, batch)), 9))
    response = await client.receive(ProduceResponse, 9)
    assert response.responses[0].partition_responses[0].base_offset == 0
    assert await client.is_closed()
    log = await served.broker.open_log(TopicPartition("orders", 0))
    assert log.next_offset == 1


async def test_a_client_id_with_control_characters_is_only_a_name(client: Client) -> None:
    await client.send_raw(
        request_bytes(MetadataRequest(topics=[]), 9, 5, client_id="a\nERROR forged\x00\x1b[31m" * 300)
    )
    assert (await client.receive_raw())[:4] == struct.pack(">i", 5)


# --- limits ---------------------------------------------------------------------------------------------------------


async def test_more_requests_than_a_connection_may_have_wait_in_the_socket(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    for _ in range(30):
        await client.send(fetch_request("orders", (0, 0), max_wait_ms=60_000), 12)
    await until(lambda: served.counted("streamhouse_kafka_pauses_total", why="inflight_requests"))
    (connection,) = served.server.connections
    assert "unanswered=5 " in repr(connection)
    other = await served.client()
    await produce(other, "orders", (0, a_batch(b"x")))
    for _ in range(30):
        await client.receive(FetchResponse, 12)


async def test_frames_beyond_the_budget_wait_for_their_turn_and_are_all_served(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    stalled = []
    for _ in range(4):
        sender = await served.client()
        frame = request_bytes(produce_request("orders", (0, a_batch(os.urandom(60_000)))), 9)
        await sender.send_raw(frame[:-1])
        stalled.append((sender, frame))
    waiting = []
    for _ in range(6):
        late = await served.client()
        await late.send_raw(request_bytes(produce_request("orders", (0, a_batch(os.urandom(60_000)))), 9))
        waiting.append(late)
    await until(lambda: served.counted("streamhouse_kafka_pauses_total", why="inflight_bytes") >= 6)
    assert "waiting=6" in repr(served.server)
    for sender, frame in stalled:
        await sender.send_raw(frame[-1:])
    for each in [sender for sender, _ in stalled] + waiting:
        await each.receive_raw()
    log = await served.broker.open_log(TopicPartition("orders", 0))
    assert log.high_watermark == 10
    assert "used=0KiB" in repr(served.server)


async def test_bytes_of_a_client_that_hangs_up_in_the_middle_come_back(served: Served) -> None:
    for _ in range(5):
        client = await served.client()
        await client.send_raw(struct.pack(">i", LIMIT_BYTES) + b"x" * 1000)
        await until(lambda: "used=1KiB" in repr(served.server))
        await client.close()
        await until(lambda: "used=0KiB" in repr(served.server))


def large_frame(size_bytes: int = 60_000) -> bytes:
    return request_bytes(produce_request("orders", (0, a_batch(os.urandom(size_bytes)))), 9)


async def fill_room(served: Served) -> list[tuple[Client, bytes]]:
    """Four clients of whose requests only the last byte is missing take all the room for large ones."""
    holders = []
    for _ in range(4):
        holder, frame = await served.client(), large_frame()
        await holder.send_raw(frame[:-1])
        holders.append((holder, frame))
    await until(lambda: served.server._state.inflight.used_bytes >= 4 * 60_000)
    return holders


async def test_a_waiting_client_that_hangs_up_lets_the_next_one_in(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    holders = await fill_room(served)
    gone, patient = await served.client(), await served.client()
    await gone.send_raw(large_frame())
    await until(lambda: "waiting=1" in repr(served.server))
    await patient.send_raw(large_frame())
    await until(lambda: "waiting=2" in repr(served.server))
    gone.writer.transport.abort()
    await holders[0][0].close()
    await patient.receive_raw()


async def test_what_is_announced_and_does_not_come_holds_nobody_up(tmp_path: Path) -> None:
    settings = quick_settings(KafkaSettings())
    async with a_broker(tmp_path, settings) as broker, a_server(broker, settings) as served:
        await create_topic(await served.client(), "orders")
        for _ in range(20):
            liar = await served.client()
            await liar.send_raw(struct.pack(">i", 100 * 1024 * 1024) + b"x")
        await until(lambda: repr(served.server).count("connections=21"))
        witness = await served.client()
        await witness.call(MetadataRequest(topics=[]), MetadataResponse, 9)
        for _ in range(3):
            await produce(witness, "orders", (0, a_batch(os.urandom(1_000_000))))
        assert "waiting=0" in repr(served.server)
        assert served.server._state.inflight.used_bytes < 1_000_000


async def test_small_requests_are_answered_while_large_ones_wait_for_room(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    await fill_room(served)
    waiting = await served.client()
    await waiting.send_raw(large_frame())
    await until(lambda: "waiting=1" in repr(served.server))
    for _ in range(10):
        assert await is_served(served)
    assert "waiting=1" in repr(served.server)


async def test_requests_that_are_all_half_there_do_not_wait_for_each_other(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    senders = [(await served.client(), large_frame()) for _ in range(10)]
    for sender, frame in senders:
        await sender.send_raw(frame[:30_000])
    await until(lambda: "waiting=6" in repr(served.server))
    for sender, frame in senders:
        await sender.send_raw(frame[30_000:])
    for sender, _ in senders:
        await sender.receive_raw()
    log = await served.broker.open_log(TopicPartition("orders", 0))
    assert log.high_watermark == 10
    assert "used=0KiB" in repr(served.server)


async def test_a_frame_full_of_refused_batches_counts_as_long_as_its_good_one_is_in_memory(
    client: Client, served: Served
) -> None:
    await create_topic(client, "orders", partitions=2)
    refused = bytearray(a_batch(os.urandom(50_000)))
    refused[-1] ^= 1
    good, bad = await produce(client, "orders", (0, a_batch(b"x")), (1, refused))
    assert (good.error_code, bad.error_code) == (0, 2)
    assert "used=49KiB" in repr(served.server)
    await produce(client, "orders", (0, a_batch(os.urandom(50_000))))
    assert "used=49KiB" in repr(served.server)


async def test_connections_beyond_the_limit_are_closed_and_make_room_when_others_go(served: Served) -> None:
    clients = [await served.client() for _ in range(20)]
    for client in clients:
        await client.call(MetadataRequest(topics=[]), MetadataResponse, 9)
    assert await (await served.client()).is_closed()
    await clients[0].close()
    await until(lambda: len(served.server.connections) == 19)
    assert await is_served(served)
    assert served.counted("streamhouse_kafka_closed_total", why="connections") == 1


async def test_the_limit_of_connections_can_change_while_some_are_open(served: Served) -> None:
    clients = [await served.client() for _ in range(2)]
    await until(lambda: len(served.server.connections) == 2)
    await served.broker.topic_admin.alter_agent(None, lambda _: {"max.connections": "2"})
    assert await (await served.client()).is_closed()
    await served.broker.topic_admin.alter_agent(None, lambda _: {"max.connections": "3"})
    assert await is_served(served)
    for client in clients:
        await client.close()


async def test_a_client_that_does_not_read_stops_being_read_and_holds_one_response(served: Served) -> None:
    client = await served.client()
    await create_topic(client, "orders")
    for _ in range(20):
        await produce(client, "orders", (0, a_batch(os.urandom(50_000))))
    slow = await served.client()
    slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(50):
        await slow.send(fetch_request("orders", (0, 0)), 12)
    await until(lambda: served.counted("streamhouse_kafka_pauses_total", why="slow_reader"))
    sent = served.counted("streamhouse_kafka_sent_bytes_total")
    assert await is_served(served)
    assert served.counted("streamhouse_kafka_sent_bytes_total") < sent + 1_000_000
    slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
    for _ in range(50):
        await slow.receive(FetchResponse, 12)


async def test_nothing_is_read_for_a_client_that_does_not_take_what_it_has(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await served.client()
    await create_topic(client, "orders")
    for _ in range(20):
        await produce(client, "orders", (0, a_batch(os.urandom(50_000))))
    reads = 0
    fetch = served.broker.fetch

    async def counted(*args: Any, **named: Any) -> Any:
        nonlocal reads
        reads += 1
        return await fetch(*args, **named)

    monkeypatch.setattr(served.broker, "fetch", counted)
    slow = await served.client()
    slow.shrink_receive_buffer()
    slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await slow.send_raw(b"".join(request_bytes(fetch_request("orders", (0, 0)), 12, number) for number in range(1, 21)))
    await until(lambda: served.counted("streamhouse_kafka_pauses_total", why="slow_reader"))
    before = reads
    for _ in range(3):
        assert await is_served(served)
    # A megabyte each: what the socket takes, the write buffer, and the response that waits for it.
    assert reads == before < 4 + KafkaSettings().write_buffer_bytes // 1_000_000 + 1


async def test_a_long_poll_ends_with_its_client_and_its_bytes_come_back(served: Served) -> None:
    client = await served.client()
    await create_topic(client, "orders")
    poller = await served.client()
    for _ in range(3):
        await poller.send(fetch_request("orders", (0, 0), max_wait_ms=500_000), 12)
    log = await served.broker.open_log(TopicPartition("orders", 0))
    await until(lambda: len(log._watchers) == 1)
    await until(lambda: served.server._state.inflight.used_bytes > 0)
    await poller.close()
    await until(lambda: not log._watchers)
    assert served.server._state.inflight.used_bytes == 0
    assert len(served.server._state.rejections) == 0


async def test_refusals_of_a_client_are_forgotten_with_its_connection(served: Served) -> None:
    client = await served.client()
    requests = [MetadataRequestTopic(name="not-there")]
    await client.call(MetadataRequest(topics=requests, allow_auto_topic_creation=False), MetadataResponse, 9)
    assert len(served.server._state.rejections) == 1
    await client.close()
    await until(lambda: not served.server.connections)
    assert len(served.server._state.rejections) == 0


# --- patience -------------------------------------------------------------------------------------------------------


class Nobody:
    def granted(self, size_bytes: int) -> None:
        raise AssertionError("asked for nothing more")


class PatientClock(ManualClock):
    """Time that only the test moves: whoever sleeps, sleeps until the end of the test."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.get_running_loop().create_future()


@pytest.fixture
async def timed(tmp_path: Path, settings: Settings) -> AsyncIterator[tuple[Served, PatientClock]]:
    clock = PatientClock()
    async with a_broker(tmp_path, settings) as broker, a_server(broker, settings, clock) as served:
        yield served, clock


async def test_an_idle_connection_is_closed_and_an_active_one_is_not(timed: tuple[Served, PatientClock]) -> None:
    served, clock = timed
    idle, active = await served.client(), await served.client()
    await idle.call(MetadataRequest(topics=[]), MetadataResponse, 9)
    await active.call(MetadataRequest(topics=[]), MetadataResponse, 9)
    clock.advance(ms=599_000)
    await active.call(MetadataRequest(topics=[]), MetadataResponse, 9)
    served.server.close_overdue()
    clock.advance(ms=1_000)
    served.server.close_overdue()
    assert await idle.is_closed()
    await active.call(MetadataRequest(topics=[]), MetadataResponse, 9)


@pytest.mark.parametrize(("bytes_a_second", "lasts_s"), [(1, 10), (1024, 60)])
async def test_a_request_that_trickles_in_for_too_long_is_cut_off(
    timed: tuple[Served, PatientClock], bytes_a_second: int, lasts_s: int
) -> None:
    served, clock = timed
    client = await served.client()
    await client.send_raw(struct.pack(">i", LIMIT_BYTES) + b"x")
    for second in range(1, lasts_s):
        await client.send_raw(b"x" * bytes_a_second)
        came = f"filled={1 + second * bytes_a_second} of={LIMIT_BYTES}"
        await until(lambda came=came: came in repr(next(iter(served.server.connections), None)))  # type: ignore[misc]
        clock.advance(ms=1_000)
        served.server.close_overdue()
    assert len(served.server.connections) == 1
    clock.advance(ms=1_000)
    served.server.close_overdue()
    assert await client.is_closed()
    assert served.counted("streamhouse_kafka_closed_total", why="slow_sender") == 1
    await until(lambda: "used=0KiB" in repr(served.server))


async def test_a_request_that_stalls_is_cut_off_soon_if_others_wait_for_its_room(
    timed: tuple[Served, PatientClock],
) -> None:
    served, clock = timed
    await create_topic(await served.client(), "orders")
    holders = await fill_room(served)
    served.server.close_overdue()
    clock.advance(ms=5_000)
    served.server.close_overdue()
    assert len(served.server.connections) == 5, "nobody waits"
    patient = await served.client()
    await patient.send_raw(large_frame())
    await until(lambda: "waiting=1" in repr(served.server))
    served.server.close_overdue()
    for holder, _ in holders:
        assert await holder.is_closed()
    await patient.receive_raw()


async def test_a_client_whose_first_request_is_held_back_is_not_closed_for_its_silence(
    timed: tuple[Served, PatientClock],
) -> None:
    served, clock = timed
    await create_topic(await served.client(), "orders")
    inflight = served.server._state.inflight
    assert inflight.reserve(240 * 1024, Nobody())
    patient = await served.client()
    await patient.send_raw(large_frame())
    await until(lambda: "waiting=1" in repr(served.server))
    clock.advance(ms=9_000_000)
    served.server.close_overdue()
    inflight.release(240 * 1024)
    served.server.close_overdue()
    await patient.receive_raw()


async def test_a_client_that_waits_for_its_response_is_not_idle(timed: tuple[Served, PatientClock]) -> None:
    served, clock = timed
    other, waiting = await served.client(), await served.client()
    await create_topic(other, "orders")
    await waiting.send(fetch_request("orders", (0, 0), max_wait_ms=300_000), 12)
    await until(lambda: any(connection._unanswered for connection in served.server.connections))
    clock.advance(ms=9_000_000)
    served.server.close_overdue()
    await produce(await served.client(), "orders", (0, a_batch(b"a")))
    response = await waiting.receive(FetchResponse, 12)
    assert len(batches_of(response.responses[0].partitions[0])) == 1


async def test_a_client_has_its_whole_time_from_when_it_is_let_on(timed: tuple[Served, PatientClock]) -> None:
    """Also for the rest of a request that was held back."""
    served, clock = timed
    await create_topic(await served.client(), "orders")
    inflight = served.server._state.inflight
    assert inflight.reserve(240 * 1024, Nobody())
    patient = await served.client()
    frame = large_frame()
    await patient.send_raw(frame[:30_000])
    await until(lambda: "waiting=1" in repr(served.server))
    clock.advance(ms=9_000_000)
    inflight.release(240 * 1024)
    clock.advance(ms=5_000)
    served.server.close_overdue()
    await patient.send_raw(frame[30_000:])
    await patient.receive_raw()


async def test_a_connection_that_waits_for_its_turn_is_not_closed_for_its_silence(
    timed: tuple[Served, PatientClock],
) -> None:
    served, clock = timed
    await served.client()
    await until(lambda: len(served.server.connections) == 1)
    [connection] = served.server.connections
    connection._waits_for_admission = True
    clock.advance(ms=60_000)
    served.server.close_overdue()
    assert served.counted("streamhouse_kafka_closed_total", why="silent") == 0
    connection._on_admitted()
    clock.advance(ms=9_000)
    served.server.close_overdue()
    assert served.counted("streamhouse_kafka_closed_total", why="silent") == 0
    clock.advance(ms=1_000)
    served.server.close_overdue()
    await until(lambda: not served.server.connections)


async def test_a_connection_that_never_asks_is_closed_sooner_than_an_idle_one(
    timed: tuple[Served, PatientClock],
) -> None:
    served, clock = timed
    silent, active = await served.client(), await served.client()
    await active.call(MetadataRequest(topics=[]), MetadataResponse, 9)
    clock.advance(ms=9_999)
    served.server.close_overdue()
    assert len(served.server.connections) == 2
    clock.advance(ms=1)
    served.server.close_overdue()
    assert await silent.is_closed()
    await active.call(MetadataRequest(topics=[]), MetadataResponse, 9)
    assert served.counted("streamhouse_kafka_closed_total", why="silent") == 1


async def test_a_client_that_never_takes_its_answers_is_cut_off(timed: tuple[Served, PatientClock]) -> None:
    served, clock = timed
    client = await served.client()
    await create_topic(client, "orders")
    for _ in range(20):
        await produce(client, "orders", (0, a_batch(os.urandom(50_000))))
    client.shrink_receive_buffer()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(20):
        await client.send(fetch_request("orders", (0, 0)), 12)
    await until(lambda: served.counted("streamhouse_kafka_pauses_total", why="slow_reader"))
    served.server.close_overdue()
    clock.advance(ms=60_000)
    served.server.close_overdue()
    await until(lambda: not served.server.connections)
    assert served.counted("streamhouse_kafka_closed_total", why="slow_reader") == 1


async def test_idle_connections_need_no_tasks(tmp_path: Path) -> None:
    settings = quick_settings(KafkaSettings())
    async with a_broker(tmp_path, settings) as broker, a_server(broker, settings) as served:
        clients = [await served.client() for _ in range(300)]
        for client in clients:
            await client.call(MetadataRequest(topics=[]), MetadataResponse, 9)
        await until(lambda: len(served.server.connections) == 300)
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert sorted(name for name in names if name.startswith("kafka")) == WATCHES


# --- stopping -------------------------------------------------------------------------------------------------------


async def test_a_stop_answers_what_was_produced_and_cuts_long_polls_short(broker: Broker, settings: Settings) -> None:
    async with a_server(broker, settings) as served:
        producer, consumer, idle = [await served.client() for _ in range(3)]
        await create_topic(producer, "orders")
        await consumer.send(fetch_request("orders", (0, 5)), 12)
        await consumer.receive(FetchResponse, 12)
        await consumer.send(fetch_request("orders", (0, 0), max_wait_ms=60_000, min_bytes=1 << 20), 12)
        for _ in range(5):
            await producer.send(produce_request("orders", (0, a_batch(b"x"))), 9)
        log = await broker.open_log(TopicPartition("orders", 0))
        await until(lambda: log.next_offset == 5)
        await served.server.stop()
        for n in range(5):
            response = await producer.receive(ProduceResponse, 9)
            assert response.responses[0].partition_responses[0].base_offset == n
        assert await producer.is_closed()
        assert await consumer.is_closed()
        assert await idle.is_closed()
        with pytest.raises(ConnectionRefusedError):
            await Client.connect(served.host, served.port)


async def test_stopping_twice_is_stopping_once(served: Served) -> None:
    await served.server.stop()
    await served.server.stop()


async def test_times_bytes_and_connections_are_counted(client: Client, served: Served) -> None:
    await client.call(ApiVersionsRequest(client_software_name="a", client_software_version="1"), ApiVersionsResponse, 3)
    assert served.counted("streamhouse_kafka_connections") == 1
    assert served.counted("streamhouse_kafka_request_seconds_count", api="ApiVersions") == 1
    assert served.counted("streamhouse_kafka_received_bytes_total") > 10
    assert served.counted("streamhouse_kafka_sent_bytes_total") > 50
