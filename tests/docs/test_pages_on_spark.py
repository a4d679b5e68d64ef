"""Docs that run on Spark: README.md with every change, the others nightly.

README.md and docs/sql.md share an agent, a SQL worker and a supervisor: their topics have different names. The other
pages' SQL is bound by `tests/spark/query/test_pages.py`, in the Spark that all tests share, and `test_pages` parses
their commands.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ON_SPARK, ROOT, agent_for_pages, environment_of, run_page
from tests.support.agent import LiveAgent
from tests.support.depth import scaled

pytestmark = pytest.mark.spark

SHARED = scaled(quick=ON_SPARK[:1], nightly=ON_SPARK[:2])


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveAgent, dict[str, str]]]:
    with agent_for_pages(tmp_path_factory.mktemp("pages")) as agent, environment_of(agent) as environment:
        yield agent, environment


@pytest.mark.parametrize("name", SHARED)
def test_a_pages_commands_run(name: str, reader: tuple[LiveAgent, dict[str, str]], tmp_path: Path) -> None:
    run_page(ROOT / name, *reader, tmp_path / "output")


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_SPARK[2:])
def test_a_pages_commands_run_on_an_agent_of_its_own(name: str, tmp_path: Path) -> None:
    with agent_for_pages(tmp_path) as agent, environment_of(agent) as environment:
        run_page(ROOT / name, agent, environment, tmp_path / "output")
