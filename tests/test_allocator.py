"""Buffers that were released are used again, without a page fault for each of their pages."""

import subprocess
import sys
from typing import Final

PROGRAM: Final = """
import resource
from streamhouse.allocator import keep_memory

keep_memory(one_arena=True)
for _ in range(3):  # the first ones are new to the process
    kept = [bytearray(1_000_000) for _ in range(8)]
    del kept
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    kept = [bytearray(1_000_000) for _ in range(8)]
    del kept
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_released_buffers_are_used_again() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    assert int(ran.stdout) < 1000, "a page fault for each page would be 200,000"
