"""Docs that run: every command and every program in the pages is executed against a live agent, as a person types.

Between two commands is a pause, a longer one where something was started that works on in the background: what a page
shows must not depend on how quickly it is typed. `TEST_DOCS_PAUSE_S=5` makes all pauses as long.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from streamhouse.sql.parser import parse
from tests.support.agent import LiveAgent
from tests.support.processes import marked
from tools.docs_site.staging import HOME, navigation, pages

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("[!R]*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    ROOT / "benchmarks/README.md",
]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PATIENCE_S = 240.0
PAUSE_S = float(os.environ.get("TEST_DOCS_PAUSE_S", "0.2"))
BACKGROUND_PAUSE_S = max(PAUSE_S, 5.0)
"""Long enough for a pipeline that runs to have written what it makes of the records that are there."""
STARTS = ("--from-beginning", "--offset", "--from-time", "--group")
ON_SPARK = (
    "README.md",
    "docs/spark.md",
    "docs/pipelines.md",
    "docs/sql.md",
    "docs/materialised-views.md",
    "docs/replay.md",
    "docs/maintenance.md",
    "docs/lake-tables.md",
)
RUNNABLE = [
    pytest.param(page, marks=[pytest.mark.spark] if page.relative_to(ROOT).as_posix() in ON_SPARK else [])
    for page in PAGES
    if BLOCK.search(page.read_text())
]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[LiveAgent]:
    """One for each page, as its readers have: pages use the same names for their topics. What a page tells its readers
    to allow is allowed."""
    allowed = ("--set", "pipelines.allow_python=true", "--set", f"tables.files_under={tmp_path}")
    with LiveAgent(tmp_path / "data", *allowed, grpc=True) as agent:
        yield agent


def commands(text: str) -> list[str]:
    """What is typed: behind `$`, and behind `>` where a command goes on."""
    found: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(line[2:])
        elif line.startswith("> ") or line == ">":
            found[-1] += "\n" + line[2:]
    return found


def pause_after(command: str) -> str:
    works_on = command.endswith("&") or ("pipelines apply" in command and "--wait" in command)
    return f"sleep {BACKGROUND_PAUSE_S if works_on else PAUSE_S}"


def script_of(page: Path, agent: LiveAgent) -> str:
    """The page as one shell script: console lines in order, Python programs in between. `make` is checked below."""
    lines = ["set -euo pipefail"]
    for number, (kind, body) in enumerate(BLOCK.findall(page.read_text())):
        if kind == "console":
            for command in commands(body):
                if not command.startswith("make "):
                    lines += [command, pause_after(command)]
        else:
            program = agent.data.parent / f"{page.stem}-{number}.py"
            program.write_text(at(agent, body))
            lines.append(f"{sys.executable} {program}")
    return at(agent, "\n".join(lines))


def at(agent: LiveAgent, text: str) -> str:
    """The text with this agent's addresses instead of the usual ones."""
    usual = {"127.0.0.1:9092": agent.bootstrap, "127.0.0.1:8080": agent.http, "127.0.0.1:9090": agent.grpc}
    for address, own in usual.items():
        text = text.replace(address, own)
    return text


@pytest.fixture
def environment(agent: LiveAgent) -> Iterator[dict[str, str]]:
    """What a page finds. All that it has left running, a supervisor or a SQL worker for instance, is ended."""
    found = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "STREAMHOUSE_KAFKA_LISTEN": agent.bootstrap,
        "STREAMHOUSE_HTTP_LISTEN": agent.http,
        "STREAMHOUSE_SQL_FOLDER": str(agent.data.parent / "sql"),
    }
    with marked(found) as environment:
        yield environment


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_pages_commands_run(page: Path, agent: LiveAgent, environment: dict[str, str], tmp_path: Path) -> None:
    output = tmp_path / "output"
    with output.open("wb") as file:
        running = subprocess.Popen(
            ["bash", "-c", script_of(page, agent)],
            cwd=agent.data.parent,
            env=environment,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        try:
            code = running.wait(PATIENCE_S)
        finally:
            running.kill()
            running.wait()
    assert code == 0, output.read_text(errors="replace")[-4000:]


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_that_waits_for_a_number_of_records_says_where_they_begin(page: Path) -> None:
    """Else it waits for ever where they were there before the reader was."""
    typed = [
        command for kind, body in BLOCK.findall(page.read_text()) if kind == "console" for command in commands(body)
    ]
    waiting = [command for command in typed if "consume " in command and "--follow" in command and " -n " in command]
    assert [command for command in waiting if not any(start in command for start in STARTS)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_only_targets_that_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^\$ |`)make ([a-z-]+)", page.read_text(), re.MULTILINE)) <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_pages_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


HEADING = re.compile(r"^#{1,4} +(.+?) *$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as GitHub and the site make them."""
    found: list[str] = []
    for heading in HEADING.findall(FENCED.sub("", page.read_text())):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.append(f"{name}-{found.count(name)}" if name in found else name)
    return set(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_pages_anchors_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*\.md)?#([^)]+)\)", FENCED.sub("", page.read_text()))
    assert [(path, name) for path, name in links if name not in anchors(page.parent / path if path else page)] == []


def test_the_site_has_every_page_in_its_navigation() -> None:
    names = pages()
    listed = {HOME}
    for page, name in names.items():
        if name.endswith(HOME):
            folder = PurePosixPath(name).parent
            entries = re.findall(r"^(\S+\.md)$", navigation((ROOT / page).read_text(), page, names), re.MULTILINE)
            listed |= {(folder / entry).as_posix() for entry in entries}
    assert listed == set(names.values())


def test_the_navigation_goes_from_trying_to_changing() -> None:
    groups = re.findall(r"^:caption: (.*)$", navigation((ROOT / "README.md").read_text(), "README.md", pages()), re.M)
    assert groups == ["Try it", "Use it", "Run it", "Understand it", "Change it"]


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """The tests above look for what is most often wrong; Sphinx finds the rest."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.docs_site", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "site" / "index.html").exists()


SQL = re.compile(r"^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if SQL.search(page.read_text())], ids=lambda page: str(page.relative_to(ROOT))
)
def test_a_pages_sql_can_be_understood(page: Path) -> None:
    assert all(parse(block) for block in SQL.findall(page.read_text()))
