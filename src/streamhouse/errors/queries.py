"""Errors of questions in SQL.

Owns        mistakes with their places, and the ways a query can end before its answer
Leaves      finding places to `spark.sql.problems`, statuses to whoever serves
"""

from collections.abc import Sequence
from typing import NamedTuple

from streamhouse.errors.base import Rejected, Retriable


class Mistake(NamedTuple):
    """What is wrong at a place of a text; lines and columns are counted from 1, 0 where there is no place."""

    line: int
    column: int
    text: str
    hint: str = ""


class BadSql(Rejected):
    """The text can't be run as it is."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        first = mistakes[0]
        place = f"; line={first.line} column={first.column}" if first.line else ""
        more = f" more={len(mistakes) - 1}" if len(mistakes) > 1 else ""
        super().__init__(f"{first.text}{place}{more}")
        self.mistakes = tuple(mistakes)


class QueryFailed(Rejected):
    """The query ran, and what it reads or computes made it fail."""


class QueryCancelled(Rejected):
    """Somebody ended the query."""


class QueryTimedOut(Rejected):
    """The query took longer than it may."""


class TooManyQueries(Retriable):
    """The worker has as many queries as it takes; come back after `retry_after_s`."""

    def __init__(self, *, limit: int, retry_after_s: float) -> None:
        super().__init__(f"too many queries at once; limit={limit} retry_after_s={retry_after_s:g}")
        self.retry_after_s = retry_after_s
