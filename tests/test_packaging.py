"""Without extras the client and the command line work; an agent says what else it needs, by the distribution's name."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamhouse.errors.base import DISTRIBUTION, install_command
from tests.support.agent import LiveAgent

SERVER_PARTS = ("asyncpg", "grpc", "obstore", "starlette", "uvicorn", "uvloop", "prometheus_client", "pyspark")
WITHOUT_SERVER = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {SERVER_PARTS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
"""
COMMAND_LINE = WITHOUT_SERVER + "from streamhouse.cli.main import main\nmain()\n"
LIMIT_S = 60

ROOT = Path(__file__).parents[1]
TEXTS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "pyproject.toml", "setup.py")
FOLDERS = ("benchmarks", "deploy", "docs", "examples", "requirements", "src", "tests", "tools")
SUFFIXES = ("", ".html", ".in", ".ipynb", ".js", ".json", ".md", ".py", ".sh", ".sql", ".toml", ".txt", ".yaml", ".yml")
FOREIGN = re.compile(
    r"""(?:\b(?:pip3?|pipx|uv|poetry)\b[^\n]*\b(?:install|add|run)\s+(?:-\S+\s+)*["'`]?|["'`])streamhouse(?:\[|[=<>~]=)"""
    r"""|\b(?:pip3?|pipx|uv|poetry)\s+(?:\w+\s+)*(?:install|add)\s+(?:-\S+\s+)*["'`]?streamhouse\b(?![-/.\w])"""
)
"""Anything by which an installer would fetch the package that is called like our import."""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path_factory.mktemp("packaging") / "data") as started:
        yield started


def run(program: str, *args: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *args],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def reported(agent: LiveAgent, *args: str, stdin: str = "") -> str:
    """Standard output of a command that went well."""
    where = [] if "--help" in args else ["--http", agent.http] if args[0] == "schemas" else ["-b", agent.bootstrap]
    done = run(COMMAND_LINE, *args, *where, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_importing_loads_nothing() -> None:
    program = "import sys; before = set(sys.modules); import streamhouse; print(*sorted(set(sys.modules) - before))"
    loaded = run(program).stdout.split()
    assert "streamhouse" in loaded
    assert not [name for name in loaded if name.startswith(("streamhouse.", "aiokafka", "httpx", "msgspec", "asyncio"))]


def test_names_that_are_promised_are_there() -> None:
    program = "import streamhouse\nfor name in streamhouse.__all__: assert getattr(streamhouse, name) is not None, name"
    assert run(WITHOUT_SERVER + program).returncode == 0
    assert "has no attribute 'Clint'" in run("import streamhouse; streamhouse.Clint").stderr


def test_the_client_needs_no_server_parts(agent: LiveAgent) -> None:
    program = f"""
import streamhouse
schema = streamhouse.NewSchema(text='"string"')
with streamhouse.SyncClient("{agent.http}") as client:
    client.topics.create("packaged", partitions=2)
    with client.producer("packaged", schema=schema, compression="zstd") as producer:
        producer.send("hello", key="k")
    print([record.value for record in client.consume("packaged", until="end", decode=True)])
"""
    done = run(WITHOUT_SERVER + program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['hello']\n", "")


def test_the_command_line_needs_no_server_parts(agent: LiveAgent, tmp_path: Path) -> None:
    assert "Usage: streamhouse" in reported(agent, "--help")
    reported(agent, "topics", "create", "typed", "-p", "2")
    assert reported(agent, "produce", "typed", "a", "b").startswith("2 records")
    assert sorted(reported(agent, "consume", "typed").split()) == ["a", "b"]
    assert reported(agent, "groups", "list").startswith("no groups")
    file = tmp_path / "order.json"
    file.write_text('{"type": "object"}')
    assert "version 1" in reported(agent, "schemas", "register", "typed-value", str(file))
    (listed,) = json.loads(reported(agent, "schemas", "list", "--prefix", "typed", "--json"))
    assert listed["subject"] == "typed-value"


def test_an_agent_says_what_to_install(tmp_path: Path) -> None:
    done = run(COMMAND_LINE, "up", "--data", str(tmp_path / "data"))
    assert done.returncode == 2
    assert done.stderr == (
        "error: this needs parts that are not installed; missing=uvloop;"
        ' install them with: pip install "pystreamhouse[server]"\n'
    )


def test_spark_says_what_to_install_and_its_settings_need_nothing(tmp_path: Path) -> None:
    done = run(COMMAND_LINE, "spark", "submit", "job.py")
    assert done.returncode == 2
    assert done.stderr == (
        "error: this needs parts that are not installed; missing=pyspark;"
        ' install them with: pip install "pystreamhouse[spark]"\n'
    )
    assert run(COMMAND_LINE, "spark", "config").stdout.startswith("# ")


def written() -> Iterator[Path]:
    """Every text of the project, but for the history, and for this one."""
    yield from (ROOT / name for name in TEXTS if (ROOT / name).exists())
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in SUFFIXES and path != Path(__file__):
                yield path


def test_nothing_that_is_written_installs_the_foreign_package_that_has_our_import_name() -> None:
    paths = list(written())
    assert len(paths) > 1000
    results = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:160]}"
        for path in paths
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if "streamhouse" in line and FOREIGN.search(line)
    ]
    assert results == []


@pytest.mark.parametrize(
    ("text", "is_foreign"),
    [
        ("pip install streamhouse", True),
        ("`pip install streamhouse` is enough", True),
        ('do=pip install "streamhouse[spark]"', True),
        ("needs `streamhouse[spark]` in the Python", True),
        ("uv add streamhouse", True),
        ("pip install 'streamhouse==0.1.0'", True),
        ('pip install "pystreamhouse[spark]"', False),
        ('pip install ".[spark]"', False),
        ("install it and run streamhouse up", False),
    ],
)
def test_what_would_install_the_foreign_package_is_recognised(text: str, is_foreign: bool) -> None:
    assert bool(FOREIGN.search(text)) is is_foreign


def test_error_texts_name_the_distribution_as_it_is_called() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION
    assert project["name"] != "streamhouse"
    assert install_command("spark") == f'pip install "{DISTRIBUTION}[spark]"'
    assert set(project["optional-dependencies"]) >= {"server", "dev-cluster", "spark", "lake"}
