"""Every command explains itself, quickly."""

import subprocess
import sys

import pytest

from streamhouse import __version__
from streamhouse.cli.typer_setup import colorize
from tests.cli.conftest import Run

COMMANDS = [
    "up",
    "topics create",
    "topics list",
    "topics describe",
    "topics alter",
    "topics delete",
    "produce",
    "consume",
    "schemas list",
    "schemas register",
    "schemas get",
    "schemas check",
    "schemas delete",
    "schemas config",
    "segments list",
    "segments inspect",
    "wal inspect",
    "config show",
    "tables create",
    "tables list",
    "tables describe",
    "tables drop",
    "spark shell",
    "spark submit",
    "spark config",
    "dev cluster",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_usage_options_and_examples(run: Run, command: str) -> None:
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"Usage: streamhouse {command}" in result.stdout
    assert "Examples:\n    " in result.stdout
    assert f"streamhouse {command}" in result.stdout.partition("Examples:")[2]
    assert "--help" in result.stdout


@pytest.mark.parametrize("group", ["topics", "schemas", "segments", "wal", "config", "spark", "dev", ""])
def test_a_group_without_a_command_shows_what_there_is(run: Run, group: str) -> None:
    result = run(*group.split())
    assert result.exit_code == 2
    assert "Commands:" in result.stdout
    listed = {command.removeprefix(group).split()[0] for command in COMMANDS if command.startswith(group)}
    assert all(f"  {name} " in result.stdout for name in listed)


def test_the_flags_that_others_script_against_are_there(run: Run) -> None:
    text = run("up", "--help").stdout
    for flag in ("--data", "--kafka", "--http", "--grpc", "--metadata", "--store", "--wal", "--fsync", "--config"):
        assert flag in text


def test_completion_can_be_installed(run: Run) -> None:
    text = run("--help").stdout
    assert "--install-completion" in text
    assert "--show-completion" in text


def test_the_version_is_told(run: Run) -> None:
    assert run("--version").stdout == f"streamhouse {__version__}\n"


def test_colours_leave_the_words_as_they_are(run: Run) -> None:
    text = run("consume", "--help").stdout
    coloured = colorize(text)
    assert "\x1b[" in coloured
    stripped = coloured
    while "\x1b[" in stripped:
        before, _, rest = stripped.partition("\x1b[")
        stripped = before + rest.partition("m")[2]
    assert stripped == text


@pytest.mark.parametrize(
    "command",
    [
        "['--help']",
        "['topics', 'list', '--help']",
        "['topics', 'create', 'a', '-p', '3', '--help']",
        "['dev', 'cluster', '--help']",
        "['spark', 'config']",
    ],
)
def test_help_imports_nothing_that_takes_long(command: str) -> None:
    program = f"""
import sys
from streamhouse.cli.main import app
app({command}, standalone_mode=False)
heavy = {{'aiokafka', 'httpx', 'obstore', 'pydantic', 'pyspark', 'rich', 'starlette', 'uvicorn', 'uvloop'}}
print('heavy:', *sorted(heavy & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert result.stdout.endswith("\nheavy:\n")


def test_plain_options_are_understood_without_pydantic() -> None:
    program = """
import sys
from streamhouse.cli.main import app
app(['topics', 'list', '--bootstrap', '127.0.0.1:1', '--json'], standalone_mode=False)
print('heavy:', *sorted({'pydantic', 'rich'} & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.stderr == "error: no agent answers on 127.0.0.1:1; start one with: streamhouse up\n"
    assert result.stdout == "heavy:\n"
