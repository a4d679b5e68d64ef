"""The database of a local cluster: what it waits for when its predecessor was killed, and where root may run it."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streamhouse.dev.postgres import PostgresServer, _copied, find_binaries
from streamhouse.errors import ChildFailed, Misconfigured
from tests.support.agent import free_port

BUSY = 'echo "FATAL:  pre-existing shared memory block (key 1, ID 2) is still in use"; exit 1'


def server_of(folder: Path, script: str) -> PostgresServer:
    """A server whose programs are scripts."""
    binaries = folder / "bin"
    binaries.mkdir()
    for name, text in (("postgres", script), ("pg_isready", f"test -e {folder}/up")):
        (binaries / name).write_text(f"#!/bin/sh\n{text}\n")
        (binaries / name).chmod(0o755)
    server = PostgresServer(folder, binaries=binaries, port=1, log_path=folder / "log", password=None)
    server._child.program = replace(server._child.program, run_as=None)
    return server


def test_workers_of_a_killed_server_are_waited_for(tmp_path: Path) -> None:
    script = (
        f"if test -e {tmp_path}/tried; then touch {tmp_path}/up; exec sleep 1000; fi; touch {tmp_path}/tried; {BUSY}"
    )
    server = server_of(tmp_path, script)
    try:
        server.start()
        assert server.child.running
    finally:
        server.kill()


def test_any_other_failure_is_returned_at_once(tmp_path: Path) -> None:
    server = server_of(tmp_path, "echo no room; exit 1")
    with pytest.raises(ChildFailed, match="PostgreSQL did not start; exit code 1") as raised:
        server.start()
    assert raised.value.last_lines == ("no room",)


@pytest.fixture
def closed() -> Iterator[Path]:
    """A folder that only its owner may enter."""
    folder = Path(tempfile.mkdtemp(prefix="streamhouse-closed-"))
    yield folder
    shutil.rmtree(folder)


def pid_file(server: PostgresServer) -> list[str]:
    return (server.data / "postmaster.pid").read_text().splitlines()


@pytest.mark.postgres
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="PostgreSQL runs as somebody else for root")
@pytest.mark.parametrize("password", [None, "secret"])
def test_for_root_it_runs_in_a_folder_that_only_root_may_enter(closed: Path, password: str | None) -> None:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL here")
    for _ in range(2):
        server = PostgresServer(
            closed / "below" / "postgres",
            binaries=binaries,
            port=free_port(),
            log_path=closed / "log",
            password=password,
            options={"fsync": "off"},
        )
        server.prepare()
        try:
            server.start()
            assert int(pid_file(server)[0]) == server.child.pid
            assert closed.stat().st_mode & 0o777 == 0o700
        finally:
            server.stop()
        assert not (server.data / "postmaster.pid").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has folders that nobody else may enter")
def test_binaries_that_only_root_reaches_are_copied_once_with_what_belongs_to_them(closed: Path) -> None:
    for name in ("package/pg/bin/postgres", "package/pg/share/timezones", "package.libs/libpq"):
        (closed / name).parent.mkdir(parents=True)
        (closed / name).write_text("#!/bin/sh\necho run\n")
        (closed / name).chmod(0o755)
    binaries = closed / "package" / "pg" / "bin"
    copy = _copied(binaries)
    place = copy.parents[2]
    try:
        assert (place / "package/pg/share/timezones").exists()
        assert (place / "package.libs/libpq").exists()
        ran = subprocess.run([copy / "postgres"], capture_output=True, user="nobody", cwd="/", check=True)
        assert ran.stdout == b"run\n"
        assert _copied(binaries) == copy
        place.chmod(0o777)
        with pytest.raises(Misconfigured, match="another user"):
            _copied(binaries)
    finally:
        shutil.rmtree(place)
