"""Runs SQL statements one after the other: prints the rows or writes them to a file, and shows errors with a caret."""

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import typer
from rich.cells import cell_len

from streamhouse.cli.output import (
    StatusLine,
    counted,
    escape_bytes,
    on_terminal,
    print_error,
    print_note,
    seconds,
    use_color,
)
from streamhouse.cli.sql.query_request import Output, QueryRequest, SqlRequest
from streamhouse.cli.sql.row_table import LiveTable, record_lines, table_lines
from streamhouse.cli.sql.worker_connection import ResultHeader, ResultStream, WorkerConnection
from streamhouse.clock import SystemClock
from streamhouse.errors import BadSql, Mistake, Rejected, StatementError
from streamhouse.sql.parser import parse
from streamhouse.sql.statements import Statement

TAB: Final = "    "
MAX_LINE: Final = 160
BEFORE: Final = 60
"""Maximum number of cells shown before the position in a long line."""


def sql_error_lines(text: str, mistakes: Sequence[Mistake], *, colours: bool, source: str = "") -> list[str]:
    """For each error: the message, the line of the text, a caret, and a hint."""
    lines: list[str] = []
    for mistake in mistakes:
        lines += _lines(text.split("\n"), mistake, colours, source)
    return lines


def _lines(text: Sequence[str], mistake: Mistake, colours: bool, source: str) -> list[str]:
    paint = typer.style if colours else _without_colors
    position = f"line {mistake.line}, column {mistake.column}" if mistake.line else ""
    where = ", ".join(part for part in (source, position) if part)
    message = f"{paint('error:', fg='red', bold=True)} {mistake.text}" + (f" ({where})" if where else "")
    lines = [message]
    if 0 < mistake.line <= len(text):
        line, at = _source_excerpt(text[mistake.line - 1], max(0, mistake.column - 1))
        number = str(mistake.line)
        lines.append(f"  {paint(number + ' |', fg='cyan')} {line}")
        lines.append(f"  {' ' * len(number)} {paint('|', fg='cyan')} {' ' * at}{paint('^', fg='red', bold=True)}")
    if mistake.hint:
        lines.append(f"  {paint('hint:', fg='green')} {mistake.hint}")
    return lines


def _source_excerpt(line: str, at: int) -> tuple[str, int]:
    """The line as it is shown, and the number of cells before the position."""
    before, behind = (escape_bytes(part.replace("\t", TAB).encode()) for part in (line[:at], line[at:]))
    if cell_len(before) > MAX_LINE - BEFORE:
        before = "…" + before[-BEFORE:]
    return (before + behind)[:MAX_LINE], cell_len(before)


def _without_colors(text: str, **_: object) -> str:
    return text


QUIET_S: Final = 0.7
"""A query that takes longer gets a status line."""
TICK_S: Final = 0.5
PLAN: Final = (("plan", "STRING"),)
"""The column of EXPLAIN's result: text with several lines."""
FAILED: Final = 1
STOPPED: Final = 130


def startup_message(waited_s: float) -> str:
    """The elapsed seconds are shown on a terminal only: into a pipe, the line is printed once."""
    waited = f" {waited_s:.0f} s" if sys.stderr.isatty() else ""
    return f"starting Spark for SQL: 5 to 20 seconds, then it keeps running …{waited}"


def statements_of(text: str) -> tuple[Statement, ...]:
    """Parse statements; raises `BadSql` with the position."""
    try:
        return parse(text)
    except StatementError as error:
        raise BadSql([Mistake(error.line, error.column, error.text, error.hint)]) from None


def at_original_position(text: str, statement: Statement) -> str:
    """Blank out all other statements, so that lines and columns of errors are those of the text."""
    start, stop = statement.span
    return "".join(sign if sign == "\n" else " " for sign in text[:start]) + text[start:stop]


def run_request(request: SqlRequest, connect: Callable[..., WorkerConnection]) -> int:
    """Run all statements up to the first that fails; returns the exit code."""
    status = StatusLine()
    try:
        return asyncio.run(_run(request, connect, status))
    except KeyboardInterrupt:
        status.clear()
        print_note("cancelled")
        return STOPPED


async def _run(request: SqlRequest, connect: Callable[..., WorkerConnection], status: StatusLine) -> int:
    try:
        statements = statements_of(request.text)
        if request.output is Output.PARQUET and len(statements) != 1:
            raise Rejected(f"a Parquet file takes the rows of one statement; statements={len(statements)}")
        async with connect(
            request.agents, on_wait=lambda waited_s: status.show(startup_message(waited_s))
        ) as connection:
            await connection.connect()
            for statement in statements:
                await _print(connection, request, at_original_position(request.text, statement), status)
    except BadSql as error:
        status.clear()
        for line in sql_error_lines(request.text, error.mistakes, colours=use_color(), source=request.source):
            typer.echo(line, err=True)
        return FAILED
    finally:
        status.clear()
    return 0


