"""Every command explains itself, quickly."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from streamhouse import __version__
from streamhouse.cli.main import app
from streamhouse.cli.typer_setup import ADDRESSES, colorize
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
    "users create",
    "users list",
    "users delete",
    "users passwd",
    "whoami",
    "keys create",
    "keys list",
    "keys revoke",
    "acls create",
    "acls list",
    "acls delete",
    "roles list",
    "roles add",
    "roles remove",
    "quotas set",
    "quotas list",
    "tenants create",
    "tenants list",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_usage_options_and_examples(run: Run, command: str) -> None:
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"Usage: streamhouse {command}" in result.stdout
    assert "Examples:\n    " in result.stdout
    assert f"streamhouse {command}" in result.stdout.partition("Examples:")[2]
    assert "--help" in result.stdout


@pytest.mark.parametrize(
    "group", ["topics", "schemas", "segments", "wal", "config", "spark", "dev", "users", "acls", "quotas", ""]
)
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


def test_the_version_is_reported(run: Run) -> None:
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


def _leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """All commands that are no groups, with their names."""
    if not hasattr(command, "commands"):
        yield " ".join(path), command
    for name, child in getattr(command, "commands", {}).items():
        yield from _leaves(child, (*path, name))


ALL = dict(_leaves(typer.main.get_command(app)))
WITHOUT_AGENTS = {"up", "recover", "segments inspect", "wal inspect", "config show", "dev cluster"}
KAFKA = {name for name in ALL if name.split()[0] in ("topics", "groups", "produce", "consume")}


def _options(name: str) -> dict[str, Any]:
    return {option: param for param in ALL[name].params for option in param.opts if option.startswith("-")}


@pytest.mark.parametrize("name", sorted(set(ALL) - WITHOUT_AGENTS))
def test_every_command_that_talks_to_agents_names_them_with_one_option(name: str) -> None:
    options = _options(name)
    assert options["--agents"].metavar == ADDRESSES
    assert not options["--agents"].hidden
    assert "--http" not in options
    assert ("--bootstrap" in options) == (name in KAFKA)
    assert name not in KAFKA or (options["--bootstrap"].hidden and options["-b"] is options["--bootstrap"])


@pytest.mark.parametrize("name", sorted(WITHOUT_AGENTS))
def test_other_commands_have_no_addresses_of_agents(name: str) -> None:
    assert all(param.metavar != ADDRESSES for param in ALL[name].params)


@pytest.mark.parametrize("name", sorted(set(ALL) - WITHOUT_AGENTS - {"spark shell", "spark submit", "spark pipelines"}))
@pytest.mark.parametrize("args", [("--agents", "nowhere"), ("--http", "nowhere"), ("--http=nowhere",)])
def test_the_old_name_of_the_option_is_understood_and_not_shown(run: Run, name: str, args: tuple[str, ...]) -> None:
    required = [param for param in ALL[name].params if param.required]
    context = ALL[name].make_context(name, [*args, *_required_args(required)], resilient_parsing=True)
    assert context.params["agents"] == "nowhere"
    assert "--http" not in run(*name.split(), "--help").stdout


def _required_args(params: list[Any]) -> list[str]:
    """A value for each of them, so that nothing but the names of options is tested."""
    args: list[str] = []
    for param in params:
        args += [param.opts[0], "1"] if param.opts[0].startswith("-") else ["1"]
    return args


def test_an_old_name_behind_the_end_of_options_is_a_value() -> None:
    context = ALL["produce"].make_context("produce", ["orders", "--", "--http"], resilient_parsing=True)
    assert context.params["values"] == ["--http"]
