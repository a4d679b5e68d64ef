"""Small batches that become large: over Kafka, HTTP and gRPC they are opened off the event loop, in bounded memory, and
other clients aren't affected."""

import asyncio
import threading
import time
from pathlib import Path

import grpc
import httpx
import pytest

from streamhouse.agent import Agent
from streamhouse.format.batch import Buffer
from streamhouse.format.compression import Codec
from streamhouse.format.decompression import decompress
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.format.hostile import MANY_HEADERS, MANY_RECORDS, ONE_VALUE, hostile_batch
from tests.support.agent import LiveAgent
from tests.wire.grpc.conftest import Connect, StartAgent
from tests.wire.grpc.talk import Client as GrpcClient
from tests.wire.grpc.talk import Refused
from tests.wire.kafka.talk import Client, a_batch, create_topic, produce
from tests.wire.kafka.test_list_offsets import ask

MIB = 1 << 20
COMPRESSING = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
BATCHES = {"content-type": "application/vnd.streamhouse.batches"}
FAR_AHEAD_MS = 2**45


async def publish_over_http(http: httpx.AsyncClient, topic: str, batch: Buffer) -> httpx.Response:
    path = f"/v1/topics/{topic}/partitions/0/batches"
    return await http.post(path, content=bytes(batch), headers=BATCHES, timeout=60)


async def publish_over_grpc(client: GrpcClient, topic: str, batch: Buffer) -> str:
    """The name of what went wrong, or nothing."""
    request = pb.ProduceBatchesRequest(topic=topic, partition=0, batches=[bytes(batch)])
    try:
        response = await client(request, pb.ProduceBatchesResponse, timeout=60)
    except Refused as error:
        return error.text
    return "" if list(response.base_offsets) != [-1] else "failed"


def kafka_of(address: object) -> tuple[str, int]:
    host, port = str(address).rsplit(":", 1)
    return host, int(port)


