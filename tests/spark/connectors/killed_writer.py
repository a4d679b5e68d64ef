"""Processes that write one micro-batch, each killed behind another step of its transaction; prints what was left.

They are forks of one process, which is quicker than a Python for each.
"""

import asyncio
import json
import os
import signal
import sys
from typing import Any

import asyncpg
import pyarrow as pa

from streamhouse.spark.connectors.postgresql.connection import connect
from streamhouse.spark.connectors.postgresql.writer import (
    MicroBatch,
    TargetColumn,
    WriteTable,
    prepare_progress,
    write_batch,
)

TARGET = WriteTable(
    connection="warehouse",
    schema="public",
    table="totals",
    columns=(TargetColumn(name="id", type="bigint"), TargetColumn(name="total", type="bigint")),
)


def rows() -> list[pa.RecordBatch]:
    """In two pieces: a COPY may be killed between them."""
    return [pa.RecordBatch.from_pydict({"id": [n, n + 1], "total": [n, n]}) for n in (1, 3)]


def reach(step: str, text: str) -> None:
    if step in text:
        os.kill(os.getpid(), signal.SIGKILL)


def killed_behind(step: str) -> Any:
    class Killed(asyncpg.Connection):  # type: ignore[misc]
        async def execute(self, query: str, *args: Any, **more: Any) -> Any:
            done = await super().execute(query, *args, **more)
            reach(step, query)
            return done

        async def fetchrow(self, query: str, *args: Any, **more: Any) -> Any:
            done = await super().fetchrow(query, *args, **more)
            reach(step, query)
            return done

        async def copy_to_table(self, *args: Any, **more: Any) -> Any:
            done = await super().copy_to_table(*args, **more)
            reach(step, "COPY")
            return done

    return Killed


async def write(step: str, connect: Any) -> None:
    async def killing(*args: Any, **more: Any) -> Any:
        return await connect(*args, connection_class=killed_behind(step), **more)

    asyncpg.connect = killing
    await write_batch(TARGET, batch(step), rows())


def batch(step: str) -> MicroBatch:
    return MicroBatch(pipeline="p", query_id=step, batch_id=0, epoch=1)


async def count() -> int:
    async with connect(TARGET.connection) as link:
        return int(await link.fetchval("SELECT count(*) FROM totals"))


def main(*steps: str) -> None:
    asyncio.run(prepare_progress(TARGET))
    for step in steps:
        before = asyncio.run(count())
        child = os.fork()
        if not child:
            asyncio.run(write(step, asyncpg.connect))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        left = asyncio.run(count()) - before
        wrote = asyncio.run(write_batch(TARGET, batch(step), rows()))
        after = asyncio.run(count()) - before
        result = {"step": step, "killed": os.WTERMSIG(status), "left": left, "wrote": wrote, "after": after}
        sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
