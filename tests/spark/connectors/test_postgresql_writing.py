"""A micro-batch reaches PostgreSQL once, whatever is killed on the way."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamhouse.errors import Misconfigured, PipelineMoved, Rejected, Unavailable
from streamhouse.spark.connectors.postgresql import writer
from streamhouse.spark.connectors.postgresql.connection import connect, dsn_of, variable_of
from streamhouse.spark.connectors.postgresql.writer import (
    MicroBatch,
    TargetColumn,
    WriteTable,
    insert,
    prepare_progress,
    take_over,
    write_batch,
)
from tests.spark.conftest import PASSWORD
from tests.spark.connectors.conftest import Ask
from tests.spark.connectors.killed_writer import TARGET, rows
from tests.spark.pipelines.live import until
from tests.support.postgres import RealPostgres

pytestmark = pytest.mark.postgres

FIRST = MicroBatch(pipeline="p", query_id="q", batch_id=0, epoch=1)
TOTALS = "CREATE TABLE totals (id bigint PRIMARY KEY, total bigint)"
KEYED = replace(TARGET, key=("id",))


async def write(target: WriteTable, micro_batch: MicroBatch, *batches: pa.RecordBatch) -> bool:
    await prepare_progress(target)
    return await write_batch(target, micro_batch, batches)


def test_the_variable_of_a_connection_is_named_after_it() -> None:
    assert variable_of("sales-eu.2") == "STREAMHOUSE_CONNECTION_SALES_EU_2"
    with pytest.raises(Misconfigured, match="do=set STREAMHOUSE_CONNECTION_SALES=postgresql://"):
        dsn_of("sales", {})


def test_rows_of_a_key_replace_each_other_and_the_last_one_stays() -> None:
    assert insert(KEYED) == (
        'INSERT INTO "public"."totals" ("id", "total") SELECT DISTINCT ON ("id") "id", "total"'
        ' FROM pg_temp.streamhouse_batch ORDER BY "id", streamhouse_ordinal DESC'
        ' ON CONFLICT ("id") DO UPDATE SET "total" = EXCLUDED."total"'
    )


async def test_a_micro_batch_that_comes_again_is_left_out(ask: Ask) -> None:
    await asyncio.to_thread(ask, "CREATE TABLE totals (id bigint, total bigint)")
    assert await write(TARGET, FIRST, *rows())
    assert not await write(TARGET, FIRST, *rows())
    assert await write(TARGET, replace(FIRST, batch_id=1), *rows())
    assert await write(TARGET, replace(FIRST, query_id="another"), *rows())
    assert await asyncio.to_thread(ask, "SELECT count(*) FROM totals") == [(12,)]


async def test_who_has_lost_the_pipeline_writes_nothing(ask: Ask) -> None:
    await asyncio.to_thread(ask, "CREATE TABLE totals (id bigint, total bigint)")
    await write(TARGET, replace(FIRST, epoch=7), *rows())
    with pytest.raises(Rejected, match=r"pipeline moved; pipeline=p epoch=6 why=.* 7"):
        await write(TARGET, replace(FIRST, epoch=6, batch_id=1), *rows())
    assert await asyncio.to_thread(ask, "SELECT count(*) FROM totals") == [(4,)]


async def test_a_take_over_counts_before_the_new_owner_has_written(ask: Ask) -> None:
    await asyncio.to_thread(ask, "CREATE TABLE totals (id bigint, total bigint)")
    await write(TARGET, FIRST, *rows())
    await take_over(TARGET, replace(FIRST, epoch=2))
    with pytest.raises(PipelineMoved, match="pipeline=p epoch=1"):
        await write_batch(TARGET, replace(FIRST, batch_id=1), rows())
    with pytest.raises(PipelineMoved, match="pipeline=p epoch=1"):
        await take_over(TARGET, FIRST)
    assert await asyncio.to_thread(ask, "SELECT batch_id, epoch FROM streamhouse_progress") == [(0, 2)]
    assert not await write_batch(TARGET, replace(FIRST, epoch=2), rows())  # it is there
    assert await write_batch(TARGET, replace(FIRST, epoch=2, batch_id=1), rows())
    assert await asyncio.to_thread(ask, "SELECT count(*) FROM totals") == [(8,)]


async def test_a_query_of_the_generation_before_a_restart_writes_nothing(ask: Ask) -> None:
    await asyncio.to_thread(ask, "CREATE TABLE totals (id bigint, total bigint)")
    before = replace(FIRST, lineage="p@1")
    await write(TARGET, before, *rows())
    anew = replace(before, query_id="another", epoch=2)
    await take_over(TARGET, anew)
    with pytest.raises(PipelineMoved, match="pipeline=p epoch=1"):
        await write_batch(TARGET, replace(before, batch_id=1), rows())
    with pytest.raises(PipelineMoved, match="pipeline=p epoch=1"):
        await take_over(TARGET, replace(before, query_id="a third one"))
    assert await write_batch(TARGET, anew, rows())
    assert await asyncio.to_thread(ask, "SELECT count(*) FROM totals") == [(8,)]


async def test_a_runner_that_learns_before_the_commit_that_the_pipeline_is_gone_writes_nothing(ask: Ask) -> None:
    def dropped() -> None:
        raise PipelineMoved("p", epoch=1, why="it was dropped")

    await asyncio.to_thread(ask, "CREATE TABLE totals (id bigint, total bigint)")
    await write(TARGET, FIRST, *rows())
    with pytest.raises(PipelineMoved):
        await write_batch(TARGET, replace(FIRST, batch_id=1), rows(), before_commit=dropped)
    assert await asyncio.to_thread(ask, "SELECT count(*) FROM totals") == [(4,)]


async def test_who_is_stopped_between_the_question_and_the_commit_writes_nothing_later(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody takes a dropped pipeline over, so that no greater epoch is in the table."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"

    def stopped() -> None:
        until(lambda: ask(waiting) == [(0,)], "the server ends a transaction that waits for its end")

    await asyncio.to_thread(ask, "CREATE TABLE totals (id bigint, total bigint)")
    await write(TARGET, FIRST, *rows())
    monkeypatch.setattr(writer, "COMMIT_WITHIN_S", 0.1)
    with pytest.raises(Unavailable):
        await write_batch(TARGET, replace(FIRST, batch_id=1), rows(), before_commit=stopped)
    assert await asyncio.to_thread(ask, "SELECT count(*) FROM totals") == [(4,)]
    monkeypatch.undo()
    assert await write_batch(TARGET, replace(FIRST, batch_id=1), rows())


@pytest.mark.parametrize("query_id", [FIRST.query_id, "another"])
async def test_a_take_over_ends_a_transaction_that_its_predecessor_has_open(ask: Ask, query_id: str) -> None:
    """A process that was stopped keeps its locks for as long as the server lets it."""
    await asyncio.to_thread(ask, "CREATE TABLE totals (id bigint, total bigint)")
    await prepare_progress(TARGET)
    began, goes_on = threading.Event(), threading.Event()

    def stopped() -> Iterator[pa.RecordBatch]:
        yield from rows()
        began.set()
        goes_on.wait(60)

    before = replace(FIRST, lineage="p@1")
    after = replace(before, query_id=query_id, epoch=2)
    writing = asyncio.ensure_future(write_batch(TARGET, before, stopped()))
    try:
        await asyncio.to_thread(began.wait, 60)
        await asyncio.wait_for(take_over(TARGET, after), 60)
    finally:
        goes_on.set()
    with pytest.raises(Unavailable):
        await writing
    assert await asyncio.to_thread(ask, "SELECT count(*) FROM totals") == [(0,)]
    assert await write_batch(TARGET, after, rows())


def test_a_process_that_is_killed_behind_a_step_leaves_all_rows_or_none(ask: Ask) -> None:
    ask("CREATE TABLE totals (id bigint, total bigint)")
    steps = ["streamhouse_progress", "FOR UPDATE", "CREATE", "COPY", "SELECT", "UPDATE", "COMMIT;"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connectors.killed_writer", *steps],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["step"] for each in results if each["killed"] == signal.SIGKILL] == steps
    for each in results:
        is_committed = each["step"] == "COMMIT;"
        assert (each["left"], each["wrote"], each["after"]) == ((4, False, 4) if is_committed else (0, True, 4))
    assert ask("SELECT DISTINCT count(*) FROM totals GROUP BY id") == [(len(steps),)]


async def test_two_that_write_the_same_micro_batch_at_once_write_it_once(ask: Ask) -> None:
    await asyncio.to_thread(ask, "CREATE TABLE totals (id bigint, total bigint)")
    both = await asyncio.gather(*(write(TARGET, FIRST, *rows()) for _ in range(4)))
    assert sorted(both) == [False, False, False, True]
    assert await asyncio.to_thread(ask, "SELECT count(*) FROM totals") == [(4,)]


async def test_values_of_every_type_arrive(ask: Ask) -> None:
    columns = "n smallint, t text, d numeric(10,2), f float8, b boolean, day date, at timestamptz"
    columns += ", raw bytea, j jsonb, a int[]"
    await asyncio.to_thread(ask, f"CREATE TABLE kinds ({columns})")
    named = [each.strip().split(" ") for each in columns.replace("(10,2)", "").split(",")]
    target = WriteTable(
        connection="warehouse",
        schema="public",
        table="kinds",
        columns=tuple(TargetColumn(name=n, type=kind, is_array=kind == "int[]") for n, kind in named),
    )
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    values: dict[str, list[Any]] = {
        "n": [1, None],
        "t": ['a "quoted"\nline, and ü', ""],
        "d": [Decimal("-12.30"), None],
        "f": [float("inf"), None],
        "b": [True, None],
        "day": [date(2026, 1, 2), None],
        "at": pa.array([at, None], pa.timestamp("us", "Europe/Berlin")),
        "raw": [r"\x00ff", None],
        "j": ['{"a": [1, null]}', None],
        "a": ["[1, null, 3]", None],
    }
    await write(target, FIRST, pa.RecordBatch.from_pydict(values))
    result = await asyncio.to_thread(ask, "SELECT * FROM kinds")
    assert result == [
        (
            1,
            'a "quoted"\nline, and ü',
            Decimal("-12.30"),
            float("inf"),
            True,
            date(2026, 1, 2),
            at,
            b"\x00\xff",
            '{"a": [1, null]}',
            [1, None, 3],
        ),
        (None, "", *[None] * 8),
    ]


async def test_a_table_of_progress_that_can_not_be_written_is_reported(ask: Ask) -> None:
    visitor = replace(TARGET, connection="visitor")
    await asyncio.to_thread(ask, "CREATE TABLE totals (id bigint, total bigint)")
    with pytest.raises(Rejected, match="no rights; connection=visitor why=permission denied for schema public"):
        await prepare_progress(visitor)
    await prepare_progress(TARGET)
    await asyncio.to_thread(ask, "GRANT SELECT ON streamhouse_progress TO visitor")
    with pytest.raises(Rejected, match=r"no rights to write progress; .* do=GRANT SELECT, INSERT, UPDATE ON"):
        await prepare_progress(visitor)
    await asyncio.to_thread(ask, "GRANT INSERT, UPDATE ON streamhouse_progress TO visitor")
    await prepare_progress(visitor)


async def test_a_value_that_does_not_fit_is_reported_with_its_column(ask: Ask) -> None:
    await asyncio.to_thread(ask, "CREATE TABLE totals (id bigint, total smallint)")
    narrow = replace(TARGET, columns=(TARGET.columns[0], TargetColumn(name="total", type="smallint")))
    with pytest.raises(Rejected, match=r"column=total why=value \"70000\" is out of range for type smallint"):
        await write(narrow, FIRST, pa.RecordBatch.from_pydict({"id": [1], "total": [70000]}))


async def test_a_row_without_a_key_is_refused_in_words(ask: Ask) -> None:
    await asyncio.to_thread(ask, TOTALS)
    lost = pa.RecordBatch.from_pydict({"id": [None, 1], "total": [1, 1], "streamhouse_ordinal": [0, 1]})
    with pytest.raises(Rejected, match=r"a row has no key; .* column=id rows=1 do="):
        await write(KEYED, FIRST, lost)


@pytest.mark.parametrize(
    ("dsn", "kind", "words"),
    [
        (
            "postgresql://guarded:wrong-word@/warehouse?service=warehouse",
            Rejected,
            "do=correct STREAMHOUSE_CONNECTION_OTHER",
        ),
        ("mysql://guarded:wrong-word@somewhere", Misconfigured, "do=write STREAMHOUSE_CONNECTION_OTHER like"),
        ("postgresql://guarded:wrong-word@127.0.0.1:1/warehouse", Unavailable, "the database doesn't answer"),
        ("postgresql://guarded:wrong-word@127.0.0.1:x/warehouse", Misconfigured, "a connection can't be read"),
    ],
)
async def test_a_connection_that_can_not_be_opened_is_reported_without_its_password(
    postgres: RealPostgres, monkeypatch: pytest.MonkeyPatch, dsn: str, kind: type[Exception], words: str
) -> None:
    monkeypatch.setenv("STREAMHOUSE_CONNECTION_OTHER", dsn)
    with pytest.raises(kind) as caught:
        await _first(connect("other"))
    assert words in str(caught.value)
    assert "wrong-word" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


async def _first(backend: Any) -> AsyncIterator[Any]:
    async with backend as link:
        return link  # type: ignore[no-any-return]
