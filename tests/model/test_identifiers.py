"""Names and texts that go into SQL come out of it as they were."""

from pathlib import Path

import pytest

from streamhouse.errors import StatementError
from streamhouse.model import identifiers
from streamhouse.model.identifiers import (
    join_identifiers,
    quote_identifier,
    quote_if_needed,
    quote_postgresql_identifier,
    quote_string,
    split_identifiers,
)
from streamhouse.sql.lake_tables import LakeTableSpec, statements_of, stored_table
from streamhouse.sql.lexer import TokenKind, tokenize
from streamhouse.sql.options import parse_columns, parse_watermarks, pipeline_options
from streamhouse.sql.parser import parse
from streamhouse.sql.statements import CreatePipeline, CreateTable

NAMES = (
    "plain",
    "a.b",
    "it`s",
    "``",
    'say "hi"',
    "it's",
    "two words",
    "Größe 大",
    "a,b",
    " led",
    "select",
    "x\\y",
    "{}",
    "1st",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_quoted_name_is_read_as_one_name(name: str) -> None:
    token, end = tokenize(quote_identifier(name))
    assert (token.kind, token.value, end.kind) == (TokenKind.NAME, name, TokenKind.END)
    token, end = tokenize(quote_if_needed(name))
    assert (token.value, end.kind) == (name, TokenKind.END)


@pytest.mark.parametrize("text", [*NAMES, "C:\\data\\'x'", "two\nlines", "", "ends with \\", "'; DROP TABLE x; --"])
def test_a_quoted_string_is_read_as_one_string(text: str) -> None:
    token, end = tokenize(quote_string(text))
    assert (token.kind, token.value, end.kind) == (TokenKind.TEXT, text, TokenKind.END)


def test_postgresql_has_quotes_of_its_own() -> None:
    assert quote_postgresql_identifier('say "hi"') == '"say ""hi"""'


@pytest.mark.parametrize("names", [NAMES, *((name,) for name in NAMES)])
def test_a_list_of_names_is_read_as_it_was_written(names: tuple[str, ...]) -> None:
    assert split_identifiers(join_identifiers(names)) == names
    assert parse_columns(join_identifiers(names)) == names


@pytest.mark.parametrize("text", ["", " ", "a,", ",a", "a,,b", "`a", "a`b", "``"])
def test_what_is_no_list_of_names_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="commas between"):
        split_identifiers(text)


def test_watermarks_name_any_column() -> None:
    text = ", ".join(f"{quote_identifier(name)} {at + 1} seconds" for at, name in enumerate(NAMES))
    assert [each.column for each in parse_watermarks(text)] == list(NAMES)


def test_a_lake_table_of_odd_names_is_kept_as_it_was_requested() -> None:
    request = LakeTableSpec(
        name="shop.orders-1",
        topic="shop.orders",
        connector="delta",
        location="/data/it's\\here/`x`",
        mode="upsert",
        key=("a,b", "it`s", "plain"),
        commit_interval="1m",
    )
    table, pipeline = parse(statements_of(request))
    assert isinstance(table, CreateTable)
    assert isinstance(pipeline, CreatePipeline)
    assert table.table.options["location"] == request.location
    assert pipeline_options(pipeline.options).key == request.key
    body = {"name": table.table.name, "connector": "delta", "options": table.table.options}
    writer = {"text": pipeline.text, "key": list(request.key), "options": pipeline.options}
    kept = stored_table(body, writer)
    assert (kept.name, kept.topic, kept.location, kept.key) == (
        request.name,
        request.topic,
        request.location,
        request.key,
    )


def test_a_name_that_could_not_be_a_topics_is_refused_with_what_could() -> None:
    with pytest.raises(StatementError, match="letters, digits, dots, dashes, underscores"):
        parse("CREATE TABLE `it``s` WITH (connector = 'topic')")


def test_names_are_quoted_nowhere_else() -> None:
    """Spelled so that this file has none of it."""
    tick, quote = chr(96), chr(34)
    signs = (f"{quote}{tick * 2}{quote}", f"'{tick * 2}'", f"f{quote}{tick}{{", f"'{quote * 2}'", f"F.col(f{quote}")
    source = Path(identifiers.__file__).parents[1]
    result = {
        path.relative_to(source).as_posix()
        for path in (source / "spark").rglob("*.py")
        if any(sign in path.read_text() for sign in signs)
    }
    assert result - {"spark/worker/result_formats.py"} == set()  # CSV has quotes of its own
