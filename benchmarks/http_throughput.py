"""How fast do records go in and out over HTTP, beside Kafka's protocol at the same agent in the same run?

    .venv/bin/python -m benchmarks.http_throughput [--seconds S] [--repeat N] [--json]

One agent (embedded stores, fsync never), one partition, records of 100 B, 1,000 of them in a request. Requests are
written before the clock starts and answers are not opened, on two connections with one request at a time each, so that
the client is no bottleneck: it runs in this process, the agent in another. `CPU` is the agent's, for a million records.

Then how long one record waits for its acknowledgement, one request after the other on one connection.
"""

import argparse
import json
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Final

from benchmarks import blaster, process
from benchmarks.batches import batch, values
from benchmarks.blaster import Shot
from benchmarks.measure import topic
from benchmarks.raw_client import first_offsets, produce_frame
from benchmarks.streamhouse_peer import StreamHousePeer

RECORD_BYTES: Final = 100
RECORDS: Final = 1000
PAGE: Final = 5000
CONNECTIONS: Final = 2
NDJSON: Final = "application/x-ndjson"
BATCHES: Final = "application/vnd.streamhouse.batches"
READ_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    work: str
    records_per_s: float
    mb_per_s: float
    cpu_s_per_million: float
    client_cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    work: str
    p50_ms: float
    p99_ms: float
    requests_per_s: float


class Client:
    """Just enough HTTP: requests as bytes, answers with a length or in chunks."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def close(self) -> None:
        self._sock.close()

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def ask(self, request: bytes) -> bytes:
        """The body of an answer that has a length."""
        self.send(request)
        head, length = self.head()
        while len(self._rest) < length:
            self._rest += self._sock.recv(READ_BYTES)
        body, self._rest = self._rest[:length], self._rest[length:]
        if not head.startswith(b"HTTP/1.1 20"):
            raise RuntimeError(f"refused: {head[:100]!r} {body[:300]!r}")
        return body

    def head(self) -> tuple[bytes, int]:
        while b"\r\n\r\n" not in self._rest:
            self._rest += self._sock.recv(READ_BYTES)
        head, self._rest = self._rest.split(b"\r\n\r\n", 1)
        lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
        return head, int(lengths[0]) if lengths else 0

    def lines(self) -> Iterator[int]:
        """How many lines came, again and again, of an answer without an end."""
        yield self._rest.count(b"\n{")
        while piece := self._sock.recv(READ_BYTES):
            yield piece.count(b'{"partition"')


def post(path: str, body: bytes, media_type: str) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def get(path: str, accept: str = "*/*") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n".encode()


Work = Callable[[Client, float], int]
"""On one connection, until a time: how many records were moved."""


def measured(peer: StreamHousePeer, name: str, work: Work, *, seconds: float) -> Figure:
    clients = [Client(peer.http_port) for _ in range(CONNECTIONS)]
    cpu_s, client_s, began = peer.cpu_s(), time.process_time(), time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        records = sum(pool.map(work, clients, [began + seconds] * CONNECTIONS))
    wall_s, client_s = time.perf_counter() - began, time.process_time() - client_s
    for client in clients:
        client.close()
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


def repeated(request: bytes, records: int) -> Work:
    def work(client: Client, until: float) -> int:
        done = 0
        while time.perf_counter() < until:
            client.ask(request)
            done += records
        return done

    return work


def uploaded(path: str, lines: bytes, records: int) -> Work:
    """One upload without an end, until the time is over."""

    def work(client: Client, until: float) -> int:
        client.send(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {NDJSON}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        chunk = b"%x\r\n%s\r\n" % (len(lines), lines)
        done = 0
        while time.perf_counter() < until:
            client.send(chunk)
            done += records
        told = json.loads(client.ask(b"0\r\n\r\n"))
        assert told["records"] == done, told
        return done

    return work


def json_value(value: bytes) -> str:
    """An event of the same size as its bytes."""
    return json.dumps({"event": value.decode().replace('"', "'")})[: RECORD_BYTES - 2] + '"}'


def produce_figures(peer: StreamHousePeer, path: str, name: str, seconds: float) -> Iterator[Figure]:
    events = [json_value(value) for value in values(RECORDS, RECORD_BYTES)]
    body = '{{"records":[{}]}}'.format(",".join(f'{{"value":{event}}}' for event in events))
    yield measured(
        peer,
        "POST records, JSON",
        repeated(post(f"{path}/records", body.encode(), "application/json"), RECORDS),
        seconds=seconds,
    )
    lines = "".join(f'{{"value":{event}}}\n' for event in events).encode()
    yield measured(peer, "POST records, NDJSON upload", uploaded(f"{path}/records", lines, RECORDS), seconds=seconds)
    prepared = batch(record_bytes=RECORD_BYTES, records=RECORDS, codec="none")
    request = post(f"{path}/partitions/0/batches", prepared.body, BATCHES)
    yield measured(peer, "POST batches", repeated(request, RECORDS), seconds=seconds)
    shot = Shot(request=produce_frame(name, [(0, prepared.body)], acks=-1), records=RECORDS, bytes=len(prepared.body))
    moved = blaster.produce(peer, shot, requests=10**9, max_s=seconds, settle_s=1.0, in_flight=1)
    yield figure(
        "Kafka Produce",
        records=moved.records,
        wall_s=moved.wall_s,
        cpu_s=moved.broker_cpu_s,
        client_s=moved.client_cpu_s,
    )


# --- consuming


def paged(path: str, end: int) -> Work:
    """Pages of JSON, again from the beginning when the end is reached."""

    def work(client: Client, until: float) -> int:
        done = offset = 0
        while time.perf_counter() < until:
            client.ask(get(f"{path}/partitions/0/records?offset={offset}&limit={PAGE}&max_bytes=8388608"))
            done += min(PAGE, end - offset)
            offset = offset + PAGE if offset + PAGE < end else 0
        return done

    return work


def streamed(path: str, accept: str) -> Work:
    def work(client: Client, until: float) -> int:
        client.send(get(f"{path}/records", accept))
        client.head()
        done = 0
        for count in client.lines():
            done += count
            if time.perf_counter() >= until:
                break
        return done

    return work


def fetched(path: str, end: int) -> Work:
    """Batches as they are stored, a megabyte at a time, as Kafka's fetch has it."""

    def work(client: Client, until: float) -> int:
        done = offset = 0
        while time.perf_counter() < until:
            client.send(get(f"{path}/partitions/0/batches?offset={offset}&max_bytes=1048576"))
            head, length = client.head()
            client._rest = _rest_of(client, length)
            (told,) = [line for line in head.split(b"\r\n") if line.startswith(b"streamhouse-next-offset")]
            after = int(told.split(b":")[1])
            done += after - offset
            offset = after if after < end else 0
        return done

    return work


