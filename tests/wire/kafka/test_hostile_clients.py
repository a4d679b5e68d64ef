"""Clients that connect too often, or ask without end for what they can't have; and those beside them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from streamhouse.config import KafkaSettings
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.fetch import FetchResponse
from streamhouse.wire.kafka.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from streamhouse.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupResponse
from streamhouse.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from streamhouse.wire.kafka.messages.produce import ProduceResponse
from streamhouse.wire.kafka.schema import Request, Response
from tests.contracts.clocks import ManualClock
from tests.wire.kafka.talk import (
    Served,
    a_batch,
    a_broker,
    a_server,
    create_topic,
    fetch_request,
    produce,
    produce_request,
    quick_settings,
    request_bytes,
    until,
)

FREE, MAX_DELAY_S = 5, 0.2
STRICT = KafkaSettings(failures_per_s=FREE, max_failure_delay_s=MAX_DELAY_S)


class PacingClock(ManualClock):
    """Time passes by itself a little with every look, and by as much as is slept: nobody really waits."""

    def monotonic(self) -> float:
        self._monotonic += 1e-6
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds > MAX_DELAY_S:  # what looks after connections now and then
            await asyncio.get_running_loop().create_future()
        await super().sleep(seconds)


@asynccontextmanager
async def serving(folder: Path, kafka: KafkaSettings, clock: PacingClock | None = None) -> AsyncIterator[Served]:
    settings = quick_settings(kafka)
    async with a_broker(folder, settings) as broker, a_server(broker, settings, clock) as served:
        yield served


# --- connections ----------------------------------------------------------------------------------------------------


async def test_one_address_has_its_share_of_connections(tmp_path: Path) -> None:
    limited = KafkaSettings(max_connections_per_ip_overrides="127.0.0.1:3")
    async with serving(tmp_path, limited) as served:
        first, *others = [await served.client() for _ in range(3)]
        for client in (first, *others):
            await client.call(MetadataRequest(topics=[]), MetadataResponse, 9)
        assert await (await served.client()).is_closed()
        assert served.counted("streamhouse_kafka_closed_total", why="connections_per_ip") == 1
        await first.call(MetadataRequest(topics=[]), MetadataResponse, 9)
        await others[0].close()
        await until(lambda: len(served.server.connections) == 2)
        again = await served.client()
        await again.call(MetadataRequest(topics=[]), MetadataResponse, 9)


async def test_clients_on_this_machine_are_not_limited_by_default(tmp_path: Path) -> None:
    strict = KafkaSettings(max_connections_per_ip=1, connections_per_s=1, connections_per_s_per_ip=1)
    async with serving(tmp_path, strict) as served:
        for client in [await served.client() for _ in range(20)]:
            await client.call(MetadataRequest(topics=[]), MetadataResponse, 9)
        assert served.counted("streamhouse_kafka_pauses_total", why="connection_rate") == 0


async def test_a_connection_that_comes_too_soon_is_served_when_its_turn_has_come(tmp_path: Path) -> None:
    limited = KafkaSettings(max_connections_per_ip_overrides="127.0.0.1:100", connections_per_s_per_ip=20)
    async with serving(tmp_path, limited) as served:
        clients = [await served.client() for _ in range(22)]
        for client in clients:
            await client.send(MetadataRequest(topics=[]), 9)
        await until(lambda: served.counted("streamhouse_kafka_pauses_total", why="connection_rate"))
        for client in clients:
            await client.receive(MetadataResponse, 9)


async def test_one_that_waits_for_its_turn_may_go_away(tmp_path: Path) -> None:
    limited = KafkaSettings(max_connections_per_ip_overrides="127.0.0.1:100", connections_per_s_per_ip=1)
    async with serving(tmp_path, limited) as served:
        clients = [await served.client() for _ in range(3)]
        await until(lambda: served.counted("streamhouse_kafka_pauses_total", why="connection_rate") == 2)
        for client in clients:
            client.writer.transport.abort()
        await served.server.stop()
        assert "connections=0" in repr(served.server)


async def test_kafkas_own_names_change_the_limits_while_an_agent_runs(tmp_path: Path) -> None:
    async with serving(tmp_path, KafkaSettings(max_connections_per_ip_overrides="127.0.0.1:2")) as served:
        alter = served.broker.topic_admin.alter_agent
        await alter(None, lambda _: {"max.connections.per.ip": "7", "max.connection.creation.rate": "9"})
        assert served.broker.settings.kafka.max_connections_per_ip == 7
        assert served.broker.settings.kafka.connections_per_s == 9


# --- loops ----------------------------------------------------------------------------------------------------------

LOOPS: dict[str, tuple[Request, type[Response], int]] = {
    "produce to no topic": (produce_request("nowhere", (7, bytes(a_batch(b"x")))), ProduceResponse, 9),
    "fetch out of range": (fetch_request("orders", (0, 10**9)), FetchResponse, 12),
    "metadata of no topic": (
        MetadataRequest(topics=[MetadataRequestTopic(name="nowhere")], allow_auto_topic_creation=False),
        MetadataResponse,
        9,
    ),
    "no such coordinator": (FindCoordinatorRequest(key_type=9, coordinator_keys=["g"]), FindCoordinatorResponse, 4),
    "join without protocol": (
        JoinGroupRequest(group_id="g", session_timeout_ms=10_000, protocol_type="consumer"),
        JoinGroupResponse,
        5,
    ),
}


@pytest.mark.parametrize("loop", LOOPS)
async def test_refusals_of_a_client_that_asks_without_end_are_held_back_longer_and_longer(
    tmp_path: Path, loop: str
) -> None:
    request, kind, version = LOOPS[loop]
    clock = PacingClock()
    async with serving(tmp_path, STRICT, clock) as served:
        client = await served.client()
        await create_topic(client, "orders")
        for _ in range(FREE):
            await client.call(request, kind, version)
        assert clock.slept == []
        for _ in range(10):
            await client.call(request, kind, version)
        assert clock.slept == sorted(clock.slept)
        assert len(clock.slept) >= 9
        assert clock.slept[-1] == pytest.approx(MAX_DELAY_S)
        api = type(request).__name__.removesuffix("Request")
        assert served.counted("streamhouse_kafka_delayed_refusals_total", api=api) == len(clock.slept)


async def test_successes_of_such_a_client_are_not_held_back_nor_is_anybody_else(tmp_path: Path) -> None:
    request, kind, version = LOOPS["fetch out of range"]
    clock = PacingClock()
    async with serving(tmp_path, STRICT, clock) as served:
        client, other = await served.client(), await served.client()
        await create_topic(client, "orders")
        for _ in range(30):
            await client.call(request, kind, version)
        held = len(clock.slept)
        assert held
        for _ in range(30):
            await produce(client, "orders", (0, a_batch(b"x")))
        for _ in range(FREE):
            await other.call(request, kind, version)
        assert len(clock.slept) == held


async def test_what_was_under_way_when_the_first_refusal_came_is_refused_at_once(tmp_path: Path) -> None:
    request, _, version = LOOPS["produce to no topic"]
    clock = PacingClock()
    async with serving(tmp_path, STRICT, clock) as served:
        client = await served.client()
        await client.send_raw(b"".join(request_bytes(request, version, n + 1) for n in range(60)))
        for _ in range(60):
            await client.receive_raw()
        assert clock.slept == []


async def test_a_refusal_that_is_held_back_holds_no_memory(tmp_path: Path) -> None:
    large = produce_request("nowhere", (7, bytes(a_batch(bytes(100_000)))))
    clock = BlockingClock()
    async with serving(tmp_path, STRICT, clock) as served:
        client = await served.client()
        for _ in range(FREE):
            await client.call(large, ProduceResponse, 9)
        await client.send(large, 9)
        await until(lambda: served.counted("streamhouse_kafka_delayed_refusals_total", api="Produce"))
        assert "used=0KiB" in repr(served.server)
        clock.go_on.set()
        response = await client.receive(ProduceResponse, 9)
        code = response.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "used=0KiB" in repr(served.server)


class BlockingClock(PacingClock):
    """Whoever is held back, is until the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds <= MAX_DELAY_S:
            await self.go_on.wait()
        await super().sleep(seconds)


