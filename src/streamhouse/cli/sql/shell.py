"""SQL shell: a prompt for statements over several lines, with history, completion and tables.

Data path a user -> **shell** -> statement_runner -> worker_connection -> a worker Owns the prompt, backslash commands,
Ctrl-C, which ends a query and not the shell Leaves queries and output to `statement_runner`, names to `completion`

Spark starts while the user types the first query. The shell prints errors and shows the prompt again.
"""

import asyncio
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import typer
from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer  # type: ignore[import-untyped]

from streamhouse.cli.output import StatusLine, print_error, print_line, print_note
from streamhouse.cli.sql.completion import COMMANDS, CompletionNames, NameCompleter
from streamhouse.cli.sql.query_request import SHOWN_ROWS, QueryRequest, SqlRequest
from streamhouse.cli.sql.statement_runner import (
    Display,
    at_original_position,
    print_sql_errors,
    show_result,
    startup_message,
    statements_of,
)
from streamhouse.cli.sql.worker_connection import WorkerConnection
from streamhouse.clock import SystemClock
from streamhouse.errors import BadSql, StatementError, StreamhouseError
from streamhouse.model.identifiers import quote_if_needed
from streamhouse.spark.worker.discovery import base_folder
from streamhouse.sql.lexer import TokenKind, tokenize

PROMPT: Final = "sql> "
MORE: Final = "...> "
REFRESH_NAMES_S: Final = 20.0
MAX_WATCH_S: Final = 3600.0
WATCH_S: Final = 2.0


def is_complete(text: str) -> bool:
    """Whether Enter submits the text: it ends with `;`, is a backslash command, or is empty."""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\") or "\\watch" in stripped.rpartition(";")[2]:
        return True
    try:
        signs = [token for token in tokenize(text) if token.kind is not TokenKind.END]
    except StatementError:  # a string or a comment that isn't closed yet
        return False
    return bool(signs) and signs[-1].is_sign(";")


