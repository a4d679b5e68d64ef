"""Procedures for tables, views and SQL workers.

Owns        that a definition is written only if it changed; that a batch changes rows of a view once, in order, under
            the owner's epoch; which workers are alive, by the store's clock
Leaves      what a definition says to `model.table`, how keys are written to `format.metadata_values`, limits of rows
            and the choice of a worker to `broker.pipelines`
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from streamhouse.errors import PipelineLimit, Rejected, ViewRefused
from streamhouse.format.metadata_values import view_lookup_key
from streamhouse.model.pipeline import SqlWorker, ViewPage, ViewPart, ViewRow, ViewState, WorkerId
from streamhouse.model.replay import is_replay
from streamhouse.model.table import Table
from streamhouse.stores.metadata.engine import Lock, Transaction
from streamhouse.stores.metadata.pipeline_rows import (
    rows_by_key,
    table_of,
    table_text,
    view_of,
    view_params,
    view_row_list,
    view_row_of,
    worker_of,
)
from streamhouse.stores.metadata.procedures.pipelines import check_fence
from streamhouse.stores.metadata.rows import Params, text_list


async def list_tables(tx: Transaction) -> Sequence[Table]:
    return [table_of(row) for row in await tx.rows(tx.sql.list_tables)]


async def find_table(tx: Transaction, name: str) -> Table | None:
    row = await tx.row(tx.sql.find_table, {"name": name})
    return None if row is None else table_of(row)


async def put_table(tx: Transaction, table: Table, *, max_tables: int) -> bool:
    await tx.lock(Lock.PIPELINES, {})
    definition = table_text(table)
    result = await tx.row(tx.sql.find_table, {"name": table.name})
    if result is not None and result["definition"] == definition:
        return False
    if result is None:
        [count] = await tx.rows(tx.sql.count_tables)
        if count["found"] >= max_tables:
            raise PipelineLimit("tables", limit=max_tables, setting="tables.max_tables")
    params: Params = {"name": table.name, "definition": definition, "now_ms": await tx.now_ms()}
    await tx.change(tx.sql.put_table, params)
    return True


async def drop_table(tx: Transaction, name: str) -> bool:
    await tx.lock(Lock.PIPELINES, {})
    return await tx.change(tx.sql.drop_table, {"name": name}) > 0


async def list_views(tx: Transaction) -> Sequence[ViewState]:
    return [view_of(row) for row in await tx.rows(tx.sql.list_views)]


async def find_view(tx: Transaction, name: str) -> ViewState | None:
    row = await tx.row(tx.sql.find_view, {"name": name})
    return None if row is None else view_of(row)


async def find_view_row(tx: Transaction, name: str, found_by: str) -> ViewRow | None:
    row = await tx.row(tx.sql.find_view_row, {"name": name, "found_by": found_by})
    return None if row is None else view_row_of(row)


async def list_view_rows(tx: Transaction, name: str, *, cursor: str | None, limit: int, max_bytes: int) -> ViewPage:
    place, by = _parse_cursor(cursor)
    rows = await tx.rows(tx.sql.page_of_view, {"name": name, "place": place, "found_by": by, "limit": limit + 1})
    shown = rows[: min(limit, _fitting([len(row["row_text"]) for row in rows], max_bytes))]
    more = json.dumps([shown[-1]["place"], shown[-1]["found_by"]]) if len(rows) > len(shown) else None
    return ViewPage(rows=tuple(map(view_row_of, shown)), cursor=more)


def _fitting(sizes: Sequence[int], limit: int) -> int:
    """How many rows fit into the limit; at least one."""
    total = 0
    for place, size in enumerate(sizes):
        total += size
        if total > limit and place > 0:
            return place
    return len(sizes)


def _parse_cursor(cursor: str | None) -> tuple[str, str]:
    if cursor is None:
        return "", ""
    try:
        place, by = json.loads(cursor)
        assert isinstance(place, str)
        assert isinstance(by, str)
    except (ValueError, TypeError, AssertionError, RecursionError):
        raise Rejected("invalid cursor; use one from an earlier page") from None
    return place, by


async def change_view(tx: Transaction, part: ViewPart, *, max_rows: int) -> ViewState:
    name = part.fence.pipeline
    await tx.lock(Lock.VIEW, {"name": name})
    if await check_fence(tx, part.fence) != part.query:
        raise ViewRefused(f"another query maintains this view; view={name} query={part.query[:100]}")
    state = await find_view(tx, name) or ViewState(name=name, query=part.query)
    if state.query != part.query:
        await tx.change(tx.sql.clear_view, {"name": name})
        state = ViewState(name=name, query=part.query, key=state.key, columns=state.columns)
    known = None if state.batch < 0 else state.batch
    if is_replay(name, batch=part.batch, covers=part.covers, last=known, last_covers=state.covers) and (
        part.batch < state.batch or state.is_whole
    ):
        return state
    state = _next_state(state, part)
    await tx.change(tx.sql.put_view, view_params(state))  # the row that its rows refer to
    state = replace(state, rows=state.rows + await _change_rows(tx, part, is_last=state.is_whole))
    if state.rows > max_rows:
        raise PipelineLimit(f"rows of {name}", limit=max_rows, setting="views.max_rows")
    await tx.change(tx.sql.put_view, view_params(state))
    return state


def _next_state(state: ViewState, part: ViewPart) -> ViewState:
    """The state after a part. A batch starts, or restarts, with its first part; parts follow in order. A complete batch
    may follow an incomplete one, because it replaces all rows."""
    if part.batch > state.batch and not state.is_whole and not part.complete:
        raise ViewRefused(f"a batch follows an incomplete one; view={state.name} batch={part.batch}")
    done = state.parts_done if part.batch == state.batch else 0
    if part.part > done:
        raise ViewRefused(f"a part is out of order; view={state.name} part={part.part} expected={done}")
    is_last = part.part + 1 >= part.parts
    return replace(
        state,
        batch=part.batch,
        parts=part.parts,
        parts_done=part.part + 1,
        fresh_at_ms=max(state.fresh_at_ms, part.fresh_at_ms) if is_last else state.fresh_at_ms,
        key=part.key or state.key,
        columns=part.columns if part.columns is not None else state.columns,
        covers=part.covers,
    )


async def _change_rows(tx: Transaction, part: ViewPart, *, is_last: bool) -> int:
    """Apply changes; returns the change of the number of rows."""
    name, added = part.fence.pipeline, 0
    if part.deletes:
        keys = text_list(map(view_lookup_key, part.deletes))
        added -= await tx.change(tx.sql.drop_view_rows, {"name": name, "keys": keys})
    for rows in rows_by_key(part.upserts):
        [known] = await tx.rows(tx.sql.count_view_rows, {"name": name, "keys": text_list(rows)})
        await tx.change(tx.sql.put_view_rows, {"name": name, "rows": view_row_list(rows), "batch": part.batch})
        added += len(rows) - known["found"]
    if part.complete and is_last:
        added -= await tx.change(tx.sql.drop_older_view_rows, {"name": name, "batch": part.batch})
    return added


async def heartbeat_worker(tx: Transaction, worker: SqlWorker, *, ttl_ms: int, max_workers: int) -> None:
    await tx.lock(Lock.PIPELINES, {})
    now_ms = await tx.now_ms()
    await tx.change(tx.sql.forget_workers, {"before_ms": now_ms})
    others = [each for each in await list_workers(tx) if each.worker != worker.worker]
    if len(others) >= max_workers:
        raise PipelineLimit("SQL workers", limit=max_workers, setting="sql.max_workers")
    params: Params = {
        "worker": worker.worker,
        "address": worker.address,
        "token": worker.token,
        "busy": worker.busy,
        "expires_at_ms": now_ms + ttl_ms,
    }
    await tx.change(tx.sql.put_worker, params)


async def list_workers(tx: Transaction) -> Sequence[SqlWorker]:
    return [worker_of(row) for row in await tx.rows(tx.sql.list_workers, {"now_ms": await tx.now_ms()})]


async def drop_worker(tx: Transaction, worker: WorkerId) -> None:
    await tx.change(tx.sql.drop_worker, {"worker": worker})
