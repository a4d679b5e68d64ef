"""How fast do records go in and out over gRPC, beside Kafka's protocol at the same agent in the same run?

    .venv/bin/python -m benchmarks.grpc_throughput [--seconds S] [--repeat N] [--json]

One agent (embedded stores, fsync never), one partition, records of 100 B, 1,000 of them in a message unless said
otherwise. Messages are serialised before the clock starts, and answers are not opened, so that the client is no
bottleneck: it runs in this process, the agent in another. `CPU` is the agent's, for a million records.

Then what gRPC costs who doesn't use it: the time until an agent answers, its memory, and its CPU while nobody asks.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import grpc

from benchmarks import blaster, process
from benchmarks.batches import batch, values
from benchmarks.blaster import Shot
from benchmarks.measure import topic
from benchmarks.raw_client import produce_frame
from benchmarks.streamhouse_peer import StreamHousePeer
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb

RECORD_BYTES: Final = 100
RECORDS: Final = 1000
LARGE_RECORDS: Final = 8000  # about what librdkafka's default batch.size makes
CHANNELS: Final = 2
IN_FLIGHT: Final = 5
SERVICE: Final = "/streamhouse.v1.RecordsService"
IDLE_S: Final = 30.0
SETTLE_S: Final = 3.0
STARTS: Final = 5
# Each channel has a connection of its own, and takes whatever comes.
OPTIONS: Final = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    work: str
    records_per_s: float
    mb_per_s: float
    cpu_s_per_million: float
    client_cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    agent: str
    start_s: float
    start_cpu_s: float
    memory_mb: float
    idle_cpu_ms_per_s: float


Work = Callable[[Any, float], Awaitable[int]]
"""On one channel, until a time: how many records were moved."""


def measured(peer: StreamHousePeer, name: str, work: Work, *, seconds: float) -> Figure:
    async def run() -> tuple[int, float]:
        channels = [grpc.aio.insecure_channel(peer.grpc, options=OPTIONS) for _ in range(CHANNELS)]
        await asyncio.gather(*(channel.channel_ready() for channel in channels))
        began = time.perf_counter()
        counts = await asyncio.gather(*(work(channel, began + seconds) for channel in channels))
        wall_s = time.perf_counter() - began
        await asyncio.gather(*(channel.close() for channel in channels))
        return sum(counts), wall_s

    cpu_s, client_s = peer.cpu_s(), time.process_time()
    records, wall_s = asyncio.run(run())
    client_s = time.process_time() - client_s
    cpu_s = process.cpu_s_when_quiet(peer.pid, max_wait_s=1.0) - cpu_s
    return figure(name, records=records, wall_s=wall_s, cpu_s=cpu_s, client_s=client_s)


def figure(name: str, *, records: int, wall_s: float, cpu_s: float, client_s: float) -> Figure:
    return Figure(
        work=name,
        records_per_s=records / wall_s,
        mb_per_s=records * RECORD_BYTES / 1e6 / wall_s,
        cpu_s_per_million=cpu_s / records * 1e6,
        client_cores=client_s / wall_s,
    )


# --- producing


def unary(method: str, request: bytes, records: int) -> Work:
    """Calls, several under way on each channel."""

    async def work(channel: Any, until: float) -> int:
        call = channel.unary_unary(f"{SERVICE}/{method}")

        async def one_after_the_other() -> int:
            done = 0
            while time.perf_counter() < until:
                await call(request)
                done += records
            return done

        return sum(await asyncio.gather(*(one_after_the_other() for _ in range(IN_FLIGHT))))

    return work


def streamed(method: str, request: bytes, records: int) -> Work:
    """A stream, as far ahead of its answers as the agent lets it."""

    async def work(channel: Any, until: float) -> int:
        async def requests() -> AsyncIterator[bytes]:
            while time.perf_counter() < until:
                yield request

        return sum([records async for _ in channel.stream_stream(f"{SERVICE}/{method}")(requests())])

    return work


def produce_figures(peer: StreamHousePeer, seconds: float) -> Iterator[Figure]:
    few = batch(record_bytes=RECORD_BYTES, records=RECORDS, codec="none")
    many = batch(record_bytes=RECORD_BYTES, records=LARGE_RECORDS, codec="none")
    with topic(peer, "bench-grpc", 1) as name:
        records = pb.ProduceRequest(topic=name, records=[pb.Record(value=v) for v in values(RECORDS, RECORD_BYTES)])
        small = pb.ProduceBatchesRequest(topic=name, batches=[few.body])
        large = pb.ProduceBatchesRequest(topic=name, batches=[many.body])
        yield measured(peer, "Produce", unary("Produce", records.SerializeToString(), RECORDS), seconds=seconds)
        message = pb.ProduceStreamRequest(produce=records).SerializeToString()
        yield measured(peer, "ProduceStream", streamed("ProduceStream", message, RECORDS), seconds=seconds)
        raw = small.SerializeToString()
        yield measured(peer, "ProduceBatches", unary("ProduceBatches", raw, RECORDS), seconds=seconds)
        for kind, request, count in (("", small, RECORDS), (f", {LARGE_RECORDS:,} records", large, LARGE_RECORDS)):
            raw = pb.ProduceBatchesStreamRequest(produce=request).SerializeToString()
            work = streamed("ProduceBatchesStream", raw, count)
            yield measured(peer, f"ProduceBatchesStream{kind}", work, seconds=seconds)
        for kind, prepared in (("", few), (f", {LARGE_RECORDS:,} records", many)):
            yield kafka_produced(peer, name, f"Kafka Produce{kind}", prepared.body, prepared.records, seconds)


def kafka_produced(peer: StreamHousePeer, name: str, work: str, body: bytes, records: int, seconds: float) -> Figure:
    request = produce_frame(name, [(0, body)], acks=-1)
    shot = Shot(request=request, records=records, bytes=len(body))
    moved = blaster.produce(peer, shot, requests=10**9, max_s=seconds, settle_s=1.0)
    return figure(
        work, records=moved.records, wall_s=moved.wall_s, cpu_s=moved.broker_cpu_s, client_s=moved.client_cpu_s
    )


# --- consuming


def consumed(method: str, total: int) -> Work:
    """A stream from the beginning to the end, again and again. Offsets alone are looked at."""
    response: Any = getattr(pb, f"{method}Response")
    position = pb.Position(topic="bench-read", partition=0, offset=0)
    request = getattr(pb, f"{method}Request")(subscribe=[position]).SerializeToString()

    async def work(channel: Any, until: float) -> int:
        done = 0
        while time.perf_counter() < until:
            call = channel.stream_stream(f"{SERVICE}/{method}")()
            await call.write(request)
            reached = 0
            while reached < total and time.perf_counter() < until:
                reached = response.FromString(await call.read()).partitions[-1].next_offset
            done += reached
            call.cancel()
        return done

    return work


def fetched(total: int) -> Work:
    async def work(channel: Any, until: float) -> int:
        call = channel.unary_unary(f"{SERVICE}/Fetch")
        done = offset = 0
        while time.perf_counter() < until:
            position = pb.Position(topic="bench-read", partition=0, offset=offset)
            response = await call(pb.FetchRequest(positions=[position]).SerializeToString())
            reached = pb.FetchResponse.FromString(response).partitions[0].next_offset
            done += reached - offset
            offset = reached if reached < total else 0
        return done

    return work


def consume_figures(peer: StreamHousePeer, seconds: float) -> Iterator[Figure]:
    prepared = batch(record_bytes=RECORD_BYTES, records=RECORDS, codec="none")
    with topic(peer, "bench-read", 1) as name:
        shot = Shot(
            request=produce_frame(name, [(0, prepared.body)], acks=-1), records=RECORDS, bytes=len(prepared.body)
        )
        total = blaster.produce(peer, shot, requests=500, max_s=30.0, settle_s=1.0).records
        yield measured(peer, "Fetch", fetched(total), seconds=seconds)
        yield measured(peer, "Consume", consumed("Consume", total), seconds=seconds)
        yield measured(peer, "ConsumeBatches", consumed("ConsumeBatches", total), seconds=seconds)
        moved = blaster.consume(peer, name, [total], bytes_wanted=10**12, max_s=seconds)
        yield figure(
            "Kafka Fetch",
            records=moved.records,
            wall_s=moved.wall_s,
            cpu_s=moved.broker_cpu_s,
            client_s=moved.client_cpu_s,
        )


# --- what it costs who doesn't use it


def idle_figures() -> list[Idle]:
    """Without and with gRPC, in turns; at last both idle at the same time."""
    kinds = (False, True)
    started: dict[bool, list[tuple[float, float, float]]] = {kind: [] for kind in kinds}
    for kind in kinds * STARTS:
        with StreamHousePeer(grpc=kind) as peer:
            started[kind].append((peer.startup_s, peer.cpu_s(), peer.rss_bytes() / 1e6))
    with StreamHousePeer(grpc=False) as without, StreamHousePeer(grpc=True) as with_grpc:
        time.sleep(SETTLE_S)
        before = [peer.cpu_s() for peer in (without, with_grpc)]
        time.sleep(IDLE_S)
        cpu_s = [peer.cpu_s() - at for peer, at in zip((without, with_grpc), before, strict=True)]
    return [
        Idle(
            agent="with gRPC" if kind else "without",
            start_s=statistics.median(each[0] for each in started[kind]),
            start_cpu_s=statistics.median(each[1] for each in started[kind]),
            memory_mb=statistics.median(each[2] for each in started[kind]),
            idle_cpu_ms_per_s=spent * 1000 / IDLE_S,
        )
        for kind, spent in zip(kinds, cpu_s, strict=True)
    ]


@contextmanager
def a_peer() -> Iterator[StreamHousePeer]:
    with StreamHousePeer(grpc=True) as peer:
        list(produce_figures(peer, 0.3))
        yield peer


def medians(rounds: list[list[Figure]]) -> list[Figure]:
    return [sorted(same, key=lambda each: each.records_per_s)[len(same) // 2] for same in zip(*rounds, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-idle", action="store_true", help="leave out what gRPC costs who doesn't use it")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rounds = []
    for _ in range(arguments.repeat):
        with a_peer() as peer:
            seconds = arguments.seconds
            rounds.append([*produce_figures(peer, seconds), *consume_figures(peer, seconds)])
    figures = medians(rounds)
    idle = [] if arguments.no_idle else idle_figures()
    if arguments.json:
        print(json.dumps([*map(asdict, figures), *map(asdict, idle)]))
        return
    print(f"{'':34} {'records/s':>11} {'MB/s':>7} {'CPU s/million':>14} {'client cores':>13}")
    for each in figures:
        print(
            f"{each.work:34} {each.records_per_s:>11,.0f} {each.mb_per_s:>7.0f} {each.cpu_s_per_million:>14.2f}"
            f" {each.client_cores:>13.2f}"
        )
    for agent in idle:
        print(
            f"an agent {agent.agent:12} answers after {agent.start_s:.2f} s ({agent.start_cpu_s:.2f} s of CPU),"
            f" holds {agent.memory_mb:.0f} MB, idles at {agent.idle_cpu_ms_per_s:.1f} ms of CPU a second"
        )


if __name__ == "__main__":
    main()
