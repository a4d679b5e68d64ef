"""Lanes: the tests in three groups that run side by side, and the order in which the workers of a group take them.

    unit        needs neither a JVM nor a server: computes
    spark       a Spark in this process or in one that it starts: computes
    services    agents, PostgreSQL, S3 servers and commands in processes of their own: mostly waits

Owns        which file belongs to which lane; which tests are long, and that each worker begins with them
Leaves      running lanes to the Makefile; distribution to xdist: a share of the list to each worker, and a worker that
            has finished takes tests from the end of another's share

A file belongs to the lane of the most demanding thing that its source names. So a lane imports only its own files.
Spark's lane is one process and takes longest. Files that start a Spark of their own and wait are with the services.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

from tests.support.depth import scaled

LANES: Final = ("unit", "spark", "services")
STARTERS: Final = (
    "compat",
    "console",
    "crash",
    "dev",
    "java",
    "chaos",
    "fuzz",
    "test_browser.py",
    "test_schemathesis.py",
)
"""Folders and files that start processes by way of a fixture or another module."""
SPARK: Final = re.compile(r"\bmark\.spark\b")
SERVICES: Final = re.compile(
    r"\bmark\.(postgres|s3|crash|compat|java|chaos)\b"
    r"|\b(LiveAgent|RealPostgres|RealS3|Popen)\b"
)
OWN_SPARK: Final[tuple[str, ...]] = scaled(
    quick=("tests/docs/test_pages_on_spark.py", "tests/spark/datasource/test_register.py"), nightly=()
)
"""Nightly these are many, and Sparks run one after another."""

LONG: Final = (
    "tests/docs/test_pages",
    "tests/spark/datasource/test_register.py",
    "tests/spark/replay/test_copy_",
    "tests/spark/datasource/test_killed_drivers.py",
    "tests/spark/test_example.py",
    "tests/spark/maintenance/test_compaction_on_spark.py",
    "tests/wire/http/test_schemathesis.py",
    "tests/crash/",
    "tests/dev/",
    "tests/simulation/",
)
"""How they begin: many seconds, each."""

DEEP: Final = (
    "tests/simulation/",
    "tests/broker/cluster/",
    "tests/broker/groups/test_outage.py",
    "tests/broker/groups/test_crash.py",
    "tests/broker/groups/test_group_state.py",
    "tests/broker/maintenance/test_compaction",
    "tests/broker/external_commits/test_several_agents.py",
    "tests/broker/test_shutdown.py",
    "tests/broker/wal/test_disk_wal.py::test_what_",
    "tests/broker/wal/test_object_world.py",
    "tests/schemas/protobuf/test_hostile.py",
    "tests/wire/grpc/",
    "tests/wire/http/test_schema_encoding.py",
    "tests/wire/http/test_schemas.py",
    "tests/wire/kafka/test_fuzz.py",
    "tests/wire/kafka/test_messages_oracle.py",
    "tests/wire/kafka/test_messages_round_trip.py",
    "tests/wire/kafka/test_records_failover.py",
    "tests/test_packaging.py",
    "tests/docs/test_pages.py::test_a_pages_commands_run",
    "tests/cli/test_help.py::test_help_imports_nothing",
    "tests/client/test_cluster.py",
    "tests/spark/lake/test_metadata_size.py",
    "tests/stores/test_remote_store.py",
    "tests/wire/http/test_limits.py",
    "tests/wire/kafka/test_departed.py",
    "tests/wire/kafka/test_access_matrix.py",
    "tests/wire/http/test_access_matrix.py",
    "tests/wire/kafka/test_tenants.py",
    "tests/wire/http/test_tenants.py",
    "tests/wire/http/test_groups.py",
    "tests/wire/http/test_search.py",
    "tests/wire/http/test_secure_listeners.py",
    "tests/wire/http/test_streams.py",
    "tests/wire/kafka/sasl/",
    "tests/wire/kafka/test_new_group_outage.py",
    "tests/wire/test_tls_acceptor.py",
    "tests/client/test_kafka.py",
    "tests/benchmarks/test_measures.py",
    "tests/stores/test_key_services.py",
    "tests/spark/worker/test_http_app.py",
)
"""Unit tests with seconds of computing or waiting: `make test` runs them, `make test-fast` doesn't."""


def is_deep(path: Path) -> bool:
    """Whether all tests of a file are deep, so that it need not be imported; the path is relative to the project."""
    return path.as_posix().startswith(tuple(name for name in DEEP if "::" not in name))


def lane_of(path: Path, source: str) -> str:
    """The lane of a file with tests."""
    if SPARK.search(source):
        return "services" if path.as_posix().endswith(OWN_SPARK) else "spark"
    return "services" if SERVICES.search(source) or not set(STARTERS).isdisjoint(path.parts) else "unit"


class Named(Protocol):
    @property
    def nodeid(self) -> str: ...


T = TypeVar("T", bound=Named)


def long_first(tests: Sequence[T], workers: int) -> list[T]:
    """Each worker's share begins with long tests, and each with another kind: not all of them start Sparks at once."""
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
