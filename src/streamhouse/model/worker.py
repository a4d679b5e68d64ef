"""Worker: a process with a Spark that answers SQL for agents.

Owns        the noun
Leaves      its life to `spark.sql`, finding one for a question to `broker.sql`
"""

from dataclasses import dataclass
from typing import NewType

WorkerId = NewType("WorkerId", str)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlWorker:
    """`token` is what it wants to be shown; `busy` is how many questions it answers now."""

    worker: WorkerId
    address: str
    token: str
    busy: int
    expires_at_ms: int = 0

    def __repr__(self) -> str:
        return f"<SqlWorker {self.worker} address={self.address} busy={self.busy}>"
