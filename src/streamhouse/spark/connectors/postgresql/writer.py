"""PostgreSQL writer: writes the rows of a micro-batch and its progress in one transaction.

Data path   Arrow batches -> CSV -> COPY into a temporary table -> **writer** -> INSERT … ON CONFLICT, progress, commit
Owns        the transaction and its order; the table of progress; which of several rows of a key stays
Leaves      connections to `connection`, types of columns to `table_schema`

Each row is written once, whichever process is killed: the progress row is locked before anything is written, and
updated in the transaction of the rows. A repeated micro-batch is skipped if it is the same one. A supervisor that takes
a pipeline over writes its epoch there before its first micro-batch, and ends the session of a predecessor that still
writes; the predecessor fails on the larger epoch.
"""

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import asyncpg
import pyarrow as pa
import pyarrow.csv as csv

from streamhouse.errors import PipelineMoved, Rejected
from streamhouse.model.identifiers import quote_postgresql_identifier as quoted
from streamhouse.model.replay import is_replay
from streamhouse.spark.connectors.postgresql.connection import STATEMENT_TIMEOUT_S, connect

PROGRESS: Final = "streamhouse_progress"
"""An expression that refers to the schema of the target table."""
STAGE: Final = "streamhouse_batch"
ORDINAL: Final = "streamhouse_ordinal"
"""Numbers the rows of a micro-batch, where the last one of a key is to stay."""

_CREATE_PROGRESS: Final = """
CREATE TABLE IF NOT EXISTS {progress} (
  query_id text PRIMARY KEY, batch_id bigint NOT NULL, epoch bigint NOT NULL,
  pipeline text NOT NULL, written_at timestamptz NOT NULL DEFAULT now(), covers text)"""
