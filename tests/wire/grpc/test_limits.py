"""Limits: deadlines, sizes, numbers of calls, pings; and starting and stopping."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from streamhouse.agent import Agent, build_agent
from streamhouse.config import GrpcSettings, load_settings
from streamhouse.errors import Misconfigured, UnknownTopic
from streamhouse.model.needs import LOGGED_IN
from streamhouse.wire.authorization import RequestAccess
from streamhouse.wire.grpc.calls import Call, CallRunner, client_of, host_of
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from streamhouse.wire.grpc.metrics import GrpcMetrics
from streamhouse.wire.grpc.server import options
from tests.contracts.clocks import ManualClock
from tests.wire.grpc.conftest import Connect, StartAgent
from tests.wire.grpc.talk import Client, Refused, stalled
from tests.wire.security import unrestricted

ONE = pb.ProduceRequest(topic="orders", records=[pb.Record(value=b"a")])


async def test_a_clients_deadline_is_kept(agent: Agent, client: Client) -> None:
    with stalled(agent), pytest.raises(Refused) as refused:
        await client(ONE, pb.ProduceResponse, timeout=0.3)
    assert refused.value.code is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_call_without_a_deadline_gets_one(start_agent: StartAgent, connect: Connect) -> None:
    agent = await start_agent(grpc__default_timeout_s="0.3")
    client = await connect(agent)
    with stalled(agent), pytest.raises(Refused, match="DEADLINE_EXCEEDED: no answer in time; timeout_s="):
        await client(ONE, pb.ProduceResponse, timeout=None)


async def test_a_message_of_a_stream_has_a_deadline_and_the_stream_goes_on(
    start_agent: StartAgent, connect: Connect
) -> None:
    agent = await start_agent(grpc__default_timeout_s="0.3")
    client = await connect(agent)
    stream = client.stream("ProduceStream", pb.ProduceStreamResponse)
    with stalled(agent):
        await stream.send(pb.ProduceStreamRequest(produce=ONE))
        late = (await stream.next()).error
    assert (late.name, late.retriable) == ("DeadlineExceeded", True)
    await stream.send(pb.ProduceStreamRequest(produce=ONE))
    assert list((await stream.next()).produced.offsets) == [0]


async def test_a_message_that_is_too_large_is_refused_and_the_next_one_is_taken(
    start_agent: StartAgent, connect: Connect
) -> None:
    client = await connect(await start_agent(grpc__max_message_bytes="10000"))
    with pytest.raises(Refused) as refused:
        await client.produce("orders", b"x" * 20_000)
    assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    await client.produce("orders", b"x" * 5000)
    assert await client.values("orders") == [b"x" * 5000]


async def test_a_message_that_becomes_too_large_when_it_is_opened_is_refused_as_well(
    start_agent: StartAgent,
) -> None:
    agent = await start_agent(grpc__max_message_bytes="100000")
    async with grpc.aio.insecure_channel(str(agent.ready.grpc), compression=grpc.Compression.Gzip) as channel:
        client = Client(channel)
        await client.produce("orders", bytes(50_000))
        with pytest.raises(Refused) as refused:
            await client.produce("orders", bytes(10_000_000))
    assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_no_more_calls_run_at_once_than_allowed(start_agent: StartAgent, connect: Connect) -> None:
    agent = await start_agent(grpc__max_requests="2")
    clients = [await connect(agent, ("grpc.use_local_subchannel_pool", 1)) for _ in range(3)]
    held = [client.stream("Consume", pb.ConsumeResponse) for client in clients[:2]]
    for stream in held:
        await stream.send(pb.ConsumeRequest(subscribe=[pb.Position(topic="a", partition=0, offset=0)]))
        assert (await stream.next()).partitions[0].error.name == "UnknownTopic"
    with pytest.raises(Refused) as refused:
        await clients[2](pb.ListTopicsRequest(), pb.ListTopicsResponse)
    assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    held[0].call.cancel()
    async with asyncio.timeout(10):
        while True:
            try:
                await clients[2](pb.ListTopicsRequest(), pb.ListTopicsResponse)
                break
            except Refused:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "method",
    ["/streamhouse.v1.AdminService/ListTopics", "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"],
)
async def test_a_call_whose_message_never_comes_frees_its_slot(start_agent: StartAgent, method: str) -> None:
    agent = await start_agent(grpc__default_timeout_s="0.2", grpc__max_requests="1")
    async with grpc.aio.insecure_channel(str(agent.ready.grpc)) as channel:
        held = channel.stream_unary(method)(timeout=3600)
        assert await held.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "message did not come" in (await held.details() or "")
        await Client(channel)(pb.ListTopicsRequest(), pb.ListTopicsResponse)


async def test_a_call_without_a_message_is_refused(agent: Agent) -> None:
    async with grpc.aio.insecure_channel(str(agent.ready.grpc)) as channel:
        empty = channel.stream_unary("/streamhouse.v1.AdminService/ListTopics")()
        await empty.done_writing()
        assert await empty.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_connection_that_never_speaks_is_closed(start_agent: StartAgent) -> None:
    agent = await start_agent(grpc__handshake_timeout_s="0.2")
    reader, writer = await asyncio.open_connection(*agent.ready.grpc)  # type: ignore[misc]
    async with asyncio.timeout(20):
        await reader.read()  # the server's settings frame, then the end
    writer.close()


async def test_a_connection_that_speaks_too_slowly_is_closed(start_agent: StartAgent) -> None:
    agent = await start_agent(grpc__handshake_timeout_s="0.2")
    reader, writer = await asyncio.open_connection(*agent.ready.grpc)  # type: ignore[misc]
    writer.write(b"PRI * HTTP/2.0")
    async with asyncio.timeout(20):
        await reader.read()
    writer.close()


class From:
    """A call as grpc shows it, of a client that comes from somewhere else."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self.code: Any = None
        self.details = ""

    def peer(self) -> str:
        return self._peer

    def time_remaining(self) -> float | None:
        return None

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    async def abort(self, code: Any, details: str, metadata: Any) -> None:
        self.code, self.details = code, details
        raise grpc.aio.AbortError(details)