async def _print(connection: WorkerConnection, request: SqlRequest, sql: str, status: StatusLine) -> None:
    query = request.query(sql)
    if request.output is Output.TABLE:
        await show_result(connection, query, status, Display())
        return
    async with open_result(connection, query, status) as result:
        for note in result.head.notes:
            print_note(note)
        if request.output is Output.PARQUET:
            await _write_parquet(result, request)
        else:
            await _copy(result, is_json=request.output is Output.JSON)
        if result.head.truncated:
            print_note(f"only the first {query.max_rows:,} rows; --max-rows N takes more")


async def _copy(result: ResultStream, *, is_json: bool) -> None:
    async for line in result.lines():
        if is_json and not line:  # a heartbeat
            continue
        sys.stdout.write(line + "\n")
        if result.head.is_live:
            sys.stdout.flush()
    sys.stdout.flush()


async def _write_parquet(result: ResultStream, request: SqlRequest) -> None:
    """Write a temporary file and rename it when it is complete."""
    import pyarrow as pa
    from pyarrow import parquet

    assert request.file is not None
    content = b"".join([part async for part in result.parts()])
    table = pa.ipc.open_stream(content).read_all()
    making = request.file.with_name(request.file.name + ".making")
    try:
        await asyncio.to_thread(parquet.write_table, table, making)
        making.replace(request.file)
    finally:
        making.unlink(missing_ok=True)
    print_note(f"{counted(table.num_rows, 'row')} in {request.file}")


@asynccontextmanager
async def open_result(
    connection: WorkerConnection, query: QueryRequest, status: StatusLine
) -> AsyncIterator[ResultStream]:
    """Open the result of a query; show the elapsed time while it runs."""
    status_task = asyncio.create_task(_show_elapsed(status), name="talking")
    try:
        async with connection.query(query) as result:
            status_task.cancel()
            status.clear()
            yield result
    finally:
        status_task.cancel()
        status.clear()


async def _show_elapsed(status: StatusLine) -> None:
    clock = SystemClock()
    began = clock.monotonic()
    await clock.sleep(QUIET_S)
    while sys.stderr.isatty():
        status.show(f"running … {clock.monotonic() - began:.0f} s (Ctrl-C cancels)")
        await clock.sleep(TICK_S)


class Display:
    """Display settings: rows as records or as a table, with times, the width."""

    def __init__(self) -> None:
        self.as_records = False
        self.timing = on_terminal()

    @property
    def width(self) -> int | None:
        """None: a pipe gets complete values."""
        return shutil.get_terminal_size().columns if on_terminal() else None

    def show(self, lines: Iterable[str]) -> None:
        for line in lines:
            typer.echo(line)


async def show_result(connection: WorkerConnection, query: QueryRequest, status: StatusLine, screen: Display) -> None:
    """Print a table and the number of rows; rows of a live query as they arrive."""
    clock = SystemClock()
    began = clock.monotonic()
    async with open_result(connection, query, status) as result:
        for note in result.head.notes:
            print_note(typer.style(note, dim=True) if use_color() else note)
        if result.head.is_live:
            await _show_live(result, screen)
            return
        rows = [row async for row in result.rows()]
    took = f", {seconds(clock.monotonic() - began)}" if screen.timing else ""
    show_rows(result.head, rows, screen, took)


def show_rows(head: ResultHeader, rows: list[dict[str, Any]], screen: Display, took: str) -> None:
    columns = _columns(head, rows)
    if columns == PLAN:
        screen.show(str(row["plan"]) for row in rows)
        return
    show = record_lines if screen.as_records else table_lines
    screen.show(show(columns, rows, width=screen.width, colours=use_color()))
    more = " and there are more" if head.truncated else ""
    if on_terminal():
        summary = f"({counted(len(rows), 'row')}{more}{took})"
        typer.echo(typer.style(summary, dim=True) if use_color() else summary)
    elif more:
        print_note(f"only the first {counted(len(rows), 'row')}; --max-rows N shows more")


def _columns(head: ResultHeader, rows: list[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    if head.columns or not rows:
        return head.columns
    return tuple((name, "") for name in rows[0])


async def _show_live(result: ResultStream, screen: Display) -> None:
    if on_terminal():
        print_note("live: rows appear as they are written; Ctrl-C ends it")
    table, shown = LiveTable(result.head.columns, width=screen.width, colours=use_color()), 0
    async for row in result.rows():
        screen.show(table.lines([row]))
        shown += 1
    print_note(f"the live query ended after {counted(shown, 'row')}; --max-rows and --timeout say when")


def print_sql_errors(text: str, error: Exception) -> None:
    """Print the errors of a statement."""
    if isinstance(error, BadSql):
        for line in sql_error_lines(text, error.mistakes, colours=use_color()):
            typer.echo(line, err=True)
    else:
        print_error(str(error))
