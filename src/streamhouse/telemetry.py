"""Log formats, request ids, and `RateLimitedLog` for lines that clients could otherwise cause without limit.

A line is an event with fields: `log.info("segment published", extra={"key": key, "bytes": size})`.
"""

import datetime
import json
import logging
import re
import sys
from contextvars import ContextVar
from typing import Final

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MAX_FIELD: Final = 500


REQUEST_ID: Final = "x-request-id"
"""The name of the header, and of gRPC's metadata."""

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,64}")
request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request that the current task works for; its log lines carry it."""


def is_request_id(text: str) -> bool:
    """Whether a client's id may be used: 1 to 64 letters, digits and punctuation marks."""
    return _REQUEST_ID.fullmatch(text) is not None


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """The fields of the event, and the id of the request that it belongs to."""
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if known := request_id.get():
        fields.setdefault("request_id", known)
    return fields


def _plain(value: object) -> str:
    """One line, no control characters: a client's string must not be able to forge a log line."""
    text = str(value)[:_MAX_FIELD]
    return text if text.isprintable() else text.encode("unicode_escape").decode()


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, tz=datetime.UTC).strftime("%H:%M:%S.%f")[:-3]
        fields = " ".join(f"{name}={_plain(value)}" for name, value in fields_of(record).items())
        line = f"{time} {record.levelname.lower():<7} {_plain(record.getMessage())}"
        return "\n".join(filter(None, [f"{line}  {fields}".rstrip(), self._trace(record)]))

    def _trace(self, record: logging.LogRecord) -> str:
        return self.formatException(record.exc_info) if record.exc_info else ""


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time": datetime.datetime.fromtimestamp(record.created, tz=datetime.UTC).isoformat(),
            "level": record.levelname.lower(),
            "event": record.getMessage()[:_MAX_FIELD],
            "logger": record.name,
            **{name: _plain(value) for name, value in fields_of(record).items()},
        }
        if record.exc_info:
            event["trace"] = self.formatException(record.exc_info)
        return json.dumps(event)


def configure_logging(*, log_format: str, level: str) -> None:
    """Send log lines to standard error; called once per process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("httpx", "uvicorn", "uvicorn.access", "uvicorn.error"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # While PostgreSQL is away, the pool would write a traceback every few seconds; our own lines say why.
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)


EVERY_S: Final = 10.0


class RateLimitedLog:
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
