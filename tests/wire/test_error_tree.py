"""The walk that the wires' tables are checked by."""

from streamhouse import errors
from streamhouse.errors import StreamhouseError
from tests.wire.error_tree import every_error


def test_the_walk_finds_every_error_that_the_package_hands_on() -> None:
    handed_on = {getattr(errors, name) for name in errors.__all__}
    kinds = {kind for kind in handed_on if isinstance(kind, type) and issubclass(kind, StreamhouseError)}
    assert set(every_error()) == kinds - {StreamhouseError}


def test_errors_of_other_packages_are_not_ours_to_place() -> None:
    class Special(errors.RecordTooLarge):
        """Only here."""

    assert Special not in every_error()
