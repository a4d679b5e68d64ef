"""Buffers: joining them without holding up other threads.

Data path   flush -> **join** -> block

`b"".join` holds the GIL while it copies, and while the system makes memory ready for the copy: a flush that joins
mebibytes in its thread would stop the event loop for as long.
"""

from collections.abc import Iterable

from streamhouse.format.batch import Buffer

try:
    from streamhouse.format import _records

    IS_COMPILED = hasattr(_records, "join")
except ImportError:  # built without a compiler
    IS_COMPILED = False


def join(buffers: Iterable[Buffer]) -> bytes:
    """All bytes in one object. The buffers must not be changed until it returns."""
    if IS_COMPILED:
        return _records.join(buffers)
    return b"".join(buffers)
