"""`python -m tests.fuzz.sanitized`: the C extensions, built with AddressSanitizer and UndefinedBehaviorSanitizer.

Owns        the build of what `setup.py` declares (in `.cache/sanitized`, beside the one that is installed), the
            environment that it needs
Leaves      what is called to the tests of the formats and to `decoders`

A read or write outside of a buffer, a use of freed memory, or an overflow that C leaves undefined ends the process and
fails the run. Needs gcc.
"""

import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple
from unittest.mock import patch

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / ".cache" / "sanitized"
SOURCES: Final = ROOT / "src" / "streamhouse"
FLAGS: Final = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
TESTS: Final = ("tests/format", "tests/fuzz/test_decoders.py")


class NativeModule(NamedTuple):
    name: str
    sources: tuple[str, ...]


def native_modules() -> list[NativeModule]:
    """What `setup.py` builds."""
    with patch("setuptools.setup") as setup:
        runpy.run_path(str(ROOT / "setup.py"))
    return [NativeModule(each.name, tuple(each.sources)) for each in setup.call_args.kwargs["ext_modules"]]


def build() -> Path:
    """A copy of the package with sanitized extensions; returns the folder to import it from."""
    package = BUILD / "streamhouse"
    shutil.rmtree(BUILD, ignore_errors=True)
    shutil.copytree(SOURCES, package, ignore=shutil.ignore_patterns("*.so", "__pycache__", "site"))
    include, suffix = sysconfig.get_paths()["include"], sysconfig.get_config_var("EXT_SUFFIX")
    for native in native_modules():
        *folders, module = native.name.split(".")
        sources = [str(BUILD / Path(source).relative_to("src")) for source in native.sources]
        target = str(BUILD.joinpath(*folders, f"{module}{suffix}"))
        subprocess.run(
            ["gcc", "-shared", "-fPIC", *FLAGS, f"-I{include}", *sources, "-o", target], cwd=ROOT, check=True
        )
    return BUILD


def environment(folder: Path) -> dict[str, str]:
    library = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return {
        **os.environ,
        "LD_PRELOAD": library,
        "PYTHONPATH": str(folder),
        "PYTHONMALLOC": "malloc",  # else Python's own allocator hides what lies beyond an object
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def main(arguments: Sequence[str]) -> int:
    folder = build()
    tests = arguments or TESTS
    check = "import streamhouse, streamhouse.format._records as r; print(streamhouse.__file__, r.__file__)"
    settings = environment(folder)
    subprocess.run([sys.executable, "-c", check], env=settings, cwd=ROOT, check=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, env=settings, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
