"""Tables fit where they are shown, and words are what people read."""

import pytest

from streamhouse.cli.output import (
    Column,
    counted,
    escape_bytes,
    format_time,
    plain_lines,
    seconds,
    select_columns,
    size,
)

COLUMNS = [Column("name"), Column("long", drop=1), Column("longer", drop=2)]
ROWS = [["a" * 10, "b" * 10, "c" * 10]]


def test_a_narrow_terminal_loses_the_columns_that_matter_least() -> None:
    assert select_columns(COLUMNS, ROWS, width=34) == [0, 1, 2]
    assert select_columns(COLUMNS, ROWS, width=33) == [0, 1]
    assert select_columns(COLUMNS, ROWS, width=21) == [0]
    assert select_columns(COLUMNS, ROWS, width=1) == [0]


def test_a_table_without_rows_fits_its_names() -> None:
    assert select_columns(COLUMNS, [], width=18) == [0, 1, 2]
    assert select_columns(COLUMNS, [], width=17) == [0, 1]


def test_a_pipe_gets_aligned_columns_that_are_never_cut() -> None:
    lines = plain_lines(["name", "n"], [["a", "1"], ["b" * 200, "1,000"]], ["left", "right"])
    assert lines == [f"{'name':200}      n", f"{'a':200}      1", f"{'b' * 200}  1,000"]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (64 * 2**20, "64.0 MiB"), (2**60, "1024.0 PiB")],
)
def test_sizes(number: int, text: str) -> None:
    assert size(number) == text


def test_times_that_no_calendar_knows_are_numbers() -> None:
    assert format_time(0) == "1970-01-01 00:00:00.000Z"
    assert format_time(-1) == "-"
    assert format_time(2**63 - 1) == str(2**63 - 1)


def test_counts_and_durations() -> None:
    assert (counted(1, "record"), counted(2000, "record")) == ("1 record", "2,000 records")
    assert (seconds(0.0142), seconds(12.34)) == ("14 ms", "12.3 s")


def test_bytes_for_people_have_no_control_characters() -> None:
    assert escape_bytes(b"\x00\t\x1b]0;x\x07\xc2\x9b31m") == "\\x00\\t\\x1b]0;x\\x07\\x9b31m"
    assert escape_bytes(None) == "null"
