"""A live agent that the client's tests share, and unique names."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent import LiveAgent

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    data: Path = tmp_path_factory.mktemp("client") / "data"
    with LiveAgent(data, "--set", "groups.initial_rebalance_delay_s=0") as started:
        yield started


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_NUMBERS)}"
