"""Does a page of a large topic open as quickly as one of a small topic?

    .venv/bin/python -m benchmarks.large_topic_page [--gigabytes N] [--pages N] [--json]

One agent with embedded stores, and two topics of one partition, of a megabyte and of 100 GB. The large one is a
stand-in: the metadata store has all its rows, and the object store those segments of 8 MB that the pages read. A page
is what the console asks for: the partition's offsets, then 50 records over HTTP. `first` is the first one of a place.
"""

import argparse
import asyncio
import json
import statistics
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import httpx
from prometheus_client import CollectorRegistry

from benchmarks.key_search import PAGE_RECORDS, timed
from benchmarks.streamhouse_peer import StreamHousePeer
from streamhouse.clock import Ids, SystemClock
from streamhouse.config.fields import Address
from streamhouse.format.batch import assign_offset
from streamhouse.format.compression import Codec
from streamhouse.format.object_keys import segment_key
from streamhouse.format.producer_snapshot import encode_producers
from streamhouse.format.records import encode_batch
from streamhouse.format.segment import EncodedSegment, RunInput, encode_segment
from streamhouse.model.cluster import PartitionState
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.model.record import NewRecord
from streamhouse.model.segment import SegmentCommit, SegmentObject
from streamhouse.stores.metadata.base import MetadataStore, NewSession
from streamhouse.stores.metadata.open import open_metadata_store
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.open import open_object_store

MB: Final = 1_000_000
SMALL_BYTES: Final = MB
SEGMENT_BYTES: Final = 8 * MB
VALUE_BYTES: Final = 1000
BATCH_RECORDS: Final = 100
COMMITS_TOGETHER: Final = 500
TTL_MS: Final = 600_000
PLACES: Final = {"newest": 1.0, "middle": 0.5, "oldest": 0.0}
SESSION: Final = SessionId("s-" + "b" * 32)
ADDRESS: Final = Address(host="127.0.0.1", port=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A topic as it was made: so many segments of so many bytes."""

    name: str
    segments: int
    segment_bytes: int


def segment_of(state: PartitionState, size_bytes: int) -> EncodedSegment:
    batches: list[bytearray] = []
    base, now_ms = 0, SystemClock().now_ms()
    while base * VALUE_BYTES < size_bytes:
        records = [NewRecord(b"v" * VALUE_BYTES, key=b"%012d" % (base + number)) for number in range(BATCH_RECORDS)]
        batch = bytearray(encode_batch(records, codec=Codec.NONE, now_ms=now_ms))
        assign_offset(batch, base_offset=base, leader_epoch=int(state.epoch))
        batches.append(batch)
        base += BATCH_RECORDS
    run = RunInput(
        partition=state.partition,
        epoch=state.epoch,
        base=0,
        end=base,
        batches=batches,
        producers=encode_producers([]),
    )
    return encode_segment([run])


async def fill(metadata: MetadataStore, objects: ObjectStore, number: int, log: Log) -> None:
    """All rows, and the objects at the places that are read; their offsets count from 0, which readers shift."""
    [topic] = [each for each in await metadata.topics() if each.name == log.name]
    [state] = await metadata.acquire(SESSION, [PartitionId(topic.topic_id, 0)])
    segment = segment_of(state, log.segment_bytes)
    [layout] = segment.layouts
    records = layout.entry.end
    first_key = number * 10_000_000
    commits = []
    for place in range(log.segments):
        key = segment_key(SESSION, first_key + place)
        stored = SegmentObject(key=key, size_bytes=segment.size_bytes, created_at_ms=topic.created_at_ms)
        run = replace(layout.run(key), base=place * records, end=(place + 1) * records)
        commits.append(SegmentCommit(segment=stored, runs=(run,)))
    for start in range(0, log.segments, COMMITS_TOGETHER):
        await metadata.commit_segments(SESSION, commits[start : start + COMMITS_TOGETHER])
    for place in {round(share * (log.segments - 1)) for share in PLACES.values()}:
        await objects.put_new(segment_key(SESSION, first_key + place), segment.body)


async def fill_all(peer: StreamHousePeer, logs: list[Log]) -> None:
    clock = SystemClock()
    data = peer.folder / "data"
    metadata = await open_metadata_store(f"sqlite:///{data / 'metadata.db'}", clock=clock)
    objects = open_object_store(f"file://{data / 'objects'}", clock=clock, ids=Ids(), registry=CollectorRegistry())
    await metadata.open_session(NewSession(session_id=SESSION, kafka=ADDRESS, http=ADDRESS, ttl_ms=TTL_MS))
    for number, log in enumerate(logs):
        await fill(metadata, objects, number, log)
    await metadata.end_session(SESSION)
    await objects.aclose()
    await metadata.aclose()


def page(http: httpx.Client, topic: str, share: float) -> None:
    [state] = http.get(f"/v1/topics/{topic}/partitions").raise_for_status().json()["partitions"]
    offset = round(share * (state["high_watermark"] - 1)) - (PAGE_RECORDS if share == 1.0 else 0)
    query = {"offset": offset, "limit": PAGE_RECORDS}
    response = http.get(f"/v1/topics/{topic}/partitions/0/records", params=query).raise_for_status()
    assert len(response.json()["records"]) == PAGE_RECORDS, response.text[:300]


def measure(gigabytes: float, pages: int) -> dict[str, Any]:
    logs = [
        Log(name="small", segments=1, segment_bytes=SMALL_BYTES),
        Log(
            name="large", segments=max(3, round(gigabytes * 1000 * MB / SEGMENT_BYTES)) | 1, segment_bytes=SEGMENT_BYTES
        ),
    ]
    peer = StreamHousePeer()
    peer.environment = {"STREAMHOUSE_COMPACTION_MERGE_RUNS": "0", "STREAMHOUSE_INTEGRITY_OBJECTS": "0"}
    with peer, httpx.Client(base_url=f"http://127.0.0.1:{peer.http_port}", timeout=60) as http:
        for log in logs:
            http.post("/v1/topics", json={"name": log.name, "partitions": 1}).raise_for_status()
        asyncio.run(fill_all(peer, logs))
        page(http, "small", 0.0)  # the connection, and what agents import for their first request
        times: dict[str, Any] = {}
        for place, share in PLACES.items():
            taken = {log.name: [timed(partial(page, http, log.name, share))] for log in logs}
            for _ in range(pages):
                for log in logs:
                    taken[log.name].append(timed(partial(page, http, log.name, share)))
            times[place] = {
                name: {"first_ms": each[0] * 1000, "median_ms": statistics.median(each[1:]) * 1000}
                for name, each in taken.items()
            }
        return {"segments": logs[1].segments, "gigabytes": gigabytes, "pages": times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=100.0)
    parser.add_argument("--pages", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    figures = measure(asked.gigabytes, asked.pages)
    if asked.json:
        print(json.dumps(figures, indent=1))
        return
    print(f"1 MB, and {figures['gigabytes']:g} GB in {figures['segments']:,} segments")
    for place, times in figures["pages"].items():
        for name, each in times.items():
            print(f"  {place:<7} page of {name}: first {each['first_ms']:6.1f} ms, then {each['median_ms']:6.1f} ms")


if __name__ == "__main__":
    main()
