"""Durations: what each test costs in time and in CPU time, of its own process and of all that it started.

Owns        measuring; the table `.cache/test-durations/LANE.tsv`; the summary at the end of a run
Leaves      which tests are run to `lanes` and the Makefile

CPU time is what a change of the tests can be judged by: a machine with other work on it makes tests longer, but hardly
more expensive. A process that outlives the test that started it, a shared JVM for instance, counts where it works: each
test is charged with what all descendants used since the last test ended. Not counted are processes that have left the
tree (the SQL worker and the supervisor of a page), and those that nobody waited for: a browser that ends with its test
hides half of what it used.
"""

import os
import resource
import sys
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.depth import SEED_VARIABLE, base_seed

FOLDER: Final = Path(__file__).parents[2] / ".cache" / "test-durations"
SHOWN: Final = 15
PROPERTY: Final = "cpu_s"
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK") if sys.platform != "win32" else 100


@dataclass(slots=True)
class Cost:
    wall_s: float = 0.0
    cpu_s: float = 0.0
    tests: int = 0

    def add(self, other: "Cost") -> None:
        self.wall_s += other.wall_s
        self.cpu_s += other.cpu_s
        self.tests += other.tests


def used_cpu_s() -> float:
    """CPU time of this process, of its children that have ended, and of its descendants that run."""
    ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in ended) + sum(map(_process_cpu_s, _descendants()))


def _descendants() -> list[int]:
    """Processes below this one. Linux only; elsewhere those that run are not counted."""
    pending, below = [os.getpid()], list[int]()
    while pending:
        children = _children(pending.pop())
        below += children
        pending += children
    return below


def _children(pid: int) -> list[int]:
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # the process, or one of its threads, has ended
        return []
    return [int(child) for text in lists for child in text.split()]


def _process_cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS_PER_S  # utime, stime, and the same of children that have ended


class Durations:
    """A pytest plugin: workers measure, the controller of xdist, or the only process, keeps the table and prints it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._costs: dict[str, Cost] = defaultdict(Cost)
        self._before_s = 0.0

    def pytest_collection_finish(self) -> None:
        self._before_s = used_cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        if call.when == "teardown":
            now_s = used_cpu_s()
            item.user_properties.append((PROPERTY, max(0.0, now_s - self._before_s)))
            self._before_s = now_s
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cost = self._costs[report.nodeid]
        cost.wall_s += report.duration
        if report.when == "teardown":
            cost.tests = 1
            cost.cpu_s = sum(float(str(value)) for name, value in report.user_properties if name == PROPERTY)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._costs:
            return
        write_table(self._costs, FOLDER / f"{self._name}.tsv")
        terminalreporter.write_line(f"random seeds: {SEED_VARIABLE}={base_seed()}")
        for line in summary(self._costs):
            terminalreporter.write_line(line)


def write_table(costs: dict[str, Cost], path: Path) -> None:
    """The table of this run, the most expensive test first; an older one of the same lane is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = sorted(costs.items(), key=lambda row: -row[1].cpu_s)
    text = "".join(f"{cost.cpu_s:.3f}\t{cost.wall_s:.3f}\t{name}\n" for name, cost in rows)
    path.write_text(f"cpu_s\twall_s\ttest\n{text}")


def summary(costs: dict[str, Cost]) -> Iterable[str]:
    """Lines for people: the sum, the folders, the most expensive tests."""
    folders: dict[str, Cost] = defaultdict(Cost)
    total = Cost()
    for name, cost in costs.items():
        folders["/".join(name.split("::")[0].split("/")[:2])].add(cost)
        total.add(cost)
    yield f"durations: {total.tests} tests, {total.cpu_s:.0f} s of CPU, {total.wall_s:.0f} s of waiting and work"
    for name, cost in sorted(folders.items(), key=lambda row: -row[1].cpu_s):
        yield f"{cost.cpu_s:8.1f} s CPU {cost.wall_s:8.1f} s  {name} ({cost.tests})"
    for name, cost in sorted(costs.items(), key=lambda row: -row[1].cpu_s)[:SHOWN]:
        yield f"{cost.cpu_s:8.1f} s CPU {cost.wall_s:8.1f} s  {name}"