def _rest_of(client: Client, length: int) -> bytes:
    """Read a body away; what follows it."""
    while len(client._rest) < length:
        client._rest += client._sock.recv(READ_BYTES)
    return client._rest[length:]


def consume_figures(peer: StreamHousePeer, path: str, name: str, seconds: float) -> Iterator[Figure]:
    client = Client(peer.http_port)
    told = json.loads(client.ask(get(f"{path}/partitions/0/records?limit=1")))
    client.close()
    end = told["high_watermark"]
    yield measured(peer, f"GET records, JSON pages of {PAGE:,}", paged(path, end), seconds=seconds)
    yield measured(peer, "GET records, NDJSON stream", streamed(path, NDJSON), seconds=seconds)
    yield measured(peer, "GET records, server-sent events", streamed(path, "text/event-stream"), seconds=seconds)
    yield measured(peer, "GET batches", fetched(path, end), seconds=seconds)
    moved = blaster.consume(peer, name, [end], bytes_wanted=10**12, max_s=seconds)
    yield figure(
        "Kafka Fetch",
        records=moved.records,
        wall_s=moved.wall_s,
        cpu_s=moved.broker_cpu_s,
        client_s=moved.client_cpu_s,
    )


# --- waiting


def wait_figures(peer: StreamHousePeer, path: str, name: str, seconds: float) -> Iterator[Waits]:
    value = values(1, RECORD_BYTES)[0]
    client = Client(peer.http_port)
    event = f'{{"records":[{{"value":{json_value(value)}}}]}}'
    yield waits(
        "POST one record, JSON", post(f"{path}/records", event.encode(), "application/json"), client.ask, seconds
    )
    yield waits("POST one record, text", post(f"{path}/records", value, "text/plain"), client.ask, seconds)
    client.close()
    one = produce_frame(name, [(0, batch(record_bytes=RECORD_BYTES, records=1, codec="none").body)], acks=-1)
    with peer.connect() as connection:

        def ask(request: bytes) -> None:
            connection.send(request)
            first_offsets(connection.receive())

        yield waits("Kafka Produce, one record", one, ask, seconds)


def waits(name: str, request: bytes, ask: Callable[[bytes], object], seconds: float) -> Waits:
    found: list[float] = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        ask(request)
        found.append(time.perf_counter() - began)
    found.sort()
    return Waits(
        work=name,
        p50_ms=found[len(found) // 2] * 1000,
        p99_ms=found[len(found) * 99 // 100] * 1000,
        requests_per_s=len(found) / seconds,
    )


# --- the run


def median_of(figures: list[Figure]) -> Figure:
    return sorted(figures, key=lambda each: each.records_per_s)[len(figures) // 2]


def median_of_waits(found: list[Waits]) -> Waits:
    return Waits(
        work=found[0].work,
        p50_ms=statistics.median(each.p50_ms for each in found),
        p99_ms=statistics.median(each.p99_ms for each in found),
        requests_per_s=statistics.median(each.requests_per_s for each in found),
    )


def run(seconds: float, repeat: int) -> tuple[list[Figure], list[Waits]]:
    figures: list[list[Figure]] = []
    waiting: list[list[Waits]] = []
    with StreamHousePeer() as peer:
        for _ in range(repeat):
            with topic(peer, "bench-http", 1) as name:
                path = f"/v1/topics/{name}"
                found = list(produce_figures(peer, path, name, seconds))
                found += consume_figures(peer, path, name, seconds)
                figures.append(found)
                waiting.append(list(wait_figures(peer, path, name, seconds)))
    return (
        [median_of(list(each)) for each in zip(*figures, strict=True)],
        [median_of_waits(list(each)) for each in zip(*waiting, strict=True)],
    )


def show(figures: list[Figure], waiting: list[Waits]) -> None:
    print("| 100 B records | records/s | MB/s | CPU s per million | client's cores |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for each in figures:
        print(
            f"| {each.work} | {each.records_per_s:,.0f} | {each.mb_per_s:.1f} | {each.cpu_s_per_million:.2f} "
            f"| {each.client_cores:.2f} |"
        )
    print("\n| one after the other | p50 ms | p99 ms | requests/s |\n| --- | ---: | ---: | ---: |")
    for wait in waiting:
        print(f"| {wait.work} | {wait.p50_ms:.2f} | {wait.p99_ms:.2f} | {wait.requests_per_s:,.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each kind of work")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions; medians are shown")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    figures, waiting = run(asked.seconds, asked.repeat)
    if asked.json:
        print(json.dumps({"work": [asdict(each) for each in figures], "waits": [asdict(each) for each in waiting]}))
    else:
        show(figures, waiting)


if __name__ == "__main__":
    main()
