"""Status codes: every error has one, which shows whether to retry."""

import grpc
import pytest

from streamhouse import errors
from streamhouse.errors import StreamhouseError
from streamhouse.wire.grpc.errors import CODES, as_message, code_of, metadata_of
from tests.wire.error_tree import every_error

AGAIN = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED}

OURS = every_error()


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code_of_its_own(kind: type[StreamhouseError]) -> None:
    assert kind in CODES


def test_the_root_has_none_so_a_new_branch_needs_a_code() -> None:
    assert StreamhouseError not in CODES
    assert Exception not in CODES


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_clients_come_again_for_what_may_succeed_later(kind: type[StreamhouseError]) -> None:
    code = CODES[kind]
    if issubclass(kind, errors.Retriable):
        assert code in AGAIN
    else:
        assert code is not grpc.StatusCode.UNAVAILABLE


def test_an_error_has_its_name_its_text_and_the_time_to_retry() -> None:
    error = errors.Overloaded("appends", limit_bytes=1, retry_after_s=0.25)
    assert code_of(error) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert dict(metadata_of(error)) == {"streamhouse-error": "Overloaded", "retry-after-ms": "250"}
    message = as_message(error)
    assert (message.name, message.retriable, message.retry_after_ms, message.code) == ("Overloaded", True, 250, 8)
    assert message.message == str(error)


def test_an_error_without_a_retry_time_has_none() -> None:
    error = errors.UnknownTopic("orders")
    assert dict(metadata_of(error)) == {"streamhouse-error": "UnknownTopic"}
    assert (as_message(error).retriable, as_message(error).retry_after_ms) == (False, 0)
