"""Pages of the documentation: which there are, what a reader types, and a shell that types it.

Between two commands is a pause, a longer one where something was started that works on in the background: what a page
shows must not depend on how quickly it is typed. `TEST_DOCS_PAUSE_S=5` makes all pauses as long.
"""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.agent import LiveAgent
from tests.support.processes import marked

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [
    ROOT / "README.md",
    *sorted(ROOT.glob("[!R]*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    ROOT / "benchmarks/README.md",
]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TIMEOUT_S = 240.0
PAUSE_S = float(os.environ.get("TEST_DOCS_PAUSE_S", "0.2"))
BACKGROUND_PAUSE_S = max(PAUSE_S, 5.0)
"""Long enough for a pipeline that runs to have written what it makes of the records that are there."""
ON_SPARK: Final = (
    "README.md",
    "docs/sql.md",
    "docs/spark.md",
    "docs/pipelines.md",
    "docs/materialised-views.md",
    "docs/replay.md",
    "docs/maintenance.md",
    "docs/lake-tables.md",
)
RUNNABLE: Final = [page for page in PAGES if BLOCK.search(page.read_text())]
_HEREDOC: Final = re.compile(r"<<'SQL'\n(.*?)^SQL$", re.MULTILINE | re.DOTALL)
_WORDS_BEFORE: Final = ("until", "while", "if", "do", "then", "!")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def typed(page: Path) -> list[str]:
    """All commands of a page."""
    blocks = BLOCK.findall(page.read_text())
    return [command for kind, body in blocks if kind == "console" for command in commands(body)]


def own_commands(command: str) -> list[list[str]]:
    """The arguments of every `streamhouse` in a line of shell, whatever is before and behind it."""
    lexer = shlex.shlex(command.split("<<")[0], posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in lexer:
        if word and set(word) <= set("|&;<>()"):
            parts.append([])
        else:
            parts[-1].append(word)
    for part in parts:
        while part and part[0] in _WORDS_BEFORE:
            del part[0]
    return [part[1:] for part in parts if part and part[0] == "streamhouse"]


def sql_files(page: Path) -> list[str]:
    """Files of SQL that a reader writes."""
    return [text for command in typed(page) for text in _HEREDOC.findall(command + "\n")]


def commands(text: str) -> list[str]:
    """What is typed: behind `$`, and behind `>` where a command goes on."""
    results: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            results.append(line[2:])
        elif line.startswith("> ") or line == ">":
            results[-1] += "\n" + line[2:]
    return results


def shown(text: str) -> list[list[str]]:
    """What the console blocks of a page show as printed: the lines below each command, if there are any."""
    results: list[list[str]] = []
    for kind, body in BLOCK.findall(text):
        below: list[str] = []
        for line in body.splitlines() if kind == "console" else ():
            if line.startswith(("$ ", "> ")) or line == ">":
                below = []
            elif line.strip():
                if not below:
                    results.append(below)
                below.append(line)
    return results


def not_printed(text: str, output: str) -> list[str]:
    """The lines that a page shows and that were not printed: each command's together and in the order of the page.
    Moments in milliseconds are another time each time."""
    printed = [_timeless(line) for line in output.splitlines()]
    at = 0
    for lines in shown(text):
        requests = [_timeless(line) for line in lines]
        starts = range(at, len(printed) - len(requests) + 1)
        start = next((start for start in starts if _begins(printed[start : start + len(requests)], requests)), None)
        if start is None:
            return lines
        at = start + len(requests)
    return []


def _begins(lines: list[str], wanted: list[str]) -> bool:
    """The last one may go on: not every program ends its last line."""
    return lines[:-1] == wanted[:-1] and lines[-1].startswith(wanted[-1])


def _timeless(line: str) -> str:
    return re.sub(r"\b1[0-9]{12}(?![0-9])", "MILLISECONDS", line.rstrip())


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


@contextlib.contextmanager
def agent_for_pages(folder: Path) -> Iterator[LiveAgent]:
    """An agent with the settings that the pages require."""
    allowed = ("--set", "pipelines.allow_python=true", "--set", f"tables.files_under={folder}")
    with LiveAgent(folder / "data", *allowed, grpc=True) as agent:
        yield agent


@contextlib.contextmanager
def environment_of(agent: LiveAgent) -> Iterator[dict[str, str]]:
    """For the commands of pages. All processes that they have left, a supervisor or a SQL worker for instance, end
    with it."""
    variables = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "STREAMHOUSE_KAFKA_LISTEN": agent.bootstrap,
        "STREAMHOUSE_HTTP_LISTEN": agent.http,
        "STREAMHOUSE_SQL_FOLDER": str(agent.data.parent / "sql"),
    }
    with marked(variables) as environment:
        yield environment


def run_page(page: Path, agent: LiveAgent, environment: dict[str, str], output: Path) -> None:
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
            code = running.wait(TIMEOUT_S)
        finally:
            running.kill()
            running.wait()
    text = output.read_text(errors="replace")
    assert code == 0, text[-4000:]
    assert not_printed(page.read_text(), text) == [], text[-4000:]
