"""Docs that run: every command and every program in the pages is executed against a live agent, as a person types.

Pages that need Spark are in `test_pages_on_spark`.
"""

import re
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import typer

from streamhouse.cli.main import app
from streamhouse.sql.parser import parse
from tests.docs.pages import (
    ON_SPARK,
    PAGES,
    ROOT,
    RUNNABLE,
    TIMEOUT_S,
    agent_for_pages,
    environment_of,
    name_of,
    not_printed,
    own_commands,
    run_page,
    shown,
    sql_files,
    typed,
)
from tools.docs_site.staging import HOME, navigation, pages

UsageError: type[Exception] = typer.BadParameter.__bases__[0]
STARTS = ("--from-beginning", "--offset", "--from-time", "--group")


@pytest.mark.parametrize("page", [page for page in RUNNABLE if name_of(page) not in ON_SPARK], ids=name_of)
def test_a_pages_commands_run(page: Path, tmp_path: Path) -> None:
    """An agent for each page, as its readers have: pages use the same names for their topics."""
    with agent_for_pages(tmp_path) as agent, environment_of(agent) as environment:
        run_page(page, agent, environment, tmp_path / "output")


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_a_pages_commands_are_those_of_the_command_line(page: Path) -> None:
    """Names and options; that commands do what the page says is seen where they run."""
    for command in typed(page):
        for arguments in own_commands(command):
            parse_arguments(arguments)


def parse_arguments(arguments: list[str]) -> None:
    """As the command line does it, without running anything; raise `UsageError`."""
    command: Any = typer.main.get_command(app)
    context: Any = None
    name: Any = "streamhouse"
    while True:
        try:
            context = command.make_context(name, list(arguments), parent=context)
        except typer.Exit:  # --help
            return
        except typer.BadParameter as error:
            if "does not exist" not in str(error):  # a file that an earlier command would have made
                raise
            return
        if not isinstance(command, typer.core.TyperGroup):
            return
        arguments = [*context._protected_args, *context.args]
        if not arguments:
            return
        name, command, arguments = command.resolve_command(context, arguments)


def test_a_command_that_does_not_exist_is_noticed() -> None:
    for arguments in (["topic", "list"], ["topics", "create", "orders", "--partition", "3"], ["topics", "create"]):
        with pytest.raises(UsageError):
            parse_arguments(arguments)


def test_what_a_page_shows_is_compared_with_what_was_printed() -> None:
    page = '```console\n$ one\na 1\nb\n$ two\n> more\n{"at":1794784623412}\n```\n'
    assert shown(page) == [["a 1", "b"], ['{"at":1794784623412}']]
    assert not_printed(page, 'a 1\nb\nnoise\n{"at":1811111111111}\n') == []
    assert not_printed(page, 'a 1\nb\n{"at":1811111111111}prompt') == []
    assert not_printed(page, 'a 2\nb\n{"at":1811111111111}\n') == ["a 1", "b"]
    assert not_printed(page, 'a 1\nnoise\nb\n{"at":1811111111111}\n') == ["a 1", "b"]
    assert not_printed(page, '{"at":1811111111111}\na 1\nb\n') == ['{"at":1794784623412}']


def test_some_pages_show_what_is_printed() -> None:
    assert sum(bool(shown(page.read_text())) for page in RUNNABLE) >= 2


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_a_page_that_waits_for_a_number_of_records_says_where_they_begin(page: Path) -> None:
    """Else it waits for ever where they were there before the reader was."""
    waiting = [
        command for command in typed(page) if "consume " in command and "--follow" in command and " -n " in command
    ]
    assert [command for command in waiting if not any(start in command for start in STARTS)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_names_only_targets_that_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^\$ |`)make ([a-z-]+)", page.read_text(), re.MULTILINE)) <= targets


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_pages_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


HEADING = re.compile(r"^#{1,4} +(.+?) *$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as GitHub and the site make them."""
    results: list[str] = []
    for heading in HEADING.findall(FENCED.sub("", page.read_text())):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        results.append(f"{name}-{results.count(name)}" if name in results else name)
    return set(results)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
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
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "site" / "index.html").exists()


SQL = re.compile(r"^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if SQL.search(page.read_text()) or sql_files(page)], ids=name_of
)
def test_a_pages_sql_can_be_understood(page: Path) -> None:
    assert all(parse(block) for block in [*SQL.findall(page.read_text()), *sql_files(page)])
