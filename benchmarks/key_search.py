"""How long does it take to find a key in a large topic, beside a consumer that reads until it comes?

    .venv/bin/python -m benchmarks.key_search [--records N] [--keys N] [--codec ZSTD] [--filters all] [--json]

One agent (embedded stores, fsync never), one partition, records of 100 B, each with a key of its own. Keys are chosen
at random; one more isn't there. `search` is the whole search over HTTP, until all of the topic is searched. `scan` is
librdkafka, reading from the start until it holds the record, as tools without an index do. `page` is the newest page of
50 records, of this topic and of one of a megabyte.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

import httpx
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from benchmarks import process
from benchmarks.raw_client import Connection, create_topic, first_offsets, produce_frame
from benchmarks.streamhouse_peer import StreamHousePeer
from streamhouse.format.compression import Codec
from streamhouse.format.records import encode_batch
from streamhouse.model.record import NewRecord

LARGE: Final = "large"
SMALL: Final = "small"
SMALL_RECORDS: Final = 10_000
VALUE_BYTES: Final = 84
BATCH_RECORDS: Final = 1000
BATCHES_AT_ONCE: Final = 5
PAGE_RECORDS: Final = 50
PAGES: Final = 20
SCAN_TIMEOUT_S: Final = 600.0
FLUSH_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    key: str
    found: int
    seconds: float
    read_bytes: int
    skipped_bytes: int
    segments: int
    segments_needed: int


def key_of(number: int) -> bytes:
    return b"customer-%09d" % number


def batches(records: int, codec: Codec) -> Iterator[bytes]:
    chance = random.Random(7)
    now_ms = int(time.time() * 1000)
    words = [b'"order":', b'"status":"paid",', b'"amount":', b'"currency":"EUR",']
    for start in range(0, records, BATCH_RECORDS):
        made = []
        for number in range(start, min(start + BATCH_RECORDS, records)):
            value = b"{%s%016x,%s%016x,%s" % (
                *(words[number & 3], chance.getrandbits(64), words[number >> 2 & 3], chance.getrandbits(64)),
                words[number >> 4 & 3],
            )
            made.append(NewRecord(value.ljust(VALUE_BYTES)[:VALUE_BYTES], key=key_of(number)))
        yield bytes(encode_batch(made, codec=codec, now_ms=now_ms))


def fill(peer: StreamHousePeer, topic: str, records: int, codec: Codec) -> None:
    """Produce, with a few requests in flight."""
    with Connection(peer.host, peer.port) as connection:
        create_topic(connection, topic, 1)
        in_flight = 0
        for each in batches(records, codec):
            connection.send(produce_frame(topic, [(0, each)], acks=-1))
            in_flight += 1
            if in_flight >= BATCHES_AT_ONCE:
                first_offsets(connection.receive())
                in_flight -= 1
        for _ in range(in_flight):
            first_offsets(connection.receive())


def wait_until_flushed(http: httpx.Client, topic: str) -> None:
    deadline = time.perf_counter() + FLUSH_TIMEOUT_S
    while time.perf_counter() < deadline:
        [state] = http.get(f"/v1/topics/{topic}/partitions").json()["partitions"]
        if state["flushed_end"] == state["high_watermark"]:
            return
        time.sleep(0.5)
    raise SystemExit(f"{topic} was not flushed in {FLUSH_TIMEOUT_S:.0f} s")


def search(http: httpx.Client, key: str) -> Search:
    began, found = time.perf_counter(), 0
    cursor: str | None = ""
    sums = dict.fromkeys(("bytes", "skipped_bytes", "segments", "segments_needed"), 0)
    while cursor is not None:
        page = http.post(f"/v1/topics/{LARGE}/search", json={"key": key, "cursor": cursor}).raise_for_status().json()
        found += len(page["records"])
        sums = {name: value + page["searched"][name] for name, value in sums.items()}
        cursor = page["cursor"]
    read_bytes = sums.pop("bytes")
    return Search(key=key, found=found, seconds=time.perf_counter() - began, read_bytes=read_bytes, **sums)


def scan(peer: StreamHousePeer, key: bytes) -> float:
    """Seconds until a consumer that reads from the start has the key."""
    consumer = Consumer({"bootstrap.servers": peer.bootstrap, "group.id": "scan", "enable.auto.commit": False})
    began = time.perf_counter()
    try:
        consumer.assign([TopicPartition(LARGE, 0, OFFSET_BEGINNING)])
        while time.perf_counter() - began < SCAN_TIMEOUT_S:
            for message in consumer.consume(10_000, timeout=1.0):
                if message.key() == key:
                    return time.perf_counter() - began
    finally:
        consumer.close()
    raise SystemExit(f"the scan did not find {key!r}")


def page(http: httpx.Client, topic: str) -> None:
    """What the console asks for when it shows the newest records of a partition."""
    [state] = http.get(f"/v1/topics/{topic}/partitions").raise_for_status().json()["partitions"]
    query = {"offset": state["high_watermark"] - PAGE_RECORDS, "limit": PAGE_RECORDS}
    response = http.get(f"/v1/topics/{topic}/partitions/0/records", params=query).raise_for_status()
    assert len(response.json()["records"]) == PAGE_RECORDS, response.text[:300]


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def measure(records: int, keys: int, codec: Codec, filters: str) -> dict[str, Any]:
    peer = StreamHousePeer()
    peer.environment = {"STREAMHOUSE_FLUSH_KEY_FILTERS": filters, "STREAMHOUSE_FLUSH_AGE_S": "2"}
    with peer, httpx.Client(base_url=f"http://127.0.0.1:{peer.http_port}", timeout=60) as http:
        cpu_before = process.cpu_s(peer.pid)
        filling_s = timed(lambda: fill(peer, LARGE, records, codec))
        fill(peer, SMALL, SMALL_RECORDS, codec)
        wait_until_flushed(http, LARGE)
        wait_until_flushed(http, SMALL)
        fill_cpu_s = process.cpu_s(peer.pid) - cpu_before
        chance = random.Random(11)
        chosen = [chance.randrange(records) for _ in range(keys)]
        pages = {name: [timed(partial(page, http, name)) for _ in range(PAGES)] for name in (SMALL, LARGE)}
        searches = [search(http, key_of(number).decode()) for number in chosen]
        absent = search(http, "nobody")
        scans = {key_of(number).decode(): scan(peer, key_of(number)) for number in chosen[:2]}
        return {
            "records": records,
            "codec": codec.name,
            "filters": filters,
            "fill_s": filling_s,
            "fill_cpu_s": fill_cpu_s,
            "first_page_s": {name: times[0] for name, times in pages.items()},
            "page_s": {name: statistics.median(times[1:]) for name, times in pages.items()},
            "searches": [asdict(each) for each in searches],
            "absent": asdict(absent),
            "scans_s": scans,
        }


def show(figures: dict[str, Any]) -> None:
    what = f"{figures['records']:,} records, {figures['codec']}, filters {figures['filters']}"
    print(f"{what}; the agent took {figures['fill_cpu_s']:.1f} CPU s to store them")
    for each in [*figures["searches"], figures["absent"]]:
        print(
            f"  search {each['key']:<20} {each['found']} found in {each['seconds'] * 1000:7.0f} ms; read "
            f"{each['read_bytes'] / 1e6:.1f} of {(each['read_bytes'] + each['skipped_bytes']) / 1e6:.1f} MB, "
            f"{each['segments_needed']} of {each['segments']} segments"
        )
    for key, seconds in figures["scans_s"].items():
        print(f"  scan   {key:<20} {seconds * 1000:15.0f} ms")
    for name in (SMALL, LARGE):
        first, then = figures["first_page_s"][name] * 1000, figures["page_s"][name] * 1000
        print(f"  page of {name}: first {first:.1f} ms, then {then:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=5)
    parser.add_argument("--codec", choices=[each.name for each in Codec], default=Codec.NONE.name)
    parser.add_argument("--filters", choices=["none", "uncompressed", "all"], default="uncompressed")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    figures = measure(asked.records, asked.keys, Codec[asked.codec], asked.filters)
    print(json.dumps(figures, indent=1)) if asked.json else show(figures)


if __name__ == "__main__":
    main()
