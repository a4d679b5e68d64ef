"""produce: from arguments, lines and files to records."""

import json
from pathlib import Path

import pytest

from streamhouse.cli.commands.record_lines import LineFormat, LineSplitter
from streamhouse.errors import RecordTooLarge
from tests.cli.conftest import Run
from tests.cli.fakes import World, gone


def values(world: World, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in world.logs[topic, 0]]


def test_arguments_become_records(run: Run, world: World) -> None:
    result = run("produce", "orders", "hello", "wörld")
    assert result.exit_code == 0
    assert values(world) == [b"hello", "wörld".encode()]
    assert result.stdout.startswith("2 records, 11 B to orders in ")
    assert result.stdout.endswith(" records/s)\n")


def test_lines_of_standard_input_become_records(run: Run, world: World) -> None:
    assert run("produce", "orders", stdin=b"a\n\nb\r\nlast").exit_code == 0
    assert values(world) == [b"a", b"", b"b\r", b"last"]


def test_a_file_is_read_byte_for_byte(run: Run, world: World, tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"\x00\xff\xfe\n\x0b\x0c\x85\n" + b"x" * 3_000_000)
    assert run("produce", "orders", "--file", str(path)).exit_code == 0
    assert values(world) == [b"\x00\xff\xfe", b"\x0b\x0c\x85", b"x" * 3_000_000]


def test_a_whole_input_can_be_one_value(run: Run, world: World) -> None:
    assert run("produce", "orders", "--whole", "--file", "-", stdin=b"a\nb\n").exit_code == 0
    assert values(world) == [b"a\nb\n"]


def test_empty_input_is_no_record(run: Run, world: World) -> None:
    result = run("produce", "orders", stdin=b"")
    assert (result.exit_code, values(world)) == (0, [])
    assert result.stdout.startswith("0 records, 0 B to orders")


def test_key_headers_partition_acks_and_compression_are_passed_on(run: Run, world: World) -> None:
    world.topics["orders"] = 3
    options = ["--key", "k", "--header", "a=1", "-H", "b=x=y", "--partition", "2", "--acks", "1", "-z", "lz4"]
    assert run("produce", "orders", "v", *options).exit_code == 0
    (record,) = world.logs["orders", 2]
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("a", b"1"), ("b", b"x=y")))
    assert world.producers == [("1", "lz4")]


def test_acks_of_all_are_the_default(run: Run, world: World) -> None:
    run("produce", "orders", "v")
    assert world.producers == [("all", "none")]


def test_lines_are_split_into_key_and_value_at_the_first_separator(run: Run, world: World) -> None:
    assert run("produce", "orders", "-K", r"\t", "--null", "NIL", stdin="k\ta\tb\nk\tNIL\nNIL\tv\n").exit_code == 0
    assert [(r.key, r.value) for r in world.logs["orders", 0]] == [(b"k", b"a\tb"), (b"k", None), (None, b"v")]


def test_a_line_without_its_separator_fails_alone_and_is_named(run: Run, world: World) -> None:
    result = run("produce", "orders", "-K", ":", stdin="a:1\nbad\nc:3\n")
    assert values(world) == [b"1", b"3"]
    assert result.exit_code == 1
    assert "error: record 2 failed: no key separator ':' in it\n" in result.stderr
    assert "error: 1 record of 3 failed\n" in result.stderr
    assert result.stdout.startswith("2 records")


def test_a_null_without_a_key_fails(run: Run) -> None:
    result = run("produce", "orders", "NIL", "--null", "NIL")
    assert result.exit_code == 1
    assert "record 1 failed: a record needs a key or a value" in result.stderr


def test_refused_records_are_counted_and_the_first_ones_named(run: Run, world: World) -> None:
    too_large = RecordTooLarge("orders-0", size_bytes=2, limit_bytes=1)
    world.refuses = lambda record: too_large if record.value == b"big" else None
    result = run("produce", "orders", "a", *["big"] * 9, "z", "--json")
    assert result.exit_code == 1
    assert values(world) == [b"a", b"z"]
    reported = json.loads(result.stdout)
    assert (reported["topic"], reported["records"], reported["bytes"], reported["failed"]) == ("orders", 2, 2, 9)
    lines = result.stderr.splitlines()
    assert [line.partition(" failed")[0] for line in lines] == [
        "error: record 2",
        "error: record 3",
        "error: record 4",
        "error: 9 records of 11",
    ]


def test_when_the_agent_is_gone_the_rest_is_not_tried(run: Run, world: World) -> None:
    world.refuses = lambda record: gone()
    result = run("produce", "orders", stdin="\n".join(map(str, range(100_000))))
    assert result.exit_code == 1
    assert "no agent answers" in result.stderr
    failed = int(result.stderr.splitlines()[-1].split()[1].replace(",", ""))
    assert failed < 100_000


def test_a_partition_that_is_not_there_is_refused_before_anything_is_sent(run: Run, world: World) -> None:
    world.topics["orders"] = 2
    result = run("produce", "orders", "v", "--partition", "2")
    assert result.exit_code == 1
    assert result.stderr == "error: no such partition; topic=orders partition=2 allowed=0 to 1\n"


def test_a_topic_that_is_not_there_is_refused_where_the_agent_creates_none(run: Run, world: World) -> None:
    world.auto_create = False
    result = run("produce", "orders", "v")
    assert result.exit_code == 1
    assert "unknown topic or partition; name=orders" in result.stderr


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 7, 100])
def test_lines_are_the_same_however_the_input_is_cut(chunk_bytes: int) -> None:
    data = b"one\n\ntwo\n\x00three\nlast"
    splitter = LineSplitter()
    lines = [
        line for at in range(0, len(data), chunk_bytes) for line in splitter.feed(data[at : at + chunk_bytes])
    ] + splitter.finish()
    assert lines == data.split(b"\n")


def test_an_empty_marker_makes_an_empty_value_null() -> None:
    assert LineFormat(key=b"k", null=b"").record(b"").value is None
    assert LineFormat(key=b"k", null=b"").record(b"").key == b"k"
