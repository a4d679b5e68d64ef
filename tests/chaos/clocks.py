"""Clocks: the wall clock of one agent, which can be set wrong while it runs.

Data path   nemesis -> **clocks** -> a file that is mapped by the agent's process
Owns        building the library that agents load before others; how often an agent was told a wrong time
Leaves      how wrong, and for how long, to `faults`

Without a C compiler, or on a system other than Linux, clocks stay right.
"""

import mmap
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("skewed_clock.c")
COMPILERS: Final = ("cc", "gcc", "clang")
_NUMBERS: Final = struct.Struct("=qq")
_TEN_YEARS: Final = 10 * 365 * 86_400


def build_library(folder: Path) -> Path | None:
    """The library, built into the folder; None where it can't be."""
    compiler = next((result for name in COMPILERS if (result := shutil.which(name))), None)
    if compiler is None or sys.platform != "linux":
        return None
    library = folder / "skewed_clock.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    return library if subprocess.run(command, check=False, capture_output=True).returncode == 0 else None


class SkewedClock:
    """The clock of one agent, over all its lives."""

    def __init__(self, path: Path, library: Path) -> None:
        path.write_bytes(_NUMBERS.pack(0, 0))
        self.environment: Mapping[str, str] = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(path)}
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _NUMBERS.size)

    @property
    def told(self) -> int:
        """How often the agent was told a wrong time."""
        result: int = _NUMBERS.unpack_from(self._shared)[1]
        return result

    def set(self, offset_s: float) -> None:
        assert abs(offset_s) < _TEN_YEARS
        struct.pack_into("=q", self._shared, 0, round(offset_s * 1e9))
