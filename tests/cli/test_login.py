"""Options with which commands log in, and the environment that they replace."""

import os
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer

from streamhouse.cli.dependencies import Dependencies
from streamhouse.cli.login import login_credentials
from streamhouse.cli.main import app
from streamhouse.cli.typer_setup import ADDRESSES
from streamhouse.client.credentials import Credentials
from streamhouse.client.kafka_admin import Admin
from streamhouse.errors import Misconfigured
from streamhouse.spark.worker.discovery import runtime_dir
from tests.cli.conftest import Run
from tests.cli.fakes import FakeDependencies, World
from tests.support.tls import Authority

LOGIN = ("--user", "--password-file", "--token-file", "--ca", "--cert")


def commands(group: Any) -> list[Any]:
    subs = getattr(group, "commands", None)
    return [group] if subs is None else [each for sub in subs.values() for each in commands(sub)]


def test_every_command_that_talks_to_agents_logs_in() -> None:
    talking = [
        each for each in commands(typer.main.get_command(app)) if any(p.metavar == ADDRESSES for p in each.params)
    ]
    assert len(talking) > 40
    for command in talking:
        flags = [flag for param in command.get_params(typer.Context(command)) for flag in param.opts]
        assert set(LOGIN) < set(flags), command.name
        assert "--key" in flags
        assert len(flags) == len(set(flags)), command.name


def test_options_replace_the_login_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter22\n")
    (tmp_path / "token").write_text("shk_1\n")
    environ = {"STREAMHOUSE_USER": "bob", "STREAMHOUSE_PASSWORD": "b", "STREAMHOUSE_CA": "ca.pem"}
    assert login_credentials({}, environ) == Credentials(user="bob", password="b", ca="ca.pem")
    token = {"token_file": str(tmp_path / "token")}
    assert login_credentials(token, environ) == Credentials(token="shk_1", ca="ca.pem")
    password = {"user": "alice", "password_file": str(tmp_path / "password"), "ca": "other.pem"}
    assert login_credentials(password, environ) == Credentials(user="alice", password="hunter22", ca="other.pem")
    assert login_credentials(password, {"STREAMHOUSE_TOKEN": "t"}).token == ""


def test_a_missing_password_is_an_error_without_a_terminal() -> None:
    with pytest.raises(Misconfigured, match="give --password-file, or STREAMHOUSE_PASSWORD"):
        login_credentials({"user": "alice"}, {})


def test_a_command_sends_its_login(run: Run, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("hunter22")
    used: list[Credentials] = []
    connect = FakeDependencies.admin

    def admin(self: FakeDependencies, bootstrap: str, *, timeout_s: float = 10.0) -> Any:
        used.append(self.credentials)
        return connect(self, bootstrap)

    monkeypatch.setattr(FakeDependencies, "admin", admin)
    world.http["/v1/cluster"] = lambda request: httpx.Response(200, json={"agents": [], "bootstrap": "a:1"})
    options = ["--user", "alice", "--password-file", str(tmp_path / "password")]
    assert run("topics", "list", "--agents", "https://a:8080", *options).exit_code == 0
    assert used == [Credentials(user="alice", password="hunter22", tls=True)]
    assert isinstance(Admin("a:1", credentials=used[0]), Admin)


def test_a_refused_login_and_a_missing_right_say_what_to_do(run: Run, world: World) -> None:
    world.http["/v1/transactions"] = lambda request: httpx.Response(
        401, json={"title": "NotAuthenticated", "detail": "user or password is wrong"}
    )
    result = run("transactions", "list")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: user or password is wrong; log in with --user and --password-file")
    world.http["/v1/transactions"] = lambda request: httpx.Response(
        403, json={"title": "AccessDenied", "detail": "not authorised; principal=User:a"}
    )
    result = run("transactions", "list")
    assert result.exit_code == 1
    assert "not authorised; principal=User:a; an administrator can allow it" in result.stderr


def test_a_file_that_can_not_be_read_is_named(run: Run) -> None:
    result = run("topics", "list", "--token-file", "none")
    assert result.exit_code == 2
    assert "where=--token-file path=none" in result.stderr


def test_where_key_means_another_one_the_certificates_has_its_own_name(run: Run, world: World, tmp_path: Path) -> None:
    world.topics["orders"] = 1
    authority = str(Authority(tmp_path).path)
    assert run("produce", "orders", "v", "--key", "k", "--ca", authority).exit_code == 0
    assert "--cert-key" in run("produce", "--help").stdout


def test_spark_gets_the_login_in_its_environment() -> None:
    known = Credentials(user="alice", password="hunter22", ca="ca.pem")
    assert Credentials.from_environment(known.as_environment()) == known
    assert "STREAMHOUSE_PASSWORD" not in os.environ


def test_the_first_listener_of_the_settings_is_asked(run: Run, world: World) -> None:
    world.away = True
    env = {"STREAMHOUSE_KAFKA_LISTEN": "IN://127.0.0.1:7,OUT://127.0.0.1:8", "STREAMHOUSE_HTTP_PROTOCOL": "SSL"}
    assert "no agent answers on 127.0.0.1:7;" in run("topics", "list", env=env).stderr
    assert "no agent answers on https://127.0.0.1:8080" in run("transactions", "list", env=env).stderr


def test_spark_and_its_processes_log_in_as_the_command_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STREAMHOUSE_TOKEN", "somebody else's")
    monkeypatch.setenv("STREAMHOUSE_USER", "bob")
    monkeypatch.setenv("STREAMHOUSE_SQL_FOLDER", str(tmp_path))
    for name in ("STREAMHOUSE_PASSWORD", "STREAMHOUSE_CA"):
        monkeypatch.setenv(name, "")  # so that what the command writes there is undone
        monkeypatch.delenv(name)
    dependencies = Dependencies()
    dependencies.credentials = Credentials(user="alice", password="hunter22", ca="ca.pem")
    dependencies.export_login()
    assert Credentials.from_environment(os.environ) == dependencies.credentials
    home = runtime_dir("a:1", {**os.environ, "STREAMHOUSE_USER": "carol"})
    assert runtime_dir("a:1", os.environ).folder != home.folder  # each login has a SQL worker of its own
