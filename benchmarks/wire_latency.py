"""How long until a record is acknowledged, and until its reader has it, over HTTP, gRPC and Kafka's protocol?

    .venv/bin/python -m benchmarks.wire_latency [--seconds S] [--repeat N] [--json]

One agent (embedded stores, fsync never), a new topic of one partition for each wire, records of 100 B, one after the
other: the next is sent when the reader has the one before. Readers tail: server-sent events over HTTP, a Consume stream
over gRPC, long polls of aiokafka over Kafka's protocol (its producer, too, without linger). The client runs in this
process, so its own time is in the figures: compare the rows, and runs of one machine.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import grpc
import httpx
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from benchmarks.batches import values
from benchmarks.measure import topic
from benchmarks.peer import HOST
from benchmarks.streamhouse_peer import StreamHousePeer
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb

RECORD_BYTES: Final = 100
WARM_UP: Final = 20
SERVICE: Final = "/streamhouse.v1.RecordsService"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    wire: str
    ack_p50_ms: float
    ack_p99_ms: float
    read_p50_ms: float
    read_p99_ms: float


@dataclass(frozen=True, slots=True)
class Lane:
    """`send` returns when the record is acknowledged, `read` when the reader has the next one."""

    send: Callable[[], Awaitable[object]]
    read: Callable[[], Awaitable[object]]


@asynccontextmanager
async def over_http(peer: StreamHousePeer, name: str, value: bytes) -> AsyncIterator[Lane]:
    path, headers = f"/v1/topics/{name}/records", {"content-type": "text/plain"}
    async with httpx.AsyncClient(base_url=f"http://{HOST}:{peer.http_port}", timeout=30) as client:
        tail = client.stream("GET", path, params={"from": "earliest"}, headers={"accept": "text/event-stream"})
        async with tail as response:
            lines = response.aiter_lines()

            async def read() -> None:
                async for line in lines:
                    if line.startswith("data:"):
                        return

            yield Lane(lambda: client.post(path, content=value, headers=headers), read)


@asynccontextmanager
async def over_grpc(peer: StreamHousePeer, name: str, value: bytes) -> AsyncIterator[Lane]:
    request = pb.ProduceRequest(topic=name, records=[pb.Record(value=value)]).SerializeToString()
    position = pb.Position(topic=name, partition=0, offset=0)
    async with grpc.aio.insecure_channel(peer.grpc) as channel:
        produce: Any = channel.unary_unary(f"{SERVICE}/Produce")
        consume: Any = channel.stream_stream(f"{SERVICE}/Consume")()
        await consume.write(pb.ConsumeRequest(subscribe=[position]).SerializeToString())

        async def read() -> None:
            while not any(each.records for each in pb.ConsumeResponse.FromString(await consume.read()).partitions):
                pass

        yield Lane(lambda: produce(request), read)
        consume.cancel()


@asynccontextmanager
async def over_kafka(peer: StreamHousePeer, name: str, value: bytes) -> AsyncIterator[Lane]:
    async with (
        AIOKafkaProducer(bootstrap_servers=peer.bootstrap, acks="all") as producer,
        AIOKafkaConsumer(name, bootstrap_servers=peer.bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        yield Lane(lambda: producer.send_and_wait(name, value), consumer.getone)


WIRES: Final = {"HTTP": over_http, "gRPC": over_grpc, "Kafka": over_kafka}


async def measured(wire: str, peer: StreamHousePeer, name: str, seconds: float) -> Latency:
    acks: list[float] = []
    reads: list[float] = []
    async with WIRES[wire](peer, name, values(1, RECORD_BYTES)[0]) as lane:
        until = time.perf_counter() + seconds
        while len(acks) < 2 * WARM_UP or time.perf_counter() < until:
            began = time.perf_counter()

            async def sent(began: float = began) -> None:
                await lane.send()
                acks.append(time.perf_counter() - began)

            sending = asyncio.ensure_future(sent())
            await asyncio.wait_for(lane.read(), 30)
            reads.append(time.perf_counter() - began)
            await sending
    return Latency(
        wire=wire,
        ack_p50_ms=_at(acks, 0.5),
        ack_p99_ms=_at(acks, 0.99),
        read_p50_ms=_at(reads, 0.5),
        read_p99_ms=_at(reads, 0.99),
    )


def _at(found: list[float], share: float) -> float:
    ordered = sorted(found[WARM_UP:])
    return ordered[int(len(ordered) * share)] * 1000


def medians(rounds: list[Latency]) -> Latency:
    def median(field: str) -> float:
        return float(statistics.median(getattr(each, field) for each in rounds))

    return Latency(
        wire=rounds[0].wire,
        ack_p50_ms=median("ack_p50_ms"),
        ack_p99_ms=median("ack_p99_ms"),
        read_p50_ms=median("read_p50_ms"),
        read_p99_ms=median("read_p99_ms"),
    )


def run(seconds: float, repeat: int) -> list[Latency]:
    found: dict[str, list[Latency]] = {wire: [] for wire in WIRES}
    with StreamHousePeer(grpc=True) as peer:
        for _ in range(repeat):
            for wire, so_far in found.items():
                with topic(peer, "bench-wires", 1) as name:
                    so_far.append(asyncio.run(measured(wire, peer, name, seconds)))
    return [medians(rounds) for rounds in found.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = run(arguments.seconds, arguments.repeat)
    if arguments.json:
        print(json.dumps([asdict(each) for each in figures]))
        return
    print("| one record after the other | ack p50 ms | ack p99 ms | read p50 ms | read p99 ms |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for each in figures:
        print(
            f"| {each.wire} | {each.ack_p50_ms:.2f} | {each.ack_p99_ms:.2f}"
            f" | {each.read_p50_ms:.2f} | {each.read_p99_ms:.2f} |"
        )


if __name__ == "__main__":
    main()
