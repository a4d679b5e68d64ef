"""Why a query ended: the cause under Spark's wrapping, and whether trying again may help."""

from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import StreamingQueryException

from streamhouse.errors import Misconfigured, Unavailable
from streamhouse.spark.query.failure_classification import classify_failure

WRAPPED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: a task failed SQLSTATE: XXKST
=== Streaming Query ===
Identifier: copies"""
PYTHON = """Traceback (most recent call last):
  File "worker.py", line 1, in main
{}

\tat org.apache.spark.api.python.BasePythonRunner"""


class Thrown:
    """An exception of Java's."""

    def __init__(self, message: str, *, cause: "Thrown | None" = None, state: str | None = None) -> None:
        self._message, self._cause, self._state = message, cause, state

    def getMessage(self) -> str:
        return self._message

    def getCause(self) -> "Thrown | None":
        return self._cause

    def getSqlState(self) -> str | None:
        return self._state


def fault(*messages: str, state: str | None = None) -> Any:
    cause: Thrown | None = None
    for message in reversed(messages):
        cause, state = Thrown(message, cause=cause, state=state), None
    return classify_failure(StreamingQueryException(WRAPPED), Thrown(WRAPPED, cause=cause, state="XXKST"))


@pytest.mark.parametrize(
    ("line", "can_retry"),
    [
        ("streamhouse.errors.base.Unavailable: no agent available; timeout_s=120", True),
        ("streamhouse.errors.partitions.CommitRefused: agents reject the commit; error=pipeline moved", True),
        ("streamhouse.errors.partitions.RecordTooLarge: record too large; size_bytes=9", False),
        ("streamhouse.errors.base.Misconfigured: a record needs a value", False),
    ],
)
def test_our_own_errors_are_found_in_what_a_task_said(line: str, can_retry: bool) -> None:
    result = fault("Job aborted", PYTHON.format(line))
    assert result.reason == line.partition(": ")[2]
    assert result.can_retry is can_retry


def test_an_error_in_a_users_function_is_reported_in_its_words() -> None:
    result = fault("Job aborted", PYTHON.format("ValueError: boom in my code"))
    assert result.reason == "ValueError: boom in my code"
    assert result.can_retry


def test_data_that_a_query_cannot_take_stays_so() -> None:
    result = fault("Job aborted", "[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018", state="22018")
    assert result.reason == "[CAST_INVALID_INPUT] The value 'x' cannot be cast."
    assert not result.can_retry


def test_a_spark_that_is_in_trouble_is_tried_again() -> None:
    result = fault("Python worker failed to connect back.")
    assert result.reason == "Python worker failed to connect back."
    assert result.can_retry


def test_errors_before_the_start_are_reported_as_they_are() -> None:
    assert not classify_failure(Misconfigured("no stream")).can_retry
    assert classify_failure(Unavailable("nobody is there")).can_retry
    assert classify_failure(KeyError("amont")).reason == "KeyError: 'amont'"
    assert not classify_failure(KeyError("amont")).can_retry


def test_a_jvm_that_is_gone_is_no_fault_of_the_pipeline() -> None:
    assert classify_failure(Py4JNetworkError("Answer from Java side is empty")).can_retry


def test_words_are_bounded() -> None:
    assert len(fault("x" * 10_000).reason) == 400
