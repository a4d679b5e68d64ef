"""Settling: what a Python process of Spark's has imported stays out of its collections, and its memory stays with it.

Data path   Spark -> task, plan or commit -> **settled** -> reading, writing, placing
Owns        how often a process is told so
Leaves      what is garbage to Python

Spark has its Python processes collect all garbage after each task, each plan and each commit. With pandas, pyarrow and
pyspark imported they go through some 100,000 objects that stay, for 35 ms and more, in which they could decode 20 MiB.
A micro-batch has three such processes, and they would be at it while the next one of them is needed.

And the buffers of a task are some mebibytes each. The C library gives such back to the system one by one, which then
clears every page again for the next: a fifth of all that decoding takes.
"""

import ctypes
import gc
from contextlib import suppress
from itertools import count
from typing import Final

FREEZES: Final = 2
"""Before the first task, and before the second: Spark imports the rest while it sends the rows of the first one."""
LARGEST_KEPT_BYTES: Final = 32 * 1024 * 1024
"""Buffers up to this size come from memory that the process has already; 32 MiB is the most that glibc takes."""
KEPT_BYTES: Final = 64 * 1024 * 1024
"""Of free memory at the end of the heap; what is more goes back to the system."""

# As in glibc's malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

_calls: Final = count()


def settled() -> None:
    """Called where work begins. Later calls change nothing, so that cycles which tasks leave behind are found."""
    number = next(_calls)
    if number < FREEZES:
        gc.freeze()
    if number == 0:
        _keep_memory()


def _keep_memory() -> None:
    """Other C libraries have no such call, and no such habit."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
