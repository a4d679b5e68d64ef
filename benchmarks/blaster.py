"""Blaster: keeps a broker busy with prepared frames from a few connections, and counts what came back.

Data path   `batches`, `raw_client` -> **blaster** -> `throughput`, `requests`
Owns        pipelining, threads, and where a run ends
Leaves      frames to `raw_client`; figures to the measures

Threads share this process: nearly all their time goes to `send` and `recv`, which run without the interpreter's lock.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from benchmarks import process
from benchmarks.peer import Peer
from benchmarks.raw_client import Connection, fetch_frame, fetched, first_offsets

CONNECTIONS: Final = 2
IN_FLIGHT: Final = 5  # as Java producers and librdkafka's idempotent ones have
FETCH_MAX_BYTES: Final = 50 * 1024 * 1024  # Java's and librdkafka's default, as is the next one
PARTITION_MAX_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What went through, in how long, at what price."""

    requests: int
    records: int
    bytes: int
    wall_s: float
    broker_cpu_s: float
    client_cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """What one connection moved."""

    requests: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """A prepared Produce request, and what it carries."""

    request: bytes
    records: int
    bytes: int


def produce(
    peer: Peer, shot: Shot, *, requests: int, max_s: float, settle_s: float, in_flight: int = IN_FLIGHT
) -> Moved:
    """Send a prepared request again and again, until it was sent often enough or the time is over."""
    share = -(-requests // CONNECTIONS)

    def run(connection: Connection, deadline: float) -> Count:
        done = pipeline(connection, shot.request, requests=share, deadline=deadline, in_flight=in_flight)
        return Count(requests=done, records=done * shot.records, bytes=done * shot.bytes)

    return _together(peer, run, max_s=max_s, settle_s=settle_s)


def consume(
    peer: Peer, topic: str, ends: Sequence[int], *, bytes_wanted: int, max_s: float, connections: int = CONNECTIONS
) -> Moved:
    """Read a topic from its beginning with every connection, again from the beginning when its end is reached."""
    share = -(-bytes_wanted // connections)

    def run(connection: Connection, deadline: float) -> Count:
        return read(connection, topic, dict(enumerate(ends)), bytes_wanted=share, deadline=deadline)

    return _together(peer, run, max_s=max_s, settle_s=0.0, count=connections)


def _together(
    peer: Peer,
    run: Callable[[Connection, float], Count],
    *,
    max_s: float,
    settle_s: float,
    count: int = CONNECTIONS,
) -> Moved:
    connections = [peer.connect(buffer_bytes=FETCH_MAX_BYTES) for _ in range(count)]
    broker_cpu_s, client_cpu_s = peer.cpu_s(), time.process_time()
    began = time.perf_counter()
    try:
        with ThreadPoolExecutor(count) as pool:
            counts = list(pool.map(run, connections, [began + max_s] * count))
        wall_s, client_cpu_s = time.perf_counter() - began, time.process_time() - client_cpu_s
    finally:
        for connection in connections:
            connection.sock.close()
    return Moved(
        requests=sum(each.requests for each in counts),
        records=sum(each.records for each in counts),
        bytes=sum(each.bytes for each in counts),
        wall_s=wall_s,
        broker_cpu_s=process.cpu_s_when_quiet(peer.pid, max_wait_s=settle_s) - broker_cpu_s,
        client_cpu_s=client_cpu_s,
    )


def pipeline(connection: Connection, request: bytes, *, requests: int, deadline: float, in_flight: int) -> int:
    """Send a request again and again with several under way; how often it was answered."""
    sent = acked = 0
    while True:
        while sent < requests and sent - acked < in_flight and time.perf_counter() < deadline:
            connection.send(request)
            sent += 1
        if sent == acked:
            return acked
        first_offsets(connection.receive())
        acked += 1


def read(connection: Connection, topic: str, ends: Mapping[int, int], *, bytes_wanted: int, deadline: float) -> Count:
    """Read partitions, whose ends are given, from their beginning, and again from there when their end is reached."""
    offsets = dict.fromkeys(ends, 0)
    requests = records = count_bytes = 0
    while count_bytes < bytes_wanted and time.perf_counter() < deadline:
        request = fetch_frame(
            topic,
            list(offsets.items()),
            max_bytes=FETCH_MAX_BYTES,
            partition_max_bytes=PARTITION_MAX_BYTES,
            max_wait_ms=500,
        )
        for part in fetched(connection.call(request)):
            records += part.records
            count_bytes += part.bytes
            if part.records:
                offsets[part.partition] = part.next_offset if part.next_offset < ends[part.partition] else 0
        requests += 1
    return Count(requests=requests, records=records, bytes=count_bytes)
