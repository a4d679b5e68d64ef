"""Process: what Linux says about a running process: its CPU seconds and its memory.

Owns        reading `/proc`
Leaves      which process, and when, to `peer` and the measures
"""

import os
import resource
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
LOOK_S: Final = 1.0


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and of its living descendants, all threads, user and system."""
    return _own_cpu_s(pid) + sum(_cpu_s_if_there(each) for each in _descendants(pid))


def _cpu_s_if_there(pid: int) -> float:
    try:
        return _own_cpu_s(pid)
    except (FileNotFoundError, ProcessLookupError):  # it ended while we looked
        return 0.0


def _own_cpu_s(pid: int) -> float:
    # The command's name stands in parentheses and may hold spaces: fields are counted from the last parenthesis.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def _descendants(pid: int) -> list[int]:
    return [found for child in children(pid) for found in (child, *_descendants(child))]


def children(pid: int) -> list[int]:
    """The processes that a process has started and that live; none when it has ended itself."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def ended_children_cpu_s() -> float:
    """CPU seconds of all children of this process that have ended and been waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def status_bytes(pid: int, field: str) -> int:
    """A size from `/proc/PID/status`, such as VmRSS (now) or VmHWM (peak)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"no such field; pid={pid} field={field}")


def cpu_s_when_quiet(pid: int, *, max_wait_s: float, quiet_share: float = 0.05, look_s: float = 0.25) -> float:
    """CPU seconds once the process has gone quiet: work put off until after the load is part of its price."""
    deadline = time.perf_counter() + max_wait_s
    before = cpu_s(pid)
    while time.perf_counter() < deadline:
        time.sleep(look_s)
        now = cpu_s(pid)
        if now - before <= quiet_share * look_s:
            return now
        before = now
    return before


def busy_cores(look_s: float = 1.0) -> float:
    """How many cores the whole machine keeps busy just now; looks for a while."""
    before = _busy_ticks()
    time.sleep(look_s)
    return (_busy_ticks() - before) / TICKS_PER_S / look_s


def _busy_ticks() -> int:
    user, nice, system, _idle, _waiting, irq, softirq, steal = Path("/proc/stat").read_text().split()[1:9]
    return sum(map(int, (user, nice, system, irq, softirq, steal)))


class Patience:
    """Waits for a quiet machine before a measurement begins, as long as its time, given once for a whole run, lasts."""

    def __init__(self, seconds: float, *, quiet_cores: float = 0.3) -> None:
        self._left_s, self._quiet_cores = seconds, quiet_cores

    def wait(self) -> float:
        """The cores that others kept busy when the waiting ended."""
        while (busy := busy_cores(LOOK_S)) > self._quiet_cores and self._left_s > 0:
            self._left_s -= LOOK_S
        return busy
