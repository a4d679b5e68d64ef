"""Memory: a limit for code that is broken on purpose, and may take whatever a damaged length says."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def limited_memory(more_bytes: int) -> Iterator[None]:
    """The process may take so much more than it has: beyond it there is a MemoryError, and not the end of the machine.
    Elsewhere than on Linux, which counts memory where it is mapped, there is no such limit."""
    if sys.platform != "linux":
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_mapped_bytes() + more_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _mapped_bytes() -> int:
    """Private memory of the process that may be written to."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmData"].split()[0]) * 1024
