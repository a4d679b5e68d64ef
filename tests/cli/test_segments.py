"""segments list and segments inspect."""

import json
import uuid
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from streamhouse.client.types import Segment
from streamhouse.format.segment import RunInput, encode_segment
from streamhouse.model.names import Epoch, PartitionId, TopicId
from tests.cli.conftest import Run
from tests.cli.fakes import World

TOPIC = TopicId(uuid.UUID(int=5))


def segment(topic: str, partition: int, base: int) -> Segment:
    return Segment(
        topic=topic,
        partition=partition,
        base=base,
        end=base + 1000,
        records=1000,
        bytes=1536,
        max_timestamp_ms=1_700_000_000_000,
        object="segments/s-1/00000000000000000001",
        epoch=2,
    )


def batch(base: int, values: list[bytes]) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for number, value in enumerate(values):
        builder.append(number, timestamp=1_700_000_000_000 + number, key=None, value=value, headers=[])
    built = bytearray(builder.build())
    built[:8] = base.to_bytes(8, "big")
    return bytes(built)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    runs = [
        RunInput(
            partition=PartitionId(TOPIC, number),
            epoch=Epoch(3),
            base=100,
            end=104,
            batches=[batch(100, [b"a" * 500] * 2), batch(102, [b"b" * 500] * 2)],
            producers=b"",
        )
        for number in range(2)
    ]
    path = tmp_path / "segment"
    path.write_bytes(b"".join(encode_segment(runs, block_bytes=600).body))
    return path


def test_segments_are_listed_by_topic_partition_and_offset(run: Run, world: World) -> None:
    world.segments = [segment("b", 0, 0), segment("a", 1, 5), segment("a", 0, 1000), segment("a", 0, 0)]
    lines = run("segments", "list").stdout.splitlines()
    assert lines[0].split() == ["topic", "part", "offsets", "records", "size", "newest", "object"]
    assert lines[1].split()[:7] == ["a", "0", "[0,", "1000)", "1,000", "1.5", "KiB"]
    assert [line.split()[0] for line in lines[1:5]] == ["a", "a", "a", "b"]
    assert lines[5] == "4,000 records, 6.0 KiB in 1 object; --json names them"


def test_a_listing_that_stops_at_its_limit_says_so(run: Run, world: World) -> None:
    world.segments = [segment("a", 0, base) for base in (0, 1000, 2000)]
    result = run("segments", "list", "--limit", "2").stdout.splitlines()
    assert [line.split()[2] for line in result[1:3]] == ["[0,", "[1000,"]
    assert result[-1] == "the first 2; --limit for more, --topic for one topic's"
    assert "the first" not in run("segments", "list", "--limit", "4").stdout


def test_segments_of_one_topic_as_json(run: Run, world: World) -> None:
    world.topics = {"a": 1}
    world.segments = [segment("b", 0, 0), segment("a", 1, 5)]
    result = json.loads(run("segments", "list", "--topic", "a", "--json").stdout)["segments"]
    assert [(s["topic"], s["partition"], s["base"], s["end"], s["object"]) for s in result] == [
        ("a", 1, 5, 1005, "segments/s-1/00000000000000000001")
    ]


def test_no_segments_yet_is_explained(run: Run) -> None:
    assert "flush.age_s" in run("segments", "list").stdout


def test_an_unknown_topic_is_refused_in_the_agents_words(run: Run) -> None:
    result = run("segments", "list", "--topic", "zzz")
    assert (result.exit_code, result.stderr) == (1, "error: unknown; name=zzz\n")


def test_without_an_agent_the_http_address_is_named(run: Run, world: World) -> None:
    world.away = True
    result = run("segments", "list", "--http", "127.0.0.1:1")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: no agent answers on http://127.0.0.1:1; start one with: streamhouse up")
    env = {"STREAMHOUSE_HTTP_LISTEN": "0.0.0.0:77"}
    assert "http://127.0.0.1:77" in run("segments", "list", env=env).stderr


def test_a_file_is_shown_with_runs_blocks_offsets_times_ratio_and_checksums(run: Run, file: Path) -> None:
    result = run("segments", "inspect", str(file))
    assert result.exit_code == 0
    text = result.stdout
    assert "runs     2 partitions" in text
    assert "records  8" in text
    assert f"{TOPIC} partition 0" in text
    assert f"{TOPIC} partition 1" in text
    assert "offsets [100, 104), epoch 3, newest 2023-11-14 22:13:20.001Z" in text
    rows = [line.split() for line in text.splitlines() if line.endswith(" ok")]
    assert len(rows) == 4
    assert rows[0][:4] == ["0", "[100,", "102)", "2023-11-14"]
    assert rows[0][-3] == "lz4"


def test_a_file_as_json(run: Run, file: Path) -> None:
    result = json.loads(run("segments", "inspect", str(file), "--json").stdout)
    assert result["bytes"] == file.stat().st_size
    first = result["runs"][0]
    assert (first["topic_id"], first["partition"], first["base"], first["end"]) == (str(TOPIC), 0, 100, 104)
    assert [(b["base"], b["end"], b["codec"], b["ok"]) for b in first["blocks"]] == [
        (100, 102, "lz4", True),
        (102, 104, "lz4", True),
    ]
    assert first["raw_bytes"] > first["stored_bytes"]


def test_a_damaged_block_is_shown_and_gives_exit_code_1(run: Run, file: Path) -> None:
    data = bytearray(file.read_bytes())
    reported = json.loads(run("segments", "inspect", str(file), "--json").stdout)
    data[reported["runs"][1]["blocks"][0]["position"] + 3] ^= 1
    file.write_bytes(data)
    result = run("segments", "inspect", str(file))
    assert result.exit_code == 1
    assert result.stdout.count("DAMAGED") == 1
    assert result.stdout.count(" ok") == 3
    assert "checksum" in result.stderr
    oks = [
        b["ok"] for r in json.loads(run("segments", "inspect", str(file), "--json").stdout)["runs"] for b in r["blocks"]
    ]
    assert oks == [True, True, False, True]


def test_something_else_is_no_segment(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x"
    for content in (b"", b"hello", bytes(10_000)):
        path.write_bytes(content)
        result = run("segments", "inspect", str(path))
        assert result.exit_code == 1
        assert result.stderr.startswith(f"error: corrupt object; key={path} why=")
        assert result.stderr.count("\n") == 1
