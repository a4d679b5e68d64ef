"""Validating: a SQL worker judges statements, with a Spark that is warm.

Data path   applying -> **validating** -> a worker's /v1/sql/validate
Owns        the request and its answer
Leaves      finding and starting a worker to `sql.starting`, judging to the worker
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx
import msgspec

from streamhouse.errors import Unavailable
from streamhouse.spark.pipelines.applying import Validate, Validated
from streamhouse.spark.sql.starting import OnWait, authorization, ensure_worker

TIMEOUT_S: Final = 120.0


def worker_validation(agents: str, *, on_wait: OnWait | None = None) -> Validate:
    async def validate(text: str, python: Sequence[Mapping[str, Any]]) -> Validated:
        worker = await ensure_worker(agents, on_wait=on_wait)
        async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
            try:
                answer = await client.post(
                    f"http://{worker.address}/v1/sql/validate",
                    json={"text": text} | ({"python": list(python)} if python else {}),
                    headers=authorization(worker),
                )
                answer.raise_for_status()
            except httpx.HTTPError as error:
                raise Unavailable(
                    f"the SQL worker doesn't answer; why={str(error) or type(error).__name__} log={worker.log}"
                ) from None
        found = msgspec.json.decode(answer.content)
        return found["statements"], found.get("python") or {}

    return validate
