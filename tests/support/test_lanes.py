"""Each file has a lane; each worker begins with long tests, and no test is lost over it."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.lanes import DEEP, LONG, OWN_SPARK, is_deep, lane_of, long_first, share_sizes

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Item:
    nodeid: str


SHORT = st.integers(0, 1000).map(lambda number: Item(f"tests/model/test_names.py::test_{number}"))
ANY = st.one_of(SHORT, st.sampled_from(LONG).map(Item))


@given(st.lists(ANY, max_size=60), st.integers(1, 7))
def test_every_test_is_run_once_and_the_short_ones_in_their_order(tests: list[Item], workers: int) -> None:
    ordered = long_first(tests, workers)
    assert sorted(test.nodeid for test in ordered) == sorted(test.nodeid for test in tests)
    assert [test for test in ordered if test.nodeid not in LONG] == [test for test in tests if test.nodeid not in LONG]


def test_each_share_begins_with_its_part_of_the_long_ones() -> None:
    tests = [Item(f"tests/format/{number}") for number in range(100)] + [Item(f"tests/crash/{n}") for n in range(8)]
    ordered, begin = long_first(tests, 3), 0
    for size, expected in zip(share_sizes(108, 3), (3, 3, 2), strict=True):
        share = [test.nodeid.startswith("tests/crash/") for test in ordered[begin : begin + size]]
        assert share == [True] * expected + [False] * (size - expected)
        begin += size


@pytest.mark.parametrize(
    ("path", "source", "lane"),
    [
        ("tests/model/test_names.py", "def test_a_name() -> None:", "unit"),
        ("tests/client/test_sync.py", "from tests.support.agent import LiveAgent", "services"),
        ("tests/stores/test_s3_store.py", "pytestmark = pytest.mark.s3", "services"),
        ("tests/compat/test_kcat.py", "def test_a_client(bootstrap: str) -> None:", "services"),
        ("tests/spark/test_read.py", "pytestmark = pytest.mark.spark; LiveAgent", "spark"),
        ("tests/docs/test_pages_on_spark.py", "pytestmark = pytest.mark.spark; LiveAgent", "services"),
        (
            "tests/spark/datasource/test_split_planner.py",
            "from streamhouse.spark.datasource.split_planner import plan",
            "unit",
        ),
    ],
)
def test_a_file_is_in_the_lane_of_the_most_demanding_thing_that_it_names(path: str, source: str, lane: str) -> None:
    assert lane_of(Path(path), source) == lane


@pytest.mark.parametrize("prefix", [*DEEP, *LONG, *OWN_SPARK])
def test_prefixes_of_deep_and_long_tests_name_files_that_exist(prefix: str) -> None:
    assert list(ROOT.glob(f"{prefix.partition('::')[0]}*"))


def test_only_whole_files_of_deep_tests_are_not_imported() -> None:
    assert is_deep(Path("tests/simulation/test_simulation.py"))
    assert not is_deep(Path("tests/docs/test_pages.py"))
