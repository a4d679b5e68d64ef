"""Mutated frames through a whole agent: it responds or closes, does not grow, and serves others as before."""

from pathlib import Path

import pytest

from tests.fuzz.hostility import endure
from tests.support.depth import scaled

FRAMES = scaled(quick=5_000, nightly=100_000)


@pytest.mark.timeout(300)
def test_an_agent_endures_nonsense(tmp_path: Path) -> None:
    endured = endure(tmp_path, frames=FRAMES, seed=20261115)
    assert endured.errors == []
    assert endured.rss_late_mb < endured.rss_early_mb + 100
