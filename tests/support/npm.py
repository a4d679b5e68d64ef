"""Packages of the npm registry for tests, pinned by their hashes and kept in a folder that git ignores."""

import base64
import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

CACHE: Final = Path(__file__).parents[2] / ".cache" / "npm"
FETCH_TIMEOUT_S: Final = 300


class NpmPackage(NamedTuple):
    name: str
    version: str
    sha512: str
    """In base64, as npm's lock files have it."""

    @property
    def file(self) -> str:
        return f"{self.name.lstrip('@').replace('/', '-')}-{self.version}.tgz"


def fetched(package: NpmPackage) -> Path | None:
    """The tarball of a package, which one process fetches for all; None where npm can't. Raises `ValueError` if it
    isn't the one that was pinned."""
    CACHE.mkdir(parents=True, exist_ok=True)
    tarball = CACHE / package.file
    with (CACHE / f"{package.file}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tarball.exists() and not _fetch(package, tarball):
            return None
    if base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode() != package.sha512:
        raise ValueError(f"the package has changed; file={tarball}")
    return tarball


def _fetch(package: NpmPackage, tarball: Path) -> bool:
    if shutil.which("npm") is None:
        return False
    with tempfile.TemporaryDirectory(dir=CACHE) as there:
        command = ["npm", "pack", "--silent", "--pack-destination", there, f"{package.name}@{package.version}"]
        if subprocess.run(command, capture_output=True, timeout=FETCH_TIMEOUT_S, check=False).returncode != 0:
            return False
        (Path(there) / package.file).rename(tarball)
    return True
