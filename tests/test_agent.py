"""Whole agents in processes of their own: who may start where."""

from pathlib import Path

import pytest

from tests.live import LiveAgent


def test_a_second_agent_on_the_same_metadata_store_is_refused_and_harms_nobody(tmp_path: Path) -> None:
    shared = ("--metadata", f"sqlite:///{tmp_path}/shared.db", "--store", f"file://{tmp_path}/objects")
    with LiveAgent(tmp_path / "first", *shared) as first:
        second = LiveAgent(tmp_path / "second", *shared)
        with pytest.raises(AssertionError, match="another agent uses this SQLite database"):
            second.start()
        assert first.stop() == 0


def test_an_agent_that_was_killed_comes_back_at_once_on_a_metadata_store_of_its_own(tmp_path: Path) -> None:
    with LiveAgent(tmp_path / "data", "--metadata", f"sqlite:///{tmp_path}/facts.db") as agent:
        agent.kill()
        agent.start()
