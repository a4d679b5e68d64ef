"""Seldom: a log line about what clients do, which none of them can make us write without end.

Data path   beside it
Owns        how often such a line is written, and that it says how many were not
Leaves      what it says to whoever writes it
"""

import logging
from typing import Final

EVERY_S: Final = 10.0


class Seldom:
    """One event. The first time it is written at once; then once in `EVERY_S`, with how often it happened since."""

    def __init__(self, log: logging.Logger, event: str, *, level: int = logging.WARNING) -> None:
        self._log, self._event, self._level = log, event, level
        self._again_at: float | None = None
        self._unwritten = 0

    def write(self, now: float, **fields: object) -> None:
        if self._again_at is not None and now < self._again_at:
            self._unwritten += 1
            return
        self._log.log(self._level, self._event, extra={**fields, "unwritten": self._unwritten})
        self._again_at = now + EVERY_S
        self._unwritten = 0
