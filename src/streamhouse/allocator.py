"""Allocator: what the C library does with memory that was released.

glibc returns each large buffer to the system when it is released, and the system clears every page of the next one. A
process that moves buffers of some MiB all the time spends a fifth of its CPU on that.
"""

import ctypes
from contextlib import suppress
from typing import Final

LARGEST_KEPT_BYTES: Final = 32 * 1024 * 1024
"""Buffers up to this size come from memory that the process has already; 32 MiB is the most that glibc takes."""
KEPT_BYTES: Final = 64 * 1024 * 1024
"""Free memory kept at the end of the heap; the rest is returned to the system."""

# As in glibc's malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8


def keep_memory(*, one_arena: bool = False) -> None:
    """Reuse released buffers. With `one_arena`, of all threads that are started later: what one has released, another
    one may use. Other C libraries have no such call, and no such habit."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        if one_arena:
            library.mallopt(_M_ARENA_MAX, 1)
