"""A cluster under faults, for a moment; the plan of faults; the page."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.history.anomaly import Anomaly

from .checker import check
from .faults import CONNECTIONS, CUTS, JOIN, RESTART, WEIGHTS, Planned, plan
from .figures import by_kind, effects, pauses
from .history import Fault, History, Leader, RecordId, Send
from .report import page
from .run import Options, run
from .transactions import COMMITTED, TOPICS

AGENTS, SPARE = ["agent 1", "agent 2", "agent 3"], ["agent 4"]


def planned(seed: int, duration_s: float = 300.0) -> list[Planned]:
    return plan(seed, duration_s=duration_s, agents=AGENTS, spare=SPARE, lease_ttl_s=3.0)


def test_a_seed_decides_everything() -> None:
    assert planned(7) == planned(7)
    assert planned(7) != planned(8)


def test_every_kind_of_fault_comes_in_a_run_of_some_minutes() -> None:
    assert {each.kind for each in planned(1)} == set(WEIGHTS)


def test_nobody_is_killed_or_paused_who_is_away_already() -> None:
    for seed in range(50):
        away_until = dict.fromkeys([*AGENTS, *SPARE, RESTART], 0.0)
        for fault in planned(seed):
            if fault.kind not in CONNECTIONS:
                (target,) = fault.targets
                assert away_until[target] <= fault.at_s
                assert target in {JOIN: SPARE, RESTART: [RESTART]}.get(fault.kind, AGENTS)
                away_until[target] = fault.at_s + fault.lasts_s


def test_cuts_are_felt_by_one_or_by_all() -> None:
    cuts = [each for seed in range(5) for each in planned(seed) if each.kind in CUTS]
    assert {len(each.targets) for each in cuts} == {1, len(AGENTS)}


def killed_once() -> History:
    """Acks ten times a second in two partitions; the leader of one is killed at 5 s, and 2 s later there is another."""
    history = History(seed=3, minutes=1.0, lease_ttl_s=3.0, partitions=2, agents=[*AGENTS, *SPARE], ended_at=12.0)
    for partition, agent in ((0, "agent 1"), (1, "agent 2")):
        history.leaders.append(Leader(0.0, partition, agent, 1))
    history.faults.append(Fault(kind="SIGKILL", targets=["agent 1"], begun_at=5.05, ended_at=6.0, healed_at=7.0))
    for number in range(100):
        for partition in (0, 1):
            if partition == 1 or not 50 < number < 70:
                at = number / 10
                record = RecordId("plain", partition, number)
                history.sends.append(Send(record=record, sent_at=at - 0.01, answered_at=at, offset=number))
    return history


def test_a_pause_belongs_to_the_partitions_that_the_victim_led() -> None:
    history = killed_once()
    (pause,) = pauses(history)
    assert (pause.partition, pause.begun_at, pause.ended_at) == (0, 5.0, 7.0)
    (effect,) = effects(history)
    assert (effect.touched, effect.alone) == (1, True)
    assert effect.pause_s == pytest.approx(1.95)
    assert [(kind.kind, kind.count) for kind in by_kind(effects(history))] == [("SIGKILL", 1)]


def test_the_page_needs_nothing_beside_itself_and_says_the_verdict() -> None:
    good = page(killed_once(), [])
    assert "Every promise was kept" in good
    bad = page(killed_once(), [Anomaly(kind="lost ack", text="<b> & co", at=5.0)])
    assert "Promises were broken" in bad
    assert "&lt;b&gt; &amp; co" in bad
    for text in (good, bad):
        assert "<script" not in text
        assert "src=" not in text
        assert "url(" not in text
        assert "<link" not in text


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not in pytest's own folder, which a database that runs as somebody else may not enter.
    place = Path(tempfile.mkdtemp(prefix="streamhouse-chaos-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.mark.chaos
@pytest.mark.s3
@pytest.mark.postgres
async def test_a_moment_of_chaos_breaks_no_promise(folder: Path) -> None:
    said: list[str] = []
    history = await run(
        Options(minutes=0.2, seed=397, folder=folder / "cluster", per_second=15.0, profile="processes"), said.append
    )
    assert check(history) == []
    assert {deal.topic for deal in history.transactional.deals if deal.outcome == COMMITTED} == set(TOPICS)
    assert "Every promise was kept" in page(history, [])
