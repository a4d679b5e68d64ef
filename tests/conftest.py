"""For all tests: lanes, depth and durations; hypothesis without deadlines, since the machine may be busy."""

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.depth import base_seed, examples
from tests.support.durations import Durations
from tests.support.java_options import spark_options
from tests.support.lanes import DEEP, LANES, is_deep, lane_of, long_first
from tests.support.processes import begin_run
from tests.support.sqlite import copy_migrated_databases

settings.register_profile("unhurried", deadline=None, max_examples=examples(100))
settings.load_profile("unhurried")

# Read by `spark-submit`, whoever starts it: a fixture, a page's command, a supervisor, a driver that will be killed.
os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_options())

# gRPC's own handlers crash a fork now and then where gRPC is at work, and pyspark starts Java by fork in this process.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", choices=LANES, help="collect the files of one lane only (tests/support/lanes.py)")


def pytest_configure(config: pytest.Config) -> None:
    begin_run()
    base_seed()  # workers of xdist inherit it
    config.pluginmanager.register(Durations(config.getoption("--lane") or "last"), "durations")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: to look for garbage in it took more than a second each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    lane = config.getoption("--lane")
    if lane is None or not collection_path.match("test_*.py"):
        return None
    if "not deep" in config.getoption("markexpr") and is_deep(collection_path.relative_to(config.rootpath)):
        return True
    return lane_of(collection_path, collection_path.read_text()) != lane or None


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """`-n auto`: as many as there are processors for tests that compute, half as many again where many tests wait."""
    processors = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return processors if config.getoption("--lane") == "unit" else processors * 3 // 2


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    if item.nodeid.startswith(DEEP):
        item.add_marker(pytest.mark.deep)


@pytest.fixture(scope="session", autouse=True)
def _migrated_databases() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        copy_migrated_databases(patch)
        yield


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After deselection."""
    if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
        items[:] = long_first(items, workers)
