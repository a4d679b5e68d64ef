"""Sharing: which worker of xdist begins with what, so that none runs a long test while the others have nothing left.

Owns        the order of the list of tests, and which of them are long
Leaves      handing them out to xdist: a share of the list to each worker, and who has done his takes from the end of
            another's
"""

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

LONG: Final = (
    "tests/docs/test_pages.py::test_a_pages_commands_run",
    "tests/spark/replaying/test_copy_",
    "tests/spark/test_sink_kills.py",
    "tests/spark/test_example.py",
    "tests/spark/maintenance/test_compaction_on_spark.py",
    "tests/wire/http/test_schemathesis.py",
    "tests/crash/",
    "tests/dev/",
)
"""How they begin: half a minute and more, each."""


class Named(Protocol):
    @property
    def nodeid(self) -> str: ...


T = TypeVar("T", bound=Named)


def long_first(tests: Sequence[T], workers: int) -> list[T]:
    """Each worker's share begins with long ones, and each with another kind: not all of them start Sparks at once."""
    long = [test for test in tests if test.nodeid.startswith(LONG)]
    others = [test for test in tests if not test.nodeid.startswith(LONG)]
    ordered: list[T] = []
    for number, size in enumerate(share_sizes(len(tests), workers)):
        begin = long[number::workers]
        turn = len(begin) * number // workers
        begin = begin[turn:] + begin[:turn]
        rest = max(0, size - len(begin))
        ordered += begin + others[:rest]
        del others[:rest]
    return ordered + others


def share_sizes(tests: int, workers: int) -> list[int]:
    """As xdist does it: of what is left, so much to each of those that are left."""
    sizes: list[int] = []
    for left in range(workers, 0, -1):
        sizes.append((tests - sum(sizes)) // left)
    return sizes
