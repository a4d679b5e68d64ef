"""For all tests: property tests say nothing about time, the machine may be busy; a Spark lives shortly."""

import os
import sys

import pytest
from hypothesis import settings

from tests.support.durations import Durations
from tests.support.java_options import spark_options
from tests.support.lanes import long_first
from tests.support.processes import begin_run

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# Read by `spark-submit`, whoever starts it: a fixture, a page's command, a supervisor, a driver that will be killed.
os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_options())

# gRPC's own handlers crash a fork now and then where gRPC is at work, and pyspark starts Java by fork in this process.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def pytest_configure(config: pytest.Config) -> None:
    begin_run()
    config.pluginmanager.register(Durations(), "durations")


def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: half as many again as there are processors, since many tests wait: for agents, Sparks and kills."""
    processors = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return processors * 3 // 2


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After those that are not asked for have been left out."""
    if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
        items[:] = long_first(items, workers)
