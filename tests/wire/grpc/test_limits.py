"""Limits: deadlines, sizes, numbers of calls, pings; and starting and stopping."""

import asyncio
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from streamhouse.agent import Agent, build_agent
from streamhouse.config import GrpcSettings, load_settings
from streamhouse.errors import Misconfigured
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from streamhouse.wire.grpc.server import options
from tests.wire.grpc.conftest import Connect, StartAgent
from tests.wire.grpc.talk import Client, Refused, stalled

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


def test_every_limit_reaches_grpc() -> None:
    settings = GrpcSettings(
        max_message_bytes=11,
        max_streams=12,
        max_connections=13,
        idle_timeout_s=14,
        keepalive_s=15,
        keepalive_timeout_s=16,
        min_ping_interval_s=17,
    )
    given = dict(options(settings))
    assert {11, 12, 13, 14_000, 15_000, 16_000, 17_000} <= set(given.values())
    assert given["grpc.so_reuseport"] == 0


async def test_an_address_in_use_is_named_with_the_flag_that_changes_it(tmp_path: Path, agent: Agent) -> None:
    taken = str(agent.ready.grpc)
    listen = {"kafka.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0", "grpc.listen": taken}
    settings = load_settings({"agent.data": str(tmp_path / "other"), **listen}, {})
    with pytest.raises(Misconfigured, match=f"can't listen on {taken}: .*; choose another address with --grpc"):
        async with build_agent(settings):
            raise AssertionError("it started")


async def test_an_agent_without_grpc_says_so_and_never_imports_it(tmp_path: Path) -> None:
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


async def test_a_client_that_calls_too_often_is_refused_and_told_when_to_come_again(
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
    answers = [await stream.next() for _ in range(8)]
    assert [list(answer.produced.offsets) for answer in answers] == [[offset] for offset in range(8)]
