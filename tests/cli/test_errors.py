"""What goes wrong gets one line that says what to do, and an exit code."""

from contextlib import AbstractAsyncContextManager

import httpx
import pytest

from streamhouse.cli.main import app
from streamhouse.client.kafka_admin import Admin
from streamhouse.errors import Misconfigured
from tests.cli.conftest import Run
from tests.cli.fakes import FakeDependencies, World

NEED_AN_AGENT = [
    ("topics", "list"),
    ("topics", "create", "orders"),
    ("topics", "describe", "orders"),
    ("topics", "delete", "orders", "--yes"),
    ("produce", "orders", "hello"),
    ("consume", "orders"),
]


@pytest.mark.parametrize("command", NEED_AN_AGENT, ids=" ".join)
def test_without_an_agent_one_line_says_how_to_start_one(run: Run, world: World, command: tuple[str, ...]) -> None:
    world.away = True
    result = run(*command)
    assert result.exit_code == 1
    assert result.stderr == "error: no agent answers on 127.0.0.1:9092; start one with: streamhouse up\n"
    assert result.stdout == ""


def test_the_agent_is_found_by_flag_then_variable_then_file(run: Run, world: World, tmp_path: object) -> None:
    world.away = True
    with open("streamhouse.toml", "w") as file:
        file.write('[kafka]\nlisten = "0.0.0.0:1111"\n')
    assert "127.0.0.1:1111" in run("topics", "list").stderr
    env = {"STREAMHOUSE_KAFKA_LISTEN": "[::]:2222"}
    assert "[::1]:2222" in run("topics", "list", env=env).stderr
    assert "elsewhere:3333" in run("topics", "list", "--bootstrap", "elsewhere:3333", env=env).stderr
    env |= {"STREAMHOUSE_KAFKA_ADVERTISE": "public.example:4444"}
    assert "public.example:4444" in run("topics", "list", env=env).stderr


def test_commands_of_the_kafka_protocol_ask_the_agents_for_their_kafka_addresses(
    run: Run, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"agents": [{"kafka": "10.0.0.5:9092", "http": "10.0.0.5:8080"}], "bootstrap": "10.0.0.5:9092"}
    requested: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        requested.append(request.url.netloc.decode())
        return httpx.Response(200, json=cluster)

    world.http["/v1/cluster"] = respond
    used: list[str] = []
    connect = FakeDependencies.admin

    def admin(self: FakeDependencies, bootstrap: str) -> AbstractAsyncContextManager[Admin]:
        used.append(bootstrap)
        return connect(self, bootstrap)

    monkeypatch.setattr(FakeDependencies, "admin", admin)
    assert run("topics", "list", "--agents", "10.0.0.7:8080").exit_code == 0
    assert run("groups", "list", "--http", "http://10.0.0.7:8080").exit_code == 0
    assert run("topics", "list", env={"STREAMHOUSE_AGENTS": "10.0.0.7:8080"}).exit_code == 0
    assert used == ["10.0.0.5:9092"] * 3
    assert requested == ["10.0.0.7:8080"] * 3
    assert run("topics", "list", "--agents", "10.0.0.7:8080", "--bootstrap", "10.0.0.9:9092").exit_code == 0
    assert used[3:] == ["10.0.0.9:9092"]
    assert len(requested) == 3


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("topics", "list", "--agents", "nowhere"), "'nowhere': must be HOST:PORT, such as 127.0.0.1:8080"),
        (("topics", "list", "--bootstrap", "nowhere"), "'nowhere': must be HOST:PORT, such as 127.0.0.1:9092"),
        (("topics", "list", "--bootstrap", "a:1,b:x"), "'b:x': the port must be a number from 0 to 65535"),
        (("topics", "create", "a", "--config", "retention.ms"), "'retention.ms' is not KEY=VALUE"),
        (("topics", "create", "a", "--partitions", "0"), "'--partitions'"),
        (("topics", "create"), "missing argument 'NAME'"),
        (("produce", "a", "x", "--header", "=v"), "'=v' is not KEY=VALUE"),
        (("produce", "a", "x", "--acks", "2"), "'--acks'"),
        (("produce", "a", "x", "--key", "k", "--key-separator", ":"), "exclude each other"),
        (("produce", "a", "x", "--file", "f"), "exclude each other"),
        (("consume", "a", "--from-beginning", "--offset", "3"), "give one of"),
        (("consume", "a", "--from-time", "yesterday"), "'yesterday' is not a time such as"),
        (("consume", "a", "-n", "0"), "'-n'"),
        (("groupz",), "no such command 'groupz'. Did you mean 'groups'?"),
        (("topics", "list", "--jsn"), "no such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_usage_gets_one_line_and_exit_code_2(run: Run, command: tuple[str, ...], said: str) -> None:
    result = run(*command)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert said.lower() in result.stderr.lower()
    assert result.stderr.count("\n") == 1
    assert "--help" in result.stderr


def test_a_wrong_setting_is_bad_usage(run: Run) -> None:
    result = run("topics", "list", env={"STREAMHOUSE_WAL_FSYNC": "alway"})
    assert result.exit_code == 2
    assert result.stderr.startswith("error: bad value for wal.fsync; where=STREAMHOUSE_WAL_FSYNC value='alway'")
    assert result.stderr.count("\n") == 1


def test_a_file_that_is_missing_is_named(run: Run) -> None:
    for command in (
        ("produce", "orders", "--file", "gone.txt"),
        ("segments", "inspect", "gone"),
        ("wal", "inspect", "g"),
    ):
        result = run(*command)
        assert result.exit_code == 1
        assert result.stderr == f"error: no such file or directory; path={command[-1]}\n"


def test_an_unexpected_error_is_one_line_unless_debugging(run: Run, world: World) -> None:
    world.wont_start = ValueError("odd")  # type: ignore[assignment]
    result = run("up")
    assert result.exit_code == 1
    assert result.stderr == "error: unexpected ValueError: odd; --debug before the command shows where\n"
    assert isinstance(run("--debug", "up").exception, ValueError)


def test_many_lines_of_an_error_become_one(run: Run, world: World) -> None:
    world.wont_start = Misconfigured("first\nsecond")
    assert run("up").stderr == "error: first second\n"


def test_nothing_is_coloured_in_a_pipe(run: Run) -> None:
    for command in (("--help",), ("topics", "list"), ("config", "show"), ("nothing",)):
        result = run(*command)
        assert "\x1b" not in result.stdout + result.stderr


def test_the_app_is_what_the_command_runs() -> None:
    assert app.info.name == "streamhouse"
