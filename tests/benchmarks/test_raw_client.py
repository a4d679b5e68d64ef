"""The benchmarks' raw client against a live agent: what it counts is what was there."""

import os
from collections.abc import Iterator

import pytest

from benchmarks import blaster
from benchmarks.batches import batch
from benchmarks.measure import Load, topic
from benchmarks.raw_client import BrokerRefused, fetch_frame, fetched, first_offsets, produce_frame
from benchmarks.streamhouse_peer import StreamHousePeer
from benchmarks.throughput import shot


@pytest.fixture(scope="module")
def agent() -> Iterator[StreamHousePeer]:
    with StreamHousePeer() as peer:
        yield peer


def test_batches_go_in_at_growing_offsets_and_come_out_counted(agent: StreamHousePeer) -> None:
    prepared = batch(record_bytes=100, records=10, codec="lz4")
    with topic(agent, "counted", 2) as name, agent.connect() as connection:
        request = produce_frame(name, [(0, prepared.body), (1, prepared.body)], acks=-1)
        assert first_offsets(connection.call(request)) == [0, 0]
        assert first_offsets(connection.call(request)) == [10, 10]
        fetch = fetch_frame(name, [(0, 0), (1, 10)], max_bytes=1 << 20, partition_max_bytes=1 << 20, max_wait_ms=100)
        parts = {part.partition: part for part in fetched(connection.call(fetch))}
    assert (parts[0].records, parts[0].next_offset, parts[0].bytes) == (20, 20, 2 * len(prepared.body))
    assert (parts[1].records, parts[1].next_offset, parts[1].bytes) == (10, 20, len(prepared.body))


def test_a_refused_batch_is_noticed(agent: StreamHousePeer) -> None:
    broken = bytearray(batch(record_bytes=100, records=1, codec="none").body)
    broken[-1] ^= 1
    with topic(agent, "refused", 1) as name, agent.connect() as connection:
        request = produce_frame(name, [(0, bytes(broken))], acks=-1)
        with pytest.raises(BrokerRefused, match="error_code=2"):
            first_offsets(connection.call(request))


def test_the_blaster_reads_all_that_it_wrote(agent: StreamHousePeer) -> None:
    load = Load(record_bytes=1000, partitions=4, codec="none")
    with topic(agent, "blasted", load.partitions) as name:
        prepared = shot(load, name)
        written = blaster.produce(agent, prepared, requests=6, max_s=30.0, settle_s=0.0)
        ends = [written.records // load.partitions] * load.partitions
        read = blaster.consume(agent, name, ends, bytes_wanted=written.bytes * blaster.CONNECTIONS, max_s=30.0)
    assert (written.requests, written.records) == (6, 6 * prepared.records)
    assert read.bytes >= written.bytes * blaster.CONNECTIONS
    assert read.records * written.bytes == written.records * read.bytes


def test_a_stopped_peer_leaves_neither_process_nor_folder() -> None:
    with StreamHousePeer() as peer:
        pid, folder = peer.pid, peer.folder
        assert peer.cpu_s() > 0
        assert 0 < peer.rss_bytes() <= peer.rss_peak_bytes()  # in this order: it still grows
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