async def one_message() -> AsyncIterator[bytes]:
    yield b""


async def anybody(_: Any) -> RequestAccess:
    return unrestricted()


def some_calls(**settings: Any) -> tuple[CallRunner, ManualClock]:
    clock = ManualClock()
    return CallRunner(GrpcSettings(**settings), GrpcMetrics(CollectorRegistry()), clock, anybody), clock


async def test_one_address_has_its_share_of_calls_at_once_and_others_have_theirs() -> None:
    calls, _ = some_calls(max_requests_per_ip=2)
    released = asyncio.Event()

    async def wait(question: Any, call: Call) -> Any:
        await released.wait()
        return pb.ListTopicsResponse()

    handler = calls.unary("Wait", pb.ListTopicsRequest, wait, LOGGED_IN)

    def call(host: str, port: int) -> asyncio.Task[bytes]:
        return asyncio.create_task(handler.stream_unary(one_message(), From(f"ipv4:{host}:{port}")))

    calls_in_flight = [
        call("10.0.0.7", 1),
        call("10.0.0.7", 2),
        call("10.0.0.8", 3),
        *(call("127.0.0.1", n) for n in range(5)),
    ]
    await asyncio.sleep(0)
    late = From("ipv4:10.0.0.7:4")
    with pytest.raises(grpc.aio.AbortError):
        await handler.stream_unary(one_message(), late)
    assert late.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "grpc.max_requests_per_ip" in late.details
    released.set()
    await asyncio.gather(*calls_in_flight)
    await call("10.0.0.7", 5)


async def test_refusals_of_a_client_that_keeps_calling_are_delayed_longer_and_longer() -> None:
    calls, clock = some_calls(failures_per_s=5, max_failure_delay_s=0.2)

    async def refuse(question: Any, call: Call) -> Any:
        raise UnknownTopic("nowhere")

    handler = calls.unary("Refuse", pb.ListTopicsRequest, refuse, LOGGED_IN)

    async def call(peer: str) -> None:
        clock.advance(ms=1)
        with pytest.raises(grpc.aio.AbortError):
            await handler.stream_unary(one_message(), From(peer))

    for _ in range(5):
        await call("ipv4:10.0.0.7:1")
    assert clock.slept == []
    for _ in range(5):
        await call("ipv4:10.0.0.7:1")
    assert len(clock.slept) == 5
    assert clock.slept == sorted(clock.slept)
    assert clock.slept[-1] == pytest.approx(0.2)
    await call("ipv4:10.0.0.7:2")
    assert len(clock.slept) == 5


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.7:5000", "10.0.0.7"),
        ("ipv6:[::1]:5000", "::1"),
        ("ipv6:%5B::1%5D:5000", "::1"),
        ("ipv6:%5B::ffff:10.0.0.7%5D:5000", "10.0.0.7"),
    ],
)
def test_the_address_of_a_client_is_parsed_from_the_peer_of_grpc(peer: str, host: str) -> None:
    assert host_of(client_of(peer)) == host


