"""sql rows: a table fits its terminal, and nothing in a value can steer it."""

from streamhouse.cli.sql.query_request import Number
from streamhouse.cli.sql.row_table import LiveTable, cell, fit_widths, record_lines, table_lines
from streamhouse.cli.sql.statement_runner import sql_error_lines
from streamhouse.errors import Mistake

COLUMNS = (("id", "BIGINT"), ("note", "STRING"))


def test_numbers_stand_at_the_right_and_null_is_said() -> None:
    rows: list[dict[str, object]] = [{"id": Number("7"), "note": None}, {"id": Number("1000"), "note": "x"}]
    assert table_lines(COLUMNS, rows, width=80, colours=False) == [
        "  id  note",
        "────  ────",
        "   7  NULL",
        "1000  x",
    ]


def test_the_widest_columns_give_way_first_and_say_so() -> None:
    rows = [{"id": Number("1"), "note": "x" * 100}]
    assert table_lines(COLUMNS, rows, width=20, colours=False)[2] == " 1  " + "x" * 15 + "…"


def test_a_table_that_can_not_fit_becomes_records_whose_long_values_go_on_below() -> None:
    columns = tuple((f"column_{at}", "STRING") for at in range(10))
    lines = table_lines(columns, [{name: "y" * 30 for name, _ in columns}], width=40, colours=False)
    assert lines[0].startswith("─ row 1 ─")
    assert lines[1:3] == ["column_0  " + "y" * 30, "column_1  " + "y" * 30]
    assert all(len(line) <= 60 for line in lines)
    (_, first, second) = record_lines((("a", ""),), [{"a": "z" * 45}], width=43, colours=False)
    assert first.endswith("z" * 40)
    assert second.strip() == "z" * 5


def test_nothing_is_cut_in_a_pipe() -> None:
    assert table_lines(COLUMNS, [{"id": Number("1"), "note": "x" * 500}], width=None, colours=False)[2].endswith(
        "x" * 500
    )


def test_wide_letters_take_their_room() -> None:
    lines = table_lines(
        (("a", ""), ("b", "")), [{"a": "漢字", "b": "|"}, {"a": "abcd", "b": "|"}], width=80, colours=False
    )
    assert lines[2:] == ["漢字  |", "abcd  |"]


def test_values_look_as_they_are() -> None:
    assert cell({"a": [Number("1.50"), None, True]}).text == '{"a": [1.50, null, true]}'
    assert cell("a\nb\x1b[31m").text == "a\\nb\\x1b[31m"
    assert cell("aGk=", "BINARY").text == "hi"
    assert cell("/w==", "BINARY").text == "0xff"
    assert cell(True).text == "true"


def test_widths_that_say_nothing_are_none() -> None:
    assert fit_widths([50, 50, 50], 20) is None
    assert fit_widths([3, 50], 30) == [3, 27]


def test_live_rows_keep_the_widths_of_the_first() -> None:
    table = LiveTable(COLUMNS, width=80, colours=False)
    first = list(table.lines([{"id": Number("1"), "note": "short"}]))
    second = list(table.lines([{"id": Number("2"), "note": "a longer one"}]))
    assert first == ["      id  note", "────────  ────────", "       1  short"]
    assert second == ["       2  a longe…"]


def test_a_mistake_has_a_caret_under_its_place() -> None:
    text = "SELECT a\nFROM\torders WHERE amout > 1"
    lines = sql_error_lines(text, [Mistake(2, 19, "no column amout", "amount?")], colours=False, source="x.sql")
    assert lines == [
        "error: no column amout (x.sql, line 2, column 19)",
        "  2 | FROM    orders WHERE amout > 1",
        "    |                      ^",
        "  hint: amount?",
    ]


def test_a_mistake_without_a_place_is_said_all_the_same() -> None:
    assert sql_error_lines("SELECT 1", [Mistake(0, 0, "no")], colours=False) == ["error: no"]


def test_of_a_very_long_line_the_part_around_the_place_is_shown() -> None:
    text = "SELECT " + "a, " * 200 + "wrong"
    _, line, caret = sql_error_lines(text, [Mistake(1, len(text) - 4, "no")], colours=False)
    assert line.endswith("wrong")
    assert line.index("wrong") == caret.index("^")
    assert len(line) < 120
