"""Requests to a SQL worker, as the command line and the shell make them."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

NDJSON: Final = "application/x-ndjson"
CSV: Final = "text/csv"
ARROW: Final = "application/vnd.apache.arrow.stream"
SHOWN_ROWS: Final = 1000
"""Default limit of rows on a screen."""
FILE_ROWS: Final = 1_000_000
"""Default limit of rows for a program."""


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


ACCEPTED: Final = {Output.TABLE: NDJSON, Output.JSON: NDJSON, Output.CSV: CSV, Output.PARQUET: ARROW}


class Number(str):
    """A number as its text, so that no digit is lost."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRequest:
    """One query; `timeout_s` and `max_rows` None: the defaults of the worker. `starting`: where a live query begins."""

    sql: str
    accept: str = NDJSON
    max_rows: int | None = None
    timeout_s: float | None = None
    starting: str = "latest"

    def body(self) -> dict[str, Any]:
        limits = {"max_rows": self.max_rows, "timeout_s": self.timeout_s}
        return {"sql": self.sql, "starting": self.starting, **{k: v for k, v in limits.items() if v is not None}}


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

    def query(self, sql: str) -> QueryRequest:
        usual = SHOWN_ROWS if self.output is Output.TABLE else FILE_ROWS
        return QueryRequest(
            sql=sql,
            accept=ACCEPTED[self.output],
            max_rows=self.max_rows or usual,
            timeout_s=self.timeout_s,
            starting=self.starting,
        )
