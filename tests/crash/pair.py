"""Two agents on PostgreSQL and a bucket in a folder, with a trap on the way from the first to the second."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.crash.trap import Trap
from tests.support.agent import LiveAgent

PARTITIONS = 16
"""So many that each of the two leads some of them."""
SETTINGS = (
    "lease.ttl_s=3",
    "lease.takeover_s=1",
    "lease.renew_s=0.5",
    "lease.margin_s=0.3",
    "cluster.disk_wait_s=1",
    "placing.hold_s=2",
    "flush.age_s=1",
)


class Pair(NamedTuple):
    """The agent that gets the requests, the other one, and the proxy between them."""

    first: LiveAgent
    second: LiveAgent
    trap: Trap

    @property
    def addresses(self) -> str:
        return f"{self.first.http},{self.second.http}"


@contextmanager
def running_pair(folder: Path, *, database: str, wal: str) -> Iterator[Pair]:
    flags = ["--metadata", database, "--store", f"file://{folder}/bucket"]
    for setting in (f"wal.kind={wal}", *SETTINGS):
        flags += ["--set", setting]
    with ExitStack() as stack:
        first, second = LiveAgent(folder / "first", *flags), LiveAgent(folder / "second", *flags)
        trap = stack.enter_context(Trap(int(second.http.rpartition(":")[2])))
        second._flags += ("--set", f"http.advertise=127.0.0.1:{trap.port}")
        for agent in (first, second):
            stack.enter_context(agent)
        yield Pair(first, second, trap)