async def test_nothing_compressed_is_opened_on_the_event_loop(
    start_agent: StartAgent, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent: Agent = await start_agent()
    loop_thread, opened, on_loop = threading.get_ident(), 0, 0

    def watched(codec: int, data: Buffer, *, limit_bytes: int) -> Buffer:
        nonlocal opened, on_loop
        opened, on_loop = opened + 1, on_loop + (threading.get_ident() == loop_thread)
        return decompress(codec, data, limit_bytes=limit_bytes)

    monkeypatch.setattr("streamhouse.format.records.decompress", watched)
    kafka, by_grpc = await Client.connect(*kafka_of(agent.ready.kafka)), await connect(agent)
    await create_topic(kafka, "orders", partitions=2)
    async with httpx.AsyncClient(base_url=f"http://{agent.ready.http}", trust_env=False) as http:
        for codec in COMPRESSING:
            small = a_batch(b"a", b"b", codec=codec)
            responses = await produce(kafka, "orders", (0, small), (1, small))
            assert [response.error_code for response in responses] == [ErrorCode.NONE] * 2
            assert (await publish_over_http(http, "orders", a_batch(b"c", codec=codec))).status_code == 200
            assert await publish_over_grpc(by_grpc, "orders", a_batch(b"d", codec=codec)) == ""
        assert opened >= 4 * len(COMPRESSING)
        opened = 0
        (result,) = await ask(kafka, 1_001)
        assert result.offset == 1
        page = await http.get("/v1/topics/orders/partitions/0/records", params={"limit": 100})
        assert len(page.json()["records"]) == 4 * len(COMPRESSING)
        assert len(await by_grpc.values("orders")) == 6 * len(COMPRESSING)
        stream = by_grpc.stream("Consume", pb.ConsumeResponse)
        await stream.send(pb.ConsumeRequest(subscribe=[pb.Position(topic="orders", edge=pb.EDGE_EARLIEST)]))
        assert (await stream.next()).partitions[0].records
        stream.call.cancel()
        assert opened >= 4
    await kafka.close()
    assert on_loop == 0


class Witness:
    """A client that has nothing to do with it: how long it waits for heartbeats and small batches."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.longest_s = 0.0
        self.rounds = 0

    async def run(self) -> None:
        beat = HeartbeatRequest(group_id="nobody", generation_id=1, member_id="nobody")
        while True:
            started = time.monotonic()
            await self._client.call(beat, HeartbeatResponse, 4)
            (response,) = await produce(self._client, "quiet", (0, a_batch(b"x" * 100, codec=Codec.LZ4)))
            assert response.error_code == ErrorCode.NONE
            self.longest_s = max(self.longest_s, time.monotonic() - started)
            self.rounds += 1
            await asyncio.sleep(0.01)


def memory_mib(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith(field))


def hostile_batches() -> list[bytearray]:
    """As large as the agent opens them, and as small as they are sent; snappy makes 21 bytes of one at most."""
    expanding = [
        hostile_batch(codec, kind, size_bytes=31 * MIB, timestamp_ms=FAR_AHEAD_MS)
        for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD)
        for kind in (MANY_HEADERS, ONE_VALUE)
    ]
    snappy = [
        hostile_batch(Codec.SNAPPY, kind, size_bytes=12 * MIB, timestamp_ms=FAR_AHEAD_MS)
        for kind in (MANY_HEADERS, ONE_VALUE)
    ]
    return expanding + snappy + [hostile_batch(Codec.ZSTD, MANY_RECORDS, size_bytes=2 * MIB, timestamp_ms=FAR_AHEAD_MS)]


async def test_others_are_not_disturbed_by_batches_that_expand(tmp_path: Path) -> None:
    limits = ("producers.max_decompressed_bytes=33554432", "decoder.memory_bytes=67108864")
    flags = [part for limit in limits for part in ("--set", limit)]
    batches = hostile_batches()
    with LiveAgent(tmp_path / "data", *flags, grpc=True) as agent:
        quiet, loud = [await Client.connect(*kafka_of(agent.bootstrap)) for _ in range(2)]
        for topic in ("quiet", "loud"):
            await create_topic(quiet, topic, partitions=2)
        witness = Witness(quiet)
        before_mib = memory_mib(agent.pid, "VmRSS")
        watching = asyncio.create_task(witness.run())
        async with (
            httpx.AsyncClient(base_url=f"http://{agent.http}", trust_env=False) as http,
            grpc.aio.insecure_channel(agent.grpc) as channel,
        ):
            by_grpc = GrpcClient(channel)

            async def over_kafka() -> None:
                for batch in batches:
                    responses = await produce(loud, "loud", (0, bytearray(batch)), (1, bytearray(batch)))
                    assert all(response.error_code != ErrorCode.NONE for response in responses)

            async def over_http() -> None:
                for batch in batches:
                    assert (await publish_over_http(http, "loud", batch)).status_code in (422, 503)

            async def over_grpc() -> None:
                for batch in batches:
                    assert await publish_over_grpc(by_grpc, "loud", batch) != ""

            await asyncio.gather(over_kafka(), over_http(), over_grpc())
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        grown_mib = memory_mib(agent.pid, "VmHWM") - before_mib
        for client in (quiet, loud):
            await client.close()
    assert watching.cancelled()
    assert witness.rounds > 3
    assert witness.longest_s < 5
    assert grown_mib < 250


async def test_stored_batches_that_expand_are_read_in_bounded_memory(tmp_path: Path) -> None:
    stored = hostile_batch(Codec.ZSTD, MANY_RECORDS, size_bytes=3 * MIB)
    with LiveAgent(tmp_path / "data", grpc=True) as agent:
        kafka = await Client.connect(*kafka_of(agent.bootstrap))
        await create_topic(kafka, "orders", partitions=1)
        for _ in range(5):
            (response,) = await produce(kafka, "orders", (0, bytearray(stored)))
            assert response.error_code == ErrorCode.NONE
        before_mib = memory_mib(agent.pid, "VmRSS")
        async with (
            httpx.AsyncClient(base_url=f"http://{agent.http}", trust_env=False, timeout=60) as http,
            grpc.aio.insecure_channel(agent.grpc) as channel,
        ):
            by_grpc = GrpcClient(channel)
            last = pb.Position(topic="orders", offset=900_000)
            page, fetched, times = await asyncio.gather(
                http.get("/v1/topics/orders/partitions/0/records", params={"limit": 10, "offset": 900_000}),
                by_grpc(pb.FetchRequest(positions=[last], max_bytes=MIB), pb.FetchResponse, timeout=60),
                ask(kafka, 0),
            )
        grown_mib = memory_mib(agent.pid, "VmHWM") - before_mib
        await kafka.close()
    assert [record["offset"] for record in page.json()["records"]] == list(range(900_000, 900_010))
    (part,) = fetched.partitions
    assert part.records[0].offset == 900_000
    assert part.next_offset == 900_000 + len(part.records)
    assert 1000 < len(part.records) < 200_000
    assert times[0].offset == 0
    assert grown_mib < 300


async def test_a_stored_value_that_expands_is_not_written_as_json(tmp_path: Path) -> None:
    with LiveAgent(tmp_path / "data") as agent:
        kafka = await Client.connect(*kafka_of(agent.bootstrap))
        await create_topic(kafka, "orders", partitions=1)
        (response,) = await produce(kafka, "orders", (0, hostile_batch(Codec.ZSTD, ONE_VALUE, size_bytes=64 * MIB)))
        assert response.error_code == ErrorCode.NONE
        before_mib = memory_mib(agent.pid, "VmRSS")
        async with httpx.AsyncClient(base_url=f"http://{agent.http}", trust_env=False, timeout=60) as http:
            path = "/v1/topics/orders/partitions/0/records"
            pages = await asyncio.gather(*[http.get(path) for _ in range(4)])
        grown_mib = memory_mib(agent.pid, "VmHWM") - before_mib
        await kafka.close()
    assert {page.status_code for page in pages} == {422}
    assert grown_mib < 300