_BEGIN_QUERY: Final = """
INSERT INTO {progress} (query_id, batch_id, epoch, pipeline) VALUES ($1, -1, $2, $3) ON CONFLICT DO NOTHING"""
_LOCK_QUERY: Final = "SELECT batch_id, epoch, covers FROM {progress} WHERE query_id = $1 FOR UPDATE"
_ADVANCE: Final = """
UPDATE {progress} SET batch_id = $2, epoch = $3, covers = $4, written_at = now() WHERE query_id = $1"""
_END_IF_IDLE: Final = "SELECT set_config('idle_in_transaction_session_timeout', $1, true)"
COMMIT_WITHIN_S: Final = 60.0
"""How long the server waits for a commit after the pipeline's owner was asked for: longer than agents may take to
answer. A runner that is stopped in between commits nothing later, even if nobody takes its pipeline over."""
_FIND_EPOCH: Final = "SELECT epoch FROM {progress} WHERE query_id = $1"
_RAISE_EPOCH: Final = "UPDATE {progress} SET epoch = $2 WHERE query_id = $1"
_LOCK_WRITER: Final = "SELECT pg_advisory_xact_lock($1::int, hashtext($2))"
_END_WRITERS: Final = """
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND classid = $1::int::oid AND objid = hashtext($2)::oid AND objsubid = 2 AND pid <> pg_backend_pid()"""
_WRITER_LOCK: Final = 0x53545257  # "STRW": who writes micro-batches of a query holds it
_HAS_COVERS: Final = """
SELECT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = $1::regclass AND attname = 'covers' AND NOT attisdropped)"""
_ADD_COVERS: Final = "ALTER TABLE {progress} ADD COLUMN IF NOT EXISTS covers text"
_MAY_PROGRESS: Final = """
SELECT bool_and(has_table_privilege($1, wanted)) FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS wanted"""
_CREATION_LOCK: Final = 0x5354524D  # "STRM": two that create a table at once don't collide
_OPTIONS: Final = csv.WriteOptions(include_header=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetColumn:
    """`type` as the table has it; arrays come as JSON."""

    name: str
    type: str
    is_array: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTable:
    """The state with which a task writes: names and types, no credentials. `nulls_match`: a key may have nulls."""

    connection: str
    schema: str
    table: str
    columns: tuple[TargetColumn, ...]
    key: tuple[str, ...] = ()
    nulls_match: bool = False

    @property
    def description(self) -> str:
        return f"connection={self.connection} table={self.schema}.{self.table}"

    @property
    def sql_name(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    @property
    def progress(self) -> str:
        return f"{quoted(self.schema)}.{PROGRESS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Which micro-batch of which query, and in whose hands; `covers` is what it is made of (`model.replay`).

    `lineage` is the same for all pipelines of this name in a cluster, through restarts and DROP.
    """

    pipeline: str
    query_id: str
    batch_id: int
    epoch: int
    covers: str | None = None
    lineage: str = ""

    @property
    def fenced(self) -> tuple[str, ...]:
        """The rows of progress that have the owner's epoch, in the order in which they are locked."""
        return (self.lineage, self.query_id) if self.lineage else (self.query_id,)


# --- statements


def create_stage(target: WriteTable) -> str:
    columns = [f"{quoted(each.name)} {'jsonb' if each.is_array else each.type}" for each in target.columns]
    columns += [f"{ORDINAL} bigint"] if target.key else []
    return f"CREATE TEMPORARY TABLE {STAGE} ({', '.join(columns)}) ON COMMIT DROP"


def insert(target: WriteTable) -> str:
    """From the stage into the table: of several rows of a key the last one, in place of the one that is there."""
    names = ", ".join(quoted(each.name) for each in target.columns)
    values = ", ".join(_unstaged(each) for each in target.columns)
    if not target.key:
        return f"INSERT INTO {target.sql_name} ({names}) SELECT {values} FROM pg_temp.{STAGE}"
    key = ", ".join(map(quoted, target.key))
    changed = [quoted(each.name) for each in target.columns if each.name not in target.key]
    sets = ", ".join(f"{name} = EXCLUDED.{name}" for name in changed)
    return (
        f"INSERT INTO {target.sql_name} ({names})"
        f" SELECT DISTINCT ON ({key}) {values} FROM pg_temp.{STAGE} ORDER BY {key}, {ORDINAL} DESC"
        f" ON CONFLICT ({key}) DO {f'UPDATE SET {sets}' if sets else 'NOTHING'}"
    )


def _unstaged(column: TargetColumn) -> str:
    name = quoted(column.name)
    if not column.is_array:
        return name
    elements = f"SELECT e FROM jsonb_array_elements_text({name}) WITH ORDINALITY AS t(e, n) ORDER BY n"
    return f"CASE WHEN jsonb_typeof({name}) = 'array' THEN ARRAY({elements})::{column.type} END"


# --- rows


def as_csv(batch: pa.RecordBatch, target: WriteTable) -> bytes:
    """Rows as a COPY takes them: texts in quotes, nulls without; times in UTC."""
    _check_key(batch, target)
    arrays = [_in_utc(column) for column in batch.columns]
    out = io.BytesIO()
    csv.write_csv(pa.RecordBatch.from_arrays(arrays, names=batch.schema.names), out, _OPTIONS)
    return out.getvalue()


def _in_utc(column: Any) -> Any:
    is_zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
    return column.cast(pa.timestamp("us", "UTC")) if is_zoned else column


def _check_key(batch: pa.RecordBatch, target: WriteTable) -> None:
    if target.nulls_match:
        return
    for name in target.key:
        if nulls := batch.column(name).null_count:
            raise Rejected(
                f"a row has no key; {target.description} column={name} rows={nulls}"
                " do=leave such rows out, or COALESCE them to a value of their own"
            )


# --- the transaction


async def prepare_progress(target: WriteTable) -> None:
    """Make sure that there is a table of progress, and that it can be written."""
    async with connect(target.connection) as link:
        if await link.fetchval("SELECT to_regclass($1)", target.progress) is None:
            async with link.transaction():
                await link.execute("SELECT pg_advisory_xact_lock($1)", _CREATION_LOCK)
                await link.execute(_CREATE_PROGRESS.format(progress=target.progress))
        elif not await link.fetchval(_HAS_COVERS, target.progress):
            await _add_covers(link, target)
        if not await link.fetchval(_MAY_PROGRESS, target.progress):
            raise Rejected(
                f"no rights to write progress; {target.description}"
                f" do=GRANT SELECT, INSERT, UPDATE ON {target.progress} TO the connection's user"
            )


async def _add_covers(link: Any, target: WriteTable) -> None:
    """Add the column for what a micro-batch covers to a table that an earlier version created."""
    try:
        await link.execute(_ADD_COVERS.format(progress=target.progress))
    except asyncpg.InsufficientPrivilegeError:
        raise Rejected(
            f"the table of progress lacks a column; {target.description}"
            f" do=have its owner ALTER TABLE {target.progress} ADD COLUMN covers text"
        ) from None


async def take_over(target: WriteTable, owner: MicroBatch) -> None:
    """Write the owner's epoch: afterwards no writer with a smaller epoch succeeds, nor one in the middle of a write.

    Raises `PipelineMoved` where there is a larger one.
    """
    begin, find, lock, raise_ = (
        text.format(progress=target.progress) for text in (_BEGIN_QUERY, _FIND_EPOCH, _LOCK_QUERY, _RAISE_EPOCH)
    )
    async with connect(target.connection) as link:
        for name in owner.fenced:
            _check_owner(owner, await link.fetchval(find, name))
        for name in owner.fenced:
            await link.execute(_END_WRITERS, _WRITER_LOCK, name)
        async with link.transaction():
            for name in owner.fenced:
                await link.execute(begin, name, owner.epoch, owner.pipeline)
                row = await link.fetchrow(lock, name)
                _check_owner(owner, row["epoch"])
                await link.execute(raise_, name, owner.epoch)


def _check_owner(this: MicroBatch, epoch: int | None) -> None:
    if epoch is not None and epoch > this.epoch:
        raise PipelineMoved(this.pipeline, epoch=this.epoch, why=f"its rows are written under epoch {epoch}")


async def write_batch(
    target: WriteTable,
    micro_batch: MicroBatch,
    batches: Iterable[pa.RecordBatch],
    *,
    before_commit: Callable[[], None] = lambda: None,
) -> bool:
    """Write the rows and the progress, or neither; False where this micro-batch was written before."""
    async with connect(target.connection) as link:
        async with link.transaction():
            if not await _is_next(link, target, micro_batch):
                return False
            await link.execute(create_stage(target))
            await link.copy_to_table(
                STAGE,
                schema_name="pg_temp",
                source=_chunks(iter(batches), target),
                format="csv",
                timeout=STATEMENT_TIMEOUT_S,
            )
            await link.execute(insert(target))
            advance = _ADVANCE.format(progress=target.progress)
            done = (micro_batch.query_id, micro_batch.batch_id, micro_batch.epoch, micro_batch.covers)
            await link.execute(advance, *done)
            await link.execute(_END_IF_IDLE, str(round(COMMIT_WITHIN_S * 1000)))
            await asyncio.to_thread(before_commit)
        await link.close()  # in peace: the server has answered the commit
    return True


async def _is_next(link: Any, target: WriteTable, this: MicroBatch) -> bool:
    """Take the query's row of progress until the end.

    Raises `PipelineMoved` for who has lost the pipeline, `CheckpointMismatch` for another batch of a written number.
    """
    begin, lock = (text.format(progress=target.progress) for text in (_BEGIN_QUERY, _LOCK_QUERY))
    for name in this.fenced:
        await link.execute(_LOCK_WRITER, _WRITER_LOCK, name)
        await link.execute(begin, name, this.epoch, this.pipeline)
        row = await link.fetchrow(lock, name)  # the last one is the query's own
        _check_owner(this, row["epoch"])
    last, known = row["batch_id"], row["covers"]
    return not is_replay(target.description, batch=this.batch_id, covers=this.covers, last=last, last_covers=known)


async def _chunks(batches: Iterator[pa.RecordBatch], target: WriteTable) -> AsyncIterator[bytes]:
    """Rows come from Spark through a socket that blocks, so they are waited for elsewhere."""
    loop = asyncio.get_running_loop()

    def following() -> bytes | None:
        batch = next(batches, None)
        return None if batch is None else as_csv(batch, target)

    while (chunk := await loop.run_in_executor(None, following)) is not None:
        if chunk:
            yield chunk
