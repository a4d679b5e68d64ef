"""A command line with fake dependencies in memory, in an empty folder and with a clean environment."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from streamhouse.cli.main import app
from tests.cli.fakes import FakeDependencies, World

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("STREAMHOUSE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def run(world: World) -> Run:
    """Run a command line; the result has `exit_code`, `stdout`, `stderr` and `stdout_bytes`."""

    def invoke(*args: str, stdin: str | bytes | None = None, env: dict[str, str] | None = None, **extra: Any) -> Result:
        return CliRunner().invoke(
            app, list(args), input=stdin, env=env, obj=FakeDependencies(world), prog_name="streamhouse", **extra
        )

    return invoke
