"""Sql request: what the command line and the shell ask of a SQL worker.

Owns        the nouns between the flags, the link and the screen
Leaves      asking to `worker_connection`, printing to `statement_runner` and `shell`
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

NDJSON: Final = "application/x-ndjson"
CSV: Final = "text/csv"
ARROW: Final = "application/vnd.apache.arrow.stream"
SHOWN_ROWS: Final = 1000
"""Rows of a table on a screen, where nobody says how many."""
FILE_ROWS: Final = 1_000_000
"""Rows of an answer for a program, where nobody says how many."""


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


ACCEPTED: Final = {Output.TABLE: NDJSON, Output.JSON: NDJSON, Output.CSV: CSV, Output.PARQUET: ARROW}


class Number(str):
    """A number as it was written: no digit is lost on the way to the screen."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRequest:
    """A question; `timeout_s` and `max_rows` None: as the worker likes. `starting`: where a live query begins."""

    sql: str
    accept: str = NDJSON
    max_rows: int | None = None
    timeout_s: float | None = None
    starting: str = "latest"

    def body(self) -> dict[str, Any]:
        asked = {"max_rows": self.max_rows, "timeout_s": self.timeout_s}
        return {"sql": self.sql, "starting": self.starting, **{k: v for k, v in asked.items() if v is not None}}


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlRequest:
    """Statements to run, one after the other; `source` names the file they are from."""

    agents: str
    text: str
    source: str = ""
    output: Output = Output.TABLE
    file: Path | None = None
    max_rows: int | None = None
    timeout_s: float | None = None
    starting: str = "latest"

    def ask(self, sql: str) -> QueryRequest:
        usual = SHOWN_ROWS if self.output is Output.TABLE else FILE_ROWS
        return QueryRequest(
            sql=sql,
            accept=ACCEPTED[self.output],
            max_rows=self.max_rows or usual,
            timeout_s=self.timeout_s,
            starting=self.starting,
        )
