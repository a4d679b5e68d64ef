"""Settling: what a Python process of Spark's has imported stays out of its garbage collections.

Data path   Spark -> task -> **settled** -> reading
Owns        how often a process is told so
Leaves      what is garbage to Python

Spark has its Python processes collect all garbage after each task. With pandas, pyarrow and pyspark imported they go
through some 100,000 objects that stay, for 35 ms and more, in which they could decode 20 MiB.
"""

import gc
from itertools import count
from typing import Final

FREEZES: Final = 2
"""Before the first task, and before the second: Spark imports the rest while it sends the rows of the first one."""

_tasks: Final = count()


def settled() -> None:
    """Called where a task begins. Later ones change nothing, so that cycles which tasks leave behind are found."""
    if next(_tasks) < FREEZES:
        gc.freeze()
