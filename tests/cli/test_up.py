"""up: flags become settings, and one screen says what runs where."""

from pathlib import Path

import pytest

from streamhouse.cli.commands.agent import configured_name
from streamhouse.errors import Misconfigured
from tests.cli.conftest import Run
from tests.cli.fakes import World


def test_every_flag_becomes_a_setting(run: Run, world: World) -> None:
    flags = {
        "--data": "d",
        "--kafka": "127.0.0.1:1",
        "--http": "127.0.0.1:2",
        "--grpc": "127.0.0.1:3",
        "--metadata": "sqlite:///m",
        "--store": "file:///s",
        "--wal": "object",
        "--fsync": "always",
        "--set": "flush.age_s=5min",
    }
    assert run("up", *[text for pair in flags.items() for text in pair]).exit_code == 0
    settings = world.settings
    assert settings is not None
    assert (settings.agent.data, settings.kafka.listen, settings.http.listen) == ("d", "127.0.0.1:1", "127.0.0.1:2")
    assert settings.grpc.listen == "127.0.0.1:3"
    assert (settings.metadata.url, settings.store.url) == ("sqlite:///m", "file:///s")
    assert (settings.wal.kind, settings.wal.fsync, settings.flush.age_s) == ("object", "always", 300.0)


def test_flags_beat_the_environment_which_beats_the_file(run: Run, world: World) -> None:
    with open("other.toml", "w") as file:
        file.write('[wal]\nfsync = "never"\nfsync_interval_ms = 3\n[agent]\ndata = "from-file"\n')
    env = {"STREAMHOUSE_AGENT_DATA": "from-environment", "STREAMHOUSE_WAL_FSYNC_INTERVAL_MS": "4"}
    assert run("up", "--config", "other.toml", "--data", "from-flag", env=env).exit_code == 0
    assert world.settings is not None
    assert world.settings.agent.data == "from-flag"
    assert world.settings.wal.fsync_interval_ms == 4
    assert world.settings.wal.fsync == "never"


def test_the_screen_says_what_runs_where_and_what_to_type_next(run: Run, world: World) -> None:
    world.recovered_records = 1234
    text = run("up").stdout
    for said in (
        "is running",
        "127.0.0.1:19092",
        "http://127.0.0.1:18080",
        "/srv/data",
        "file:///srv/data/objects",
        "fsync every 100 ms, 1,234 records recovered",
        "node 1, session s-0123",
        "streamhouse topics create orders --partitions 3 --agents 127.0.0.1:18080",
        "streamhouse produce orders hello --agents 127.0.0.1:18080",
        "streamhouse consume orders --follow --agents 127.0.0.1:18080",
    ):
        assert said in text
    assert "secret" not in text
    assert text.endswith("stopped\n")


@pytest.mark.parametrize(
    "flags",
    [("--kafka", "9092"), ("--fsync", "sometimes"), ("--wal", "paper"), ("--set", "wal.fsink=3"), ("--set", "x")],
)
def test_what_can_not_be_meant_is_refused_before_anything_starts(
    run: Run, world: World, flags: tuple[str, ...]
) -> None:
    result = run("up", *flags)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert world.settings is None


def test_an_agent_that_can_not_start_says_why_in_one_line(run: Run, world: World) -> None:
    world.wont_start = Misconfigured("port 9092 is in use; choose another with --kafka")
    result = run("up")
    assert result.exit_code == 2
    assert result.stderr == "error: port 9092 is in use; choose another with --kafka\n"
    assert result.stdout == ""


def test_commands_to_try_can_be_typed_as_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / ".venv" / "bin" / "streamhouse"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", "")
    assert configured_name(str(program)) == ".venv/bin/streamhouse"
    assert configured_name("/elsewhere/bin/streamhouse") == "/elsewhere/bin/streamhouse"
    assert configured_name("/x/__main__.py") == "streamhouse"
    monkeypatch.setenv("PATH", str(program.parent))
    assert configured_name(str(program)) == "streamhouse"


def test_the_screen_warns_of_listeners_that_others_reach(run: Run, world: World) -> None:
    assert "WARNING" not in run("up").stdout
    text = run("up", "--kafka", "0.0.0.0:9092", "--http", "[::]:8080").stdout
    assert "WARNING: no login" in text
    assert "everybody on the network of Kafka 0.0.0.0:9092, HTTP [::]:8080 is an administrator" in text


def test_a_secure_agent_makes_what_it_needs_and_says_how_to_log_in(run: Run, world: World, tmp_path: Path) -> None:
    data = tmp_path / "data"
    result = run("up", "--secure", "--data", str(data), "--set", "grpc.protocol=SSL")
    assert result.exit_code == 0, result.stderr
    settings = world.settings
    assert settings is not None
    assert (settings.kafka.protocol, settings.http.protocol, settings.grpc.protocol) == ("SASL_SSL", "SASL_SSL", "SSL")
    assert (settings.security.authorization, settings.security.bootstrap_user) == ("acls", "admin")
    password = (data / "security" / "password").read_text().strip()
    assert password not in result.output
    assert f"STREAMHOUSE_CA={data}/security/ca.pem" in " ".join(result.stderr.split())
    assert (data / "security").stat().st_mode & 0o077 == 0
    assert run("up", "--secure", "--data", str(data)).exit_code == 0
    assert (data / "security" / "password").read_text().strip() == password
