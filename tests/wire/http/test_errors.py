"""Statuses: every error has one, and it says who must do something."""

import pytest

from streamhouse import errors
from streamhouse.errors import StreamhouseError
from streamhouse.wire.http.errors import STATUS, headers_of_error, status_of
from tests.wire.error_tree import every_error

OURS = every_error()
AGAIN = {429, 503}


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_status_of_its_own(kind: type[StreamhouseError]) -> None:
    assert kind in STATUS


def test_the_root_has_none_so_a_new_branch_must_be_placed() -> None:
    assert StreamhouseError not in STATUS
    assert Exception not in STATUS


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_clients_come_again_for_what_may_succeed_later_and_for_nothing_else(kind: type[StreamhouseError]) -> None:
    assert (STATUS[kind] in AGAIN) is issubclass(kind, errors.Retriable)


def test_an_error_that_knows_when_to_come_again_says_so() -> None:
    error = errors.TooManyQueries(limit=3, retry_after_s=2.5)
    assert status_of(error) == 429
    assert headers_of_error(error) == {"retry-after": "3"}
