"""The database of a local cluster: what it waits for when its predecessor was killed."""

from dataclasses import replace
from pathlib import Path

import pytest

from streamhouse.dev.postgres import PostgresServer
from streamhouse.errors import ChildFailed

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


def test_any_other_failure_is_told_at_once(tmp_path: Path) -> None:
    server = server_of(tmp_path, "echo no room; exit 1")
    with pytest.raises(ChildFailed, match="PostgreSQL did not start; exit code 1") as raised:
        server.start()
    assert raised.value.last_lines == ("no room",)
