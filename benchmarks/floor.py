"""Floor: what do the system calls alone cost of a gigabyte that is consumed, or produced?

    .venv/bin/python -m benchmarks.floor [--bytes B] [--repeat R]

Data path   `floor.c` -> **floor** -> the terminal
Owns        compiling and running a C program that does nothing but a broker's system calls

No broker on this machine can be cheaper: consuming is `send` out of memory, producing `recv` and one `write` to a file
(an agent with embedded stores writes twice: to its log and to a segment). Needs a C compiler.
"""

import argparse
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks import process

SOURCE: Final = Path(__file__).with_name("floor.c")
LABELS: Final = {
    "send, 1 MB again and again": ("send", 1_000_000),
    "send, out of 400 MB": ("send", 400_000_000),
    "recv and write to a new file": ("receive", 400_000_000),
}
TIMEOUT_S: Final = 120.0


def compiled(folder: Path) -> Path:
    """The program; raises `FileNotFoundError` where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FileNotFoundError("no C compiler: install gcc or clang")
    program = folder / "floor"
    subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-o", str(program), str(SOURCE)], check=True)
    return program


def cpu_s_per_gb(program: Path, call: str, region: int, *, size_bytes: int) -> float:
    file = program.with_name("received")
    words = [str(program), call, str(size_bytes), str(region), *([str(file)] if call == "receive" else [])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    file.unlink(missing_ok=True)
    return float(done.stdout) / (size_bytes / 1e9)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floor", description="What system calls alone cost.")
    parser.add_argument("--bytes", type=int, default=1_000_000_000, help="what is moved each time")
    parser.add_argument("--repeat", type=int, default=5)
    return parser.parse_args(words)


def main() -> None:
    asked, table = arguments(), Table("", "CPU s/GB", "least to greatest")
    with tempfile.TemporaryDirectory(prefix="bench-floor-") as folder:
        program = compiled(Path(folder))
        for label, (call, region) in LABELS.items():
            found = [cpu_s_per_gb(program, call, region, size_bytes=asked.bytes) for _ in range(asked.repeat)]
            table.add_row(label, f"{statistics.median(found):.3f}", f"{min(found):.3f} to {max(found):.3f}")
    console = Console()
    console.print(table)
    console.print(f"others kept {process.busy_cores():.1f} cores busy right after it")


if __name__ == "__main__":
    main()
