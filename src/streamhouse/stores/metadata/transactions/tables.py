"""Tables as transactions.

Data path   broker.tables -> **tables** -> rows
Owns        that a definition is written only when it is another one
Leaves      what a definition says to `model.table`
"""

from collections.abc import Sequence

from streamhouse.errors import PipelineLimit
from streamhouse.model.table import Table
from streamhouse.stores.metadata.pipeline_rows import table_of, table_text
from streamhouse.stores.metadata.rows import Params
from streamhouse.stores.metadata.transaction import Lock, Transaction


async def list_tables(tx: Transaction) -> Sequence[Table]:
    return [table_of(row) for row in await tx.rows(tx.sql.list_tables)]


async def find_table(tx: Transaction, name: str) -> Table | None:
    row = await tx.row(tx.sql.find_table, {"name": name})
    return None if row is None else table_of(row)


async def put_table(tx: Transaction, table: Table, max_tables: int) -> bool:
    await tx.lock(Lock.PIPELINES, {})
    definition = table_text(table)
    found = await tx.row(tx.sql.find_table, {"name": table.name})
    if found is not None and found["definition"] == definition:
        return False
    if found is None:
        [count] = await tx.rows(tx.sql.count_tables)
        if count["found"] >= max_tables:
            raise PipelineLimit("tables", limit=max_tables, setting="tables.max_tables")
    params: Params = {"name": table.name, "definition": definition, "now_ms": await tx.now_ms()}
    await tx.change(tx.sql.put_table, params)
    return True


async def drop_table(tx: Transaction, name: str) -> bool:
    await tx.lock(Lock.PIPELINES, {})
    return await tx.change(tx.sql.drop_table, {"name": name}) > 0