async def test_a_client_that_is_held_back_may_go_away(tmp_path: Path) -> None:
    request, kind, version = LOOPS["fetch out of range"]
    clock = BlockingClock()
    async with serving(tmp_path, STRICT, clock) as served:
        client, other = await served.client(), await served.client()
        await create_topic(other, "orders")
        for _ in range(FREE):
            await client.call(request, kind, version)
        await client.send(request, version)
        await until(lambda: served.counted("streamhouse_kafka_delayed_refusals_total", api="Fetch"))
        client.writer.transport.abort()
        await until(lambda: len(served.server.connections) == 1)
        await produce(other, "orders", (0, a_batch(b"x")))
        clock.go_on.set()


async def test_a_flood_of_requests_in_one_piece_leaves_turns_for_others(tmp_path: Path) -> None:
    """Between two answers to the client that floods, others are answered as well: nobody waits for the whole flood."""
    flood_of = 1500
    async with serving(tmp_path, KafkaSettings()) as served:
        flood, other = await served.client(), await served.client()
        await other.call(MetadataRequest(topics=[]), MetadataResponse, 9)
        sent = b"".join(request_bytes(MetadataRequest(topics=[]), 9, n) for n in range(flood_of))
        seen = answered(served)
        flood.writer.write(sent)
        await until(lambda: answered(served) > seen)
        await other.call(MetadataRequest(topics=[]), MetadataResponse, 9)
        assert answered(served) < seen + flood_of
        for _ in range(flood_of):
            await flood.receive_raw()


def answered(served: Served) -> float:
    return served.counted("streamhouse_kafka_request_seconds_count", api="Metadata")