class Shell:
    """`connect` opens the connection to the worker."""

    def __init__(self, request: SqlRequest, connect: Callable[..., WorkerConnection]) -> None:
        self._request, self._connect = request, connect
        self._describe_error, self._screen, self._status = CompletionNames(), Display(), StatusLine()
        self._waited_s = 0.0
        self._last = ""
        self._learnt_at: float | None = None
        self._clock = SystemClock()

    async def run(self) -> None:
        async with self._connect(self._request.agents, on_wait=self._on_wait) as connection:
            connecting = asyncio.create_task(self._prepare(connection), name="connecting")
            try:
                await self._prompts(connection)
            finally:
                connecting.cancel()
                with suppress(asyncio.CancelledError):
                    await connecting

    def _on_wait(self, waited_s: float) -> None:
        self._waited_s = waited_s

    async def _prepare(self, connection: WorkerConnection) -> None:
        """Errors are ignored here: the next query tries again and reports them."""
        with suppress(StreamhouseError, OSError):
            await connection.connect()
            await self._refresh_names(connection)

    async def _refresh_names(self, connection: WorkerConnection) -> None:
        with suppress(StreamhouseError, OSError):
            self._describe_error.update(await connection.complete())
            self._learnt_at = self._clock.monotonic()

    async def _prompts(self, connection: WorkerConnection) -> None:
        session = self._session(connection)
        print_line("SQL on topics, with Spark. \\? helps, \\q leaves; statements end with ;", dim=True)
        while True:
            try:
                text = (await session.prompt_async(PROMPT)).strip()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if text in ("\\q", "exit", "quit", "exit;", "quit;"):
                return
            if text:
                await self._cancellable(self._execute_input(connection, text))

    def _session(self, connection: WorkerConnection) -> "PromptSession[str]":
        return PromptSession(
            history=FileHistory(str(_history_file())),
            completer=NameCompleter(self._describe_error),
            complete_in_thread=True,
            lexer=PygmentsLexer(SqlLexer),
            multiline=True,
            prompt_continuation=MORE,
            key_bindings=_bindings(),
            enable_open_in_editor=True,
            bottom_toolbar=lambda: (
                None if connection.is_connected or not self._waited_s else startup_message(self._waited_s)
            ),
            refresh_interval=0.5,
        )

    async def _cancellable(self, work: Coroutine[Any, Any, None]) -> None:
        """Ctrl-C cancels the work, and with it the query; the shell continues."""
        task = asyncio.create_task(work, name="statement")
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            self._status.clear()
            print_note("cancelled")
        except (StreamhouseError, OSError) as error:
            self._status.clear()
            print_error(_describe_error(error))
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    # --- what is typed

    async def _execute_input(self, connection: WorkerConnection, text: str) -> None:
        sql, watch, seconds = text.rpartition("\\watch")
        if watch:
            await self._watch(connection, sql.strip() or self._last, seconds.strip())
        elif text.startswith("\\"):
            await self._command(connection, text)
        else:
            await self._ask(connection, text)

    async def _command(self, connection: WorkerConnection, text: str) -> None:
        name, _, given = text.partition(" ")
        given = given.strip().rstrip(";")
        if name == "\\d":
            await self._ask(connection, f"DESCRIBE {_quote_name(given)}" if given else "SHOW TABLES", keep=False)
        elif name == "\\x":
            self._screen.as_records = not self._screen.as_records
            print_line("rows below each other" if self._screen.as_records else "rows as a table", dim=True)
        elif name == "\\timing":
            self._screen.timing = not self._screen.timing
            print_line(f"timing is {'on' if self._screen.timing else 'off'}", dim=True)
        elif name == "\\i" and given:
            await self._ask(connection, await asyncio.to_thread(_read, given), keep=False)
        elif name == "\\e":
            await self._edit(connection)
        else:
            if name != "\\?":
                print_note(f"{name} is not a command, or lacks its argument")
            for command, about in COMMANDS.items():
                typer.echo(f"  {command:<9} {about}")
            typer.echo("  Tab completes, Ctrl-C ends a query, Ctrl-X Ctrl-E edits what is typed.")

    async def _ask(self, connection: WorkerConnection, text: str, *, keep: bool = True) -> None:
        if keep:
            self._last = text
        try:
            await self._connected(connection)
            for statement in statements_of(text):
                query = QueryRequest(
                    sql=at_original_position(text, statement),
                    max_rows=self._request.max_rows or SHOWN_ROWS,
                    timeout_s=self._request.timeout_s,
                    starting=self._request.starting,
                )
                await show_result(connection, query, self._status, self._screen)
        except BadSql as error:
            self._status.clear()
            print_sql_errors(text, error)
        if self._learnt_at is None or self._clock.monotonic() - self._learnt_at > REFRESH_NAMES_S:
            self._learnt_at = self._clock.monotonic()
            self._refreshing = asyncio.create_task(self._refresh_names(connection), name="learning")

    async def _connected(self, connection: WorkerConnection) -> None:
        connecting = asyncio.create_task(connection.connect(), name="connecting")
        try:
            while not (await asyncio.wait({connecting}, timeout=0.2))[0]:
                self._status.show(startup_message(self._waited_s))
            self._status.clear()
            await connecting
        finally:
            connecting.cancel()

    async def _watch(self, connection: WorkerConnection, sql: str, seconds: str) -> None:
        try:
            pause_s = min(MAX_WATCH_S, max(0.1, float(seconds or WATCH_S)))
        except ValueError:
            print_note(f"\\watch takes seconds, not {seconds}")
            return
        if not sql:
            print_note("there is nothing to watch yet: run a query first")
            return
        while True:
            print_line(f"{datetime.now():%H:%M:%S}, every {pause_s:g} s, until Ctrl-C", dim=True)
            await self._ask(connection, sql)
            await self._clock.sleep(pause_s)

    async def _edit(self, connection: WorkerConnection) -> None:
        with tempfile.TemporaryDirectory(prefix="streamhouse-") as folder:
            file = Path(folder) / "statement.sql"
            file.write_text(self._last + "\n")
            editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
            await asyncio.to_thread(subprocess.run, [*editor, str(file)], check=False)
            text = file.read_text().strip()
        if text and text != self._last:
            typer.echo(text)
            await self._ask(connection, text)


def _describe_error(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{(error.strerror or 'failed').lower()}; path={error.filename}"
    return str(error)


def _quote_name(typed: str) -> str:
    return typed if typed.startswith("`") else quote_if_needed(typed)


def _read(path: str) -> str:
    return Path(path).expanduser().read_text(encoding="utf-8")


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings


def _history_file() -> Path:
    """Open the history of queries; only its user may read it."""
    folder = base_folder(os.environ)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / "history"
    file.touch(mode=0o600)
    return file


def run_shell(request: SqlRequest, connect: Callable[..., WorkerConnection]) -> int:
    asyncio.run(Shell(request, connect).run())
    return 0
