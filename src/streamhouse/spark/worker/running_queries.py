"""Limits: how much one SQL worker does, and for how long.

Owns        every limit's name and usual value
Leaves      obeying them to `http_app`, `query_executor` and `worker`
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlLimits:
    """Given on the command line of `streamhouse sql serve`."""

    concurrency: int = 8  # queries at once; further ones are refused
    rows: int = 10_000  # of an answer where the question doesn't say
    max_rows: int = 1_000_000  # of a result, whatever the request has
    max_result_bytes: int = 512 * 1024 * 1024  # of an answer on its way through the driver
    timeout_s: float = 300.0  # of a query that ends by itself, where the question doesn't say
    max_timeout_s: float = 86_400.0  # of any query, a live one too
    max_body_bytes: int = 1024 * 1024  # of a question
    tail_batches: int = 16  # of a live query that wait for a slow reader
    tail_records: int = 10_000  # of a live query's micro-batch
    idle_s: float = 1800.0  # without a question, until the worker ends
    memory: str = "2g"  # of the JVM
