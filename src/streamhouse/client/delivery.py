"""Delivery: the promise that a record was handed over with.

Data path   lane -> **delivery** -> whoever sent the record
Owns        knowing whether anybody looked at how it ended
Leaves      when it ends to `lane`
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from streamhouse.errors import StreamhouseError
from streamhouse.model.record import Receipt


class Delivery(asyncio.Future[Receipt]):
    """Await it for the record's `Receipt`; it raises why the record was not stored. A failure that nobody looks at is
    raised by the producer's `flush`, or at its end."""

    _seen = False
    _on_failure: Callable[["Delivery"], None] | None = None

    def succeed(self, receipt: Receipt) -> None:
        if not self.done():
            super().set_result(receipt)

    def fail(self, error: StreamhouseError) -> None:
        if self.done():
            return
        super().set_exception(error)
        super().exception()  # asyncio needn't complain about it as well
        if self._on_failure is not None:
            self._on_failure(self)

    @property
    def was_seen(self) -> bool:
        return self._seen

    def failure(self) -> BaseException | None:
        """How it ended, without looking."""
        return super().exception() if self.done() and not self.cancelled() else None

    def result(self) -> Receipt:
        self._seen = True
        return super().result()

    def exception(self) -> BaseException | None:
        self._seen = True
        return super().exception()

    def __await__(self) -> Generator[Any, None, Receipt]:
        self._seen = True
        return super().__await__()

    __iter__ = __await__
