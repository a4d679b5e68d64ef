"""Slow readers: clients that take nothing of their answers share a limit of memory, and disturb nobody else."""

import os

import pytest
from msgspec.structs import replace

from streamhouse.config import FetchSettings, KafkaSettings, Settings
from streamhouse.wire.kafka.messages.fetch import FetchResponse
from tests.wire.kafka.talk import (
    Served,
    a_batch,
    batches_of,
    create_topic,
    fetch,
    fetch_request,
    produce,
    quick_settings,
    until,
)

MIB = 1024 * 1024
BATCHES = 24
SLOW = 12
LIMIT_BYTES = 32 * MIB
SOCKETS_BYTES = 4 * MIB
"""What the two ends of a connection take on the way, at most: memory of the system, not of the agent."""


@pytest.fixture
def settings() -> Settings:
    quick = quick_settings(KafkaSettings(write_buffer_bytes=64 * 1024))
    return replace(quick, fetch=FetchSettings(answers_bytes=LIMIT_BYTES))


async def test_responses_that_nobody_takes_have_a_limit_together(served: Served) -> None:
    producer = await served.client()
    await create_topic(producer, "orders")
    value = os.urandom(MIB - 200)
    for _ in range(BATCHES):
        await produce(producer, "orders", (0, a_batch(value)))
    everything = fetch_request("orders", (0, 0), max_bytes=1 << 30, partition_max_bytes=1 << 30)
    responses = served.broker.reader.response_budget

    slow = [await served.client() for _ in range(SLOW)]
    for each in slow:
        each.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await each.send(everything, 12)
    await until(lambda: served.counted("streamhouse_kafka_request_seconds_count", api="Fetch") == SLOW)
    assert 0 < responses.held_bytes <= LIMIT_BYTES
    assert served.counted("streamhouse_kafka_sent_bytes_total") < LIMIT_BYTES + SLOW * SOCKETS_BYTES

    quick, offset = await served.client(), 0
    while offset < BATCHES:
        (part,) = await fetch(quick, fetch_request("orders", (0, offset), max_wait_ms=20_000, min_bytes=1))
        offset += len(batches_of(part))
    for each in slow:
        each.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await each.receive(FetchResponse, 12)
    await until(lambda: responses.held_bytes == 0)


async def test_a_slow_reader_that_hangs_up_holds_nothing(served: Served) -> None:
    producer = await served.client()
    await create_topic(producer, "orders")
    for _ in range(BATCHES):
        await produce(producer, "orders", (0, a_batch(os.urandom(MIB - 200))))
    slow = await served.client()
    slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await slow.send(fetch_request("orders", (0, 0), max_bytes=1 << 30, partition_max_bytes=1 << 30), 12)
    await until(lambda: served.broker.reader.response_budget.held_bytes > 0)
    slow.writer.transport.abort()
    await until(lambda: served.broker.reader.response_budget.held_bytes == 0)
