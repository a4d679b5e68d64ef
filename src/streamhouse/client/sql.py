"""Sql: questions to a SQL worker, through an agent.

Data path   `client.sql` -> **sql** -> an agent's /v1/sql -> a worker with a Spark
Owns        the verbs, how long an answer is waited for
Leaves      asking to `http`, answering to `spark.sql`
"""

from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import quote

import msgspec

from streamhouse.client.http import Http
from streamhouse.client.pipeline_nouns import Checked, Rows, WorkerInfo
from streamhouse.client.pipelines import asked

TIMEOUT_S: Final = 300.0
GRACE_S: Final = 10.0
"""An agent and a worker end a question by themselves; so much longer is waited for their word."""


class _Statements(msgspec.Struct):
    statements: Checked


class _Workers(msgspec.Struct):
    workers: list[WorkerInfo]


class Sql:
    """Use it as `client.sql`."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def query(self, sql: str, *, max_rows: int | None = None, timeout_s: float = TIMEOUT_S) -> Rows:
        """Rows of a question; raises `NoWorker` when nobody answers SQL."""
        body = {"sql": sql, "max_rows": max_rows, "timeout_s": timeout_s}
        return await asked(self._http, Rows, "POST", "/v1/sql", body=body, timeout_s=timeout_s + GRACE_S)

    async def stream(
        self, sql: str, *, starting: str = "latest", max_rows: int | None = None, timeout_s: float | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Rows as they come; with `FROM STREAM(topic)` those that are written from now on, or from `starting`."""
        async for rows in self.batches(sql, starting=starting, max_rows=max_rows, timeout_s=timeout_s):
            for row in rows:
                yield row

    async def batches(
        self, sql: str, *, starting: str = "latest", max_rows: int | None = None, timeout_s: float | None = None
    ) -> AsyncIterator[list[dict[str, Any]]]:
        body = {"sql": sql, "max_rows": max_rows, "timeout_s": timeout_s, "starting": starting}
        async with self._http.lines("/v1/sql", body) as lines:
            async for line in lines:
                if line:
                    yield [msgspec.json.decode(line)]

    async def validate(self, text: str) -> Checked:
        """What is wrong in the statements of a text, with lines and columns."""
        found = await asked(
            self._http, _Statements, "POST", "/v1/sql/validate", body={"text": text}, timeout_s=TIMEOUT_S + GRACE_S
        )
        return found.statements

    async def cancel(self, query_id: str) -> None:
        """End a question; raises `UnknownQuery`."""
        await asked(self._http, type(None), "DELETE", f"/v1/sql/queries/{quote(query_id, safe='')}")

    async def workers(self) -> list[WorkerInfo]:
        return (await asked(self._http, _Workers, "GET", "/v1/sql/workers")).workers
