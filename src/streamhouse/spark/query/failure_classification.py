"""Failure classification: why a query ended, in a short message, and whether a retry may help.

Data path   an exception of Spark's or ours -> **failure_classification** -> the `Ended` of a run
Owns        which errors are permanent; finding the cause under Spark's wrapping
Leaves      when to retry to `restart_policy`; errors in SQL with line and column to `query.error_messages`
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, ParseException, PySparkException

import streamhouse.errors as errors
from streamhouse.errors import Misconfigured, Rejected, StreamhouseError

MAX_CHARS: Final = 400
MAX_CAUSES: Final = 20

_OURS: Final = re.compile(r"streamhouse\.errors\.\w+\.(\w+): (.+)")
_PYTHON: Final = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt|Exit|Iteration)): (.+)$", re.MULTILINE)
_NOISE: Final = re.compile(r"(\s*SQLSTATE: \w+|\s*== (SQL|DataFrame)[\s\S]*|\s*=== Streaming Query ===[\s\S]*)")
_WRAPPING: Final = ("[STREAM_FAILED]", "[FOREACH_BATCH_USER_FUNCTION_ERROR]")
# Data exceptions (22), syntax and access errors (42) and unsupported features (0A) fail again on a retry.
_PERMANENT: Final = ("22", "42", "0A")
# Errors of our sinks and sources that may not occur again on a retry.
_TRANSIENT: Final = (errors.CommitRefused,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    reason: str
    can_retry: bool


def classify_failure(error: BaseException, origin: Any = None) -> Failure:
    """Describe a failure for the author of a query; `origin` is Java's exception."""
    if isinstance(error, StreamhouseError):
        return Failure(reason=str(error), can_retry=_is_retriable(type(error)))
    if isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError):  # the JVM is gone
        return Failure(reason="the Spark that ran it ended", can_retry=True)
    thrown = _throwables(origin or getattr(error, "_origin", None))
    texts = [str(error), *(str(each.getMessage() or each.toString()) for each in thrown)]
    for text in reversed(texts):
        if match := _OURS.search(text):
            kind = getattr(errors, match[1], StreamhouseError)
            return Failure(reason=_short(match[2]), can_retry=_is_retriable(kind))
    lasting = isinstance(error, AnalysisException | ParseException) or any(
        state.startswith(_PERMANENT) for state in _states(error, thrown)
    )
    return Failure(
        reason=_message(error, texts), can_retry=not lasting and isinstance(error, PySparkException | OSError)
    )


def _is_retriable(kind: type[StreamhouseError]) -> bool:
    return issubclass(kind, _TRANSIENT) or not issubclass(kind, Rejected | Misconfigured)


def _message(error: BaseException, texts: list[str]) -> str:
    """Python's last error inside a task, else Spark's error condition, else the last cause."""
    for text in reversed(texts):
        if "Traceback (most recent call last)" in text and (errors_in_task := _PYTHON.findall(text)):
            kind, message = errors_in_task[-1]
            return _short(f"{kind}: {message}")
    named = [text for text in texts if text.lstrip().startswith("[") and not text.lstrip().startswith(_WRAPPING)]
    if named:
        return _short(named[-1])
    return _short(texts[-1] if isinstance(error, PySparkException) else f"{type(error).__name__}: {error}")


def _short(text: str) -> str:
    reason = " ".join(_NOISE.sub("", text).split())
    return reason if len(reason) <= MAX_CHARS else reason[: MAX_CHARS - 1] + "…"


def _throwables(origin: Any) -> list[Any]:
    """Java's exceptions from the outermost to the cause of all."""
    causes: list[Any] = []
    while origin is not None and len(causes) < MAX_CAUSES:
        causes.append(origin)
        origin = origin.getCause()
    return causes


def _states(error: BaseException, thrown: list[Any]) -> list[str]:
    """SQL states of all causes that have one."""
    states = [str(getattr(error, "getSqlState", lambda: "")() or "")]
    for each in thrown:
        with suppress(Exception):  # Java's exceptions without a state have no such method, which py4j reports late
            states.append(str(each.getSqlState() or ""))
    return states
