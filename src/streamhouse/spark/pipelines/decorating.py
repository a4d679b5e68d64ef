"""Decorating: `@pipeline(into=…)`, which makes a Python function a pipeline.

Data path   a user's file -> **pipeline** -> whoever loads the file; `finding` reads the same without running it
Owns        the decorator and what it notes
Leaves      options' meaning to `format.statement_options`, running to `python_code`
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

F = TypeVar("F", bound=Callable[..., "DataFrame"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Decorated:
    name: str
    function: Callable[[Any], "DataFrame"]


LOADING: Final[ContextVar[list[Decorated] | None]] = ContextVar("loading", default=None)
"""Set by whoever runs a file: functions note themselves there."""


def pipeline(*, into: str, name: str | None = None, **options: str | int) -> Callable[[F], F]:
    """Make a function a pipeline that writes the rows it returns to `into`.

        @pipeline(into="big-orders", trigger="1 second", key="id")
        def big_orders(tables):
            return tables.stream("orders").where("amount > 100")

    Options are those of CREATE PIPELINE. Values are written out: `streamhouse pipelines apply` reads them without
    running the file. The function is called where the pipeline runs.
    """

    def decorate(function: F) -> F:
        noted = LOADING.get()
        if noted is not None:
            noted.append(Decorated(name=name or function.__name__, function=function))
        return function

    return decorate