def test_every_limit_reaches_grpc() -> None:
    settings = GrpcSettings(
        max_message_bytes=11,
        max_streams=12,
        max_connections=13,
        idle_timeout_s=14,
        keepalive_s=15,
        keepalive_timeout_s=16,
        min_ping_interval_s=17,
        handshake_timeout_s=18,
    )
    given = dict(options(settings))
    assert {11, 12, 13, 14_000, 15_000, 16_000, 17_000, 18_000} <= set(given.values())
    assert given["grpc.so_reuseport"] == 0


async def test_an_address_in_use_is_named_with_the_flag_that_changes_it(tmp_path: Path, agent: Agent) -> None:
    taken = str(agent.ready.grpc)
    listen = {"kafka.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0", "grpc.listen": taken}
    settings = load_settings({"agent.data": str(tmp_path / "other"), **listen}, {})
    with pytest.raises(Misconfigured, match=f"can't listen on {taken}: .*; choose another address with --grpc"):
        async with build_agent(settings):
            raise AssertionError("it started")


async def test_an_agent_without_grpc_reports_none_and_never_imports_it(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from streamhouse.agent import Agent, build_agent
from streamhouse.config import load_settings
listen = {"kafka.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0", "grpc.listen": ""}

async def main():
    async with build_agent(load_settings({"agent.data": sys.argv[1], **listen}, {})) as agent:
        print(agent.ready.grpc, "grpc" in sys.modules)

asyncio.run(main())
"""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "None False\n", done.stderr


async def test_a_stop_does_not_wait_for_clients_that_stay(start_agent: StartAgent, connect: Connect) -> None:
    """Streams, calls that wait, and connections that just stay."""
    agent = await start_agent()
    client = await connect(agent)
    await client.create("orders")
    stream = client.stream("Consume", pb.ConsumeResponse)
    await stream.send(pb.ConsumeRequest(subscribe=[pb.Position(topic="orders", edge=pb.EDGE_EARLIEST)]))
    await client.produce("orders", b"a")
    await stream.next()
    position = pb.Position(topic="orders", partition=0, offset=1)
    waiting = asyncio.create_task(
        client(pb.FetchRequest(positions=[position], max_wait_ms=60_000), pb.FetchResponse, timeout=60)
    )
    agent.stop()
    with pytest.raises(Refused, match="UNAVAILABLE"):
        await stream.rest()
    async with asyncio.timeout(20):
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_client_that_calls_too_often_is_rejected_with_the_time_to_retry(
    start_agent: StartAgent, connect: Connect
) -> None:
    client = await connect(await start_agent(grpc__calls_per_s="0.1"))
    await client(pb.ListTopicsRequest(), pb.ListTopicsResponse)
    with pytest.raises(Refused, match="too many in a second") as refused:
        await client(pb.ListTopicsRequest(), pb.ListTopicsResponse)
    assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused.value.metadata["streamhouse-error"] == "TooFast"
    assert int(refused.value.metadata["retry-after-ms"]) > 0


async def test_messages_of_a_stream_that_come_too_fast_wait_for_their_turn(
    start_agent: StartAgent, connect: Connect
) -> None:
    client = await connect(await start_agent(grpc__calls_per_s="5"))
    stream = client.stream("ProduceStream", pb.ProduceStreamResponse)
    one = pb.ProduceRequest(topic="orders", records=[pb.Record(value=b"x")])
    for _ in range(8):  # three more than a second's worth
        await stream.send(pb.ProduceStreamRequest(produce=one))
    responses = [await stream.next() for _ in range(8)]
    assert [list(response.produced.offsets) for response in responses] == [[offset] for offset in range(8)]
