"""consume: from where, until when, and what a line looks like."""

import base64
import json

import pytest

from streamhouse.cli.commands.consume import CHECK_AFTER_S, POLL_S, SilenceNotice
from streamhouse.cli.commands.record_lines import RecordParts, as_json, columns, raw
from streamhouse.cli.output import parse_time
from streamhouse.client.types import Cluster, Record
from streamhouse.errors import Unavailable
from tests.cli.conftest import Run
from tests.cli.fakes import FakeAdmin, World, gone

HOUR_MS = 3_600_000
NASTY = Record(
    topic="t",
    partition=3,
    offset=9,
    timestamp_ms=1_700_000_000_123,
    key=b"k\x1b[31m",
    value=b"caf\xc3\xa9\nnext\xff\x07",
    headers=(("h", b"1"), ("h", None)),
)


@pytest.fixture
def orders(world: World) -> World:
    for number in range(5):
        world.append("orders", b"%d" % number, key=b"k", timestamp_ms=1_000 * number)
    return world


def test_a_pipe_gets_all_values_up_to_the_present_end(run: Run, orders: World) -> None:
    result = run("consume", "orders")
    assert (result.exit_code, result.stdout) == (0, "0\n1\n2\n3\n4\n")


def test_records_that_come_while_reading_are_left_to_the_next_reader(run: Run, orders: World) -> None:
    orders.configs["orders"] = {"late": "yes"}
    assert run("consume", "orders", "--from-beginning").stdout == "0\n1\n2\n3\n4\n"


def test_following_starts_at_the_end_and_stops_cleanly_at_ctrl_c(run: Run, orders: World) -> None:
    result = run("consume", "orders", "--follow")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert run("consume", "orders", "--follow", "--from-beginning").stdout == "0\n1\n2\n3\n4\n"


def test_so_many_records_and_no_more(run: Run, orders: World) -> None:
    assert run("consume", "orders", "-n", "2").stdout == "0\n1\n"
    assert run("consume", "orders", "-n", "2", "--follow", "--from-beginning").stdout == "0\n1\n"


def test_from_an_offset_on_or_so_many_before_the_end(run: Run, orders: World) -> None:
    assert run("consume", "orders", "--offset", "3").stdout == "3\n4\n"
    assert run("consume", "orders", "--offset", "-2").stdout == "3\n4\n"
    assert run("consume", "orders", "--offset", "-99").stdout == "0\n1\n2\n3\n4\n"
    assert run("consume", "orders", "--offset", "5").stdout == ""


def test_an_offset_that_is_not_there_is_refused_with_the_range(run: Run, orders: World) -> None:
    result = run("consume", "orders", "--offset", "6")
    assert result.exit_code == 1
    assert "partition=orders-0 offset=6 start=0 end=5" in result.stderr


def test_from_a_time_on(run: Run, orders: World) -> None:
    assert run("consume", "orders", "--from-time", "2500").stdout == "3\n4\n"
    assert run("consume", "orders", "--from-time", "1970-01-01T00:00:04+00:00").stdout == "4\n"
    assert run("consume", "orders", "--from-time", "-1h").stdout == ""


def test_only_the_partitions_requested(run: Run, world: World) -> None:
    world.topics["orders"] = 3
    for number in range(3):
        world.append("orders", b"%d" % number, partition=number)
    assert run("consume", "orders", "-p", "2", "-p", "0").stdout == "0\n2\n"
    result = run("consume", "orders", "--partition", "3")
    assert result.stderr == "error: no such partition; topic=orders partition=3 allowed=0 to 2\n"


def test_an_unknown_topic_is_not_created_by_reading_it(run: Run, world: World) -> None:
    assert run("consume", "nothing").exit_code == 1
    assert world.topics == {}


def test_an_empty_topic_ends_at_once(run: Run, world: World) -> None:
    world.topics["orders"] = 2
    assert run("consume", "orders").exit_code == 0


def test_json_has_one_object_a_line(run: Run, orders: World) -> None:
    lines = run("consume", "orders", "--json", "-n", "2").stdout.splitlines()
    assert json.loads(lines[1]) == {
        "partition": 0,
        "offset": 1,
        "timestamp": 1000,
        "key": "k",
        "value": "1",
        "headers": [],
    }


def test_raw_lines_have_tabs_between_what_was_requested(run: Run, orders: World) -> None:
    result = run("consume", "orders", "-n", "1", "--with-keys", "--with-headers", "--with-offsets")
    assert result.stdout == "0\t0\t0\t\tk\t0\n"


def test_a_pipe_gets_the_values_own_bytes() -> None:
    assert raw(RecordParts())(NASTY) == b"caf\xc3\xa9\nnext\xff\x07\n"
    empty = Record(topic="t", partition=0, offset=0, timestamp_ms=0, key=None, value=None)
    assert raw(RecordParts(keys=True))(empty) == b"null\tnull\n"


def test_json_keeps_bytes_that_are_no_text() -> None:
    result = json.loads(as_json(NASTY))
    assert result["key"] == "k\x1b[31m"
    assert "value" not in result
    assert base64.b64decode(result["value_base64"]) == NASTY.value
    assert result["headers"] == [{"key": "h", "value": "1"}, {"key": "h", "value": None}]


def test_no_record_can_steer_the_terminal() -> None:
    line = columns(RecordParts(keys=True, headers=True, offsets=True), coloured=False)(NASTY)
    assert line.count(b"\n") == 1
    assert b"\x1b" not in line
    assert b"\x07" not in line
    assert "café\\nnext\\xff\\x07" in line.decode()
    assert line.decode().startswith("  3:9         2023-11-14 22:13:20.123Z  k\\x1b[31m")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-1h", 10 * HOUR_MS - HOUR_MS),
        ("-10m", 10 * HOUR_MS - 600_000),
        ("-250ms", 10 * HOUR_MS - 250),
        ("-500", 10 * HOUR_MS - 500),
        ("1731672000000", 1_731_672_000_000),
        ("2026-11-15T12:00:00Z", 1_794_744_000_000),
    ],
)
def test_times_as_people_write_them(text: str, expected: int) -> None:
    assert parse_time(text, now_ms=10 * HOUR_MS) == expected


@pytest.mark.parametrize("text", ["", "-", "-1x", "soon", "2026-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"isoformat|not a number|unknown unit|month"):
        parse_time(text, now_ms=0)


class FlakyAdmin(FakeAdmin):
    async def cluster(self) -> Cluster:
        if self._world.away:
            raise gone()
        return await super().cluster()


SILENT_POLLS = int(CHECK_AFTER_S / POLL_S)


async def test_reading_to_the_end_fails_when_the_agent_has_gone(world: World) -> None:
    watch = SilenceNotice(FlakyAdmin(world, "127.0.0.1:9092"), keep_waiting=False)
    for _ in range(SILENT_POLLS):
        await watch.after([])
    world.away = True
    for _ in range(SILENT_POLLS - 1):
        await watch.after([])
    with pytest.raises(Unavailable):
        await watch.after([])


async def test_a_follower_waits_for_an_agent_and_says_so_once(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    watch = SilenceNotice(FlakyAdmin(world, "127.0.0.1:9092"), keep_waiting=True)
    world.away = True
    for _ in range(3 * SILENT_POLLS):
        await watch.after([])
    world.away = False
    for _ in range(2 * SILENT_POLLS):
        await watch.after([])
    assert capsys.readouterr().err.splitlines() == [
        "no agent answers on 127.0.0.1:9092; start one with: streamhouse up (waiting for it)",
        "the agent is back",
    ]
