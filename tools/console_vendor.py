"""The libraries in the web console, from the packages of the npm registry: python -m tools.console_vendor [FOLDER]

Packs `PACKAGES` with npm (or takes their tarballs from FOLDER), checks their integrity, copies the files that the
console uses and their licences into `src/streamhouse/console/pages/vendor`, and writes `vendor.json` there: name,
version, licence and SHA-256 of each file. `check` compares the folder with it.
"""

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

VENDOR: Final = Path(__file__).resolve().parent.parent / "src" / "streamhouse" / "console" / "pages" / "vendor"
MANIFEST: Final = "vendor.json"


class Package(NamedTuple):
    """A package; `files` are the names in the console and the paths in the package."""

    name: str
    version: str
    licence: str
    sha512: str
    files: Mapping[str, str]


PACKAGES: Final = (
    Package(
        "preact",
        "11.2.0",
        "MIT",
        "/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        {"preact.js": "dist/preact.mjs", "hooks.js": "hooks/dist/hooks.mjs", "preact.LICENSE.txt": "LICENSE"},
    ),
    Package(
        "htm",
        "3.1.1",
        "Apache-2.0",
        "983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        {"htm.js": "dist/htm.mjs", "htm.LICENSE.txt": "LICENSE"},
    ),
    Package(
        "uplot",
        "1.6.32",
        "MIT",
        "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        {"uplot.js": "dist/uPlot.esm.js", "uplot.css": "dist/uPlot.min.css", "uplot.LICENSE.txt": "LICENSE"},
    ),
)
CHANGES: Final = {b'from"preact"': b'from"./preact.js"'}
"""Browsers find modules by URLs."""


def adapted(data: bytes) -> bytes:
    """A module as the console has it: names of modules are URLs, and there is no source map."""
    for before, after in CHANGES.items():
        data = data.replace(before, after)
    lines = data.split(b"\n")
    return b"\n".join(line for line in lines if not line.startswith(b"//# sourceMappingURL"))


def vendored(package: Package, tarball: Path) -> Mapping[str, bytes]:
    """The files of a package, by their names in the console; raises `ValueError` for another tarball."""
    digest = base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode()
    if digest != package.sha512:
        raise ValueError(f"the tarball has changed; package={package.name} sha512={digest}")
    with tarfile.open(tarball) as archive:
        members = {name: archive.extractfile(f"package/{path}") for name, path in package.files.items()}
        data = {name: member.read() for name, member in members.items() if member is not None}
    return {name: adapted(each) if name.endswith(".js") else each for name, each in data.items()}


def manifest(files: Mapping[str, Mapping[str, bytes]]) -> list[dict[str, Any]]:
    return [
        {
            "name": package.name,
            "version": package.version,
            "licence": package.licence,
            "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files[package.name].items())},
        }
        for package in PACKAGES
    ]


def differences(folder: Path = VENDOR) -> list[str]:
    """What in the folder isn't as its manifest says."""
    told = {
        name: digest
        for package in json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        for name, digest in package["files"].items()
    }
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.name != MANIFEST
    }
    return sorted(name for name in told.keys() | found.keys() if told.get(name) != found.get(name))


def update(tarballs: Path) -> None:
    files = {
        package.name: vendored(package, tarballs / f"{package.name}-{package.version}.tgz") for package in PACKAGES
    }
    for each in files.values():
        for name, data in each.items():
            (VENDOR / name).write_bytes(data)
    (VENDOR / MANIFEST).write_text(json.dumps(manifest(files), indent=2) + "\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    if arguments == ["check"]:
        print(*(wrong := differences()) or ["the vendored files are as their manifest says"], sep="\n")
        return 1 if wrong else 0
    if arguments:
        update(Path(arguments[0]))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        names = [f"{package.name}@{package.version}" for package in PACKAGES]
        subprocess.run(["npm", "pack", "--silent", "--pack-destination", folder, *names], check=True, timeout=120)
        update(Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
