"""What the benchmarks make of their numbers: turns, medians, ratios, percentiles and the page."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from benchmarks import __main__ as main
from benchmarks import plot, readme, results, table
from benchmarks.compare import changes
from benchmarks.measure import FULL, QUICK, Answer, Plan
from benchmarks.pace import quantile
from benchmarks.peer import Peer
from benchmarks.results import CurveSample, Run, Sample, is_better, merged, rows, unfit
from benchmarks.runner import turns


class Question:
    def __init__(self, name: str) -> None:
        self.name, self.question = name, f"{name}?"

    def ask(self, peer: Peer, plan: Plan) -> Iterator[Answer]:
        yield from ()


def a_run(values: dict[str, list[float]], *, scenario: str = "produce x", metric: str = "records") -> Run:
    samples = [
        Sample(measure="throughput", scenario=scenario, metric=metric, peer=peer, repetition=number, value=value)
        for peer, of_peer in values.items()
        for number, value in enumerate(of_peer)
    ]
    curve = CurveSample(
        measure="latency", scenario="ack, acks=all", peer="kafka", repetition=0, quantiles_ms=[0.1, 0.2, 3.0]
    )
    return Run(
        began_at="2026-01-01T00:00:00Z",
        plan="full",
        commit="abc1234",
        machine="2 cores",
        peers={peer: peer.upper() for peer in values},
        notes=[],
        took_s=1.0,
        busy_cores=[0.5],
        samples=samples,
        curves=[curve],
    )


def test_peers_take_turns_and_swap_places_with_every_repetition() -> None:
    order = turns([Question("a")], ["s", "k"], FULL)
    assert [turn.peer for turn in order] == ["s", "k", "k", "s", "s", "k"]


def test_a_full_run_starts_a_broker_for_each_measure_and_a_quick_one_shares_it() -> None:
    questions = [Question("a"), Question("b")]
    assert len(turns(questions, ["s"], replace(FULL, repetitions=1))) == 2
    (shared,) = turns(questions, ["s"], QUICK)
    assert [measure.name for measure in shared.measures] == ["a", "b"]


def test_the_median_of_repetitions_is_what_is_compared() -> None:
    (row,) = rows(a_run({"streamhouse": [1.0, 30.0, 20.0], "kafka": [10.0, 10.0, 900.0]}))
    assert row.medians == {"streamhouse": 20.0, "kafka": 10.0}
    assert row.ratio("streamhouse", "kafka") == 2.0


def test_a_part_measured_again_replaces_both_peers_and_leaves_the_rest() -> None:
    old = a_run({"streamhouse": [1.0], "kafka": [2.0]})
    again = merged(old, a_run({"kafka": [5.0]}), ["throughput"])
    assert [row.medians for row in rows(again)] == [{"kafka": 5.0}]
    assert again.curves == old.curves
    assert any("measured again" in note for note in again.notes)


def test_there_is_no_ratio_without_both_peers() -> None:
    (row,) = rows(a_run({"streamhouse": [1.0]}))
    assert row.ratio("streamhouse", "kafka") is None


def test_less_is_better_for_cpu_and_more_for_records() -> None:
    assert is_better("records", 1.1)
    assert not is_better("cpu", 1.1)


def test_the_highest_quantile_is_the_last_sample() -> None:
    assert quantile([1.0, 2.0], 1.0) == 2.0


def test_a_change_is_the_median_ratio_of_turns_that_follow_each_other() -> None:
    (result,) = changes(a_run({"base": [100.0, 50.0, 200.0], "change": [200.0, 100.0, 800.0]}))  # the machine varied
    assert (result.base, result.change, result.ratio) == (100.0, 200.0, 2.0)
    assert result.is_sure


def test_a_change_within_noise_is_not_sure() -> None:
    (result,) = changes(a_run({"base": [100.0] * 4, "change": [90.0, 110.0, 95.0, 108.0]}))
    assert result.low < 1.0 < result.high
    assert not result.is_sure


def test_the_page_keeps_its_words_and_gets_new_numbers() -> None:
    page = f"before\n{readme.BROKERS.begin}\nstale\n{readme.BROKERS.end}\nafter\n"
    written = readme.with_numbers(page, a_run({"streamhouse": [2000.0], "kafka": [1000.0]}))
    assert written.startswith("before\n")
    assert written.endswith(f"{readme.BROKERS.end}\nafter\n")
    assert "stale" not in written
    assert "| produce x | 2,000 | 1,000 | **2.00** |" in written


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no marks"):
        readme.with_numbers("nothing here", a_run({"kafka": [1.0]}))


def test_a_client_that_was_busy_is_named() -> None:
    (word,) = table.busy_clients(a_run({"kafka": [1.2]}, metric="client busy"))
    assert "kafka in produce x" in word


def test_a_run_with_few_numbers_can_be_drawn(tmp_path: Path) -> None:
    path = plot.draw(a_run({"streamhouse": [2.0], "kafka": [1.0]}, metric="bytes"), tmp_path / "run.png")
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [({"commit": "abc1234+"}, "differed"), ({"busy_cores": [0.1, 1.9, 1.2]}, "crowded"), ({"plan": "quick"}, "short")],
)
def test_a_run_that_says_too_little_is_not_published(changed: dict[str, Any], reason: str) -> None:
    fit = structs.replace(a_run({"kafka": [1.0]}), busy_cores=[0.1, 2.0, 0.2])
    assert unfit(fit) == []
    (result,) = unfit(structs.replace(fit, **changed))
    assert reason in result


def test_an_unfit_run_leaves_the_page_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"{readme.PUBLISHED.begin}\n{readme.PUBLISHED.end}\n")
    monkeypatch.setattr(main, "PAGE", page)
    monkeypatch.setattr(main, "PICTURE", tmp_path / "benchmarks.png")
    before = page.read_text()
    with pytest.raises(SystemExit, match="crowded"):
        main.publish(structs.replace(a_run({"kafka": [1.0]}), busy_cores=[3.0]))
    assert page.read_text() == before
    main.publish(a_run({"streamhouse": [2.0], "kafka": [1.0]}))
    assert "| produce x | 2.00 | 1.00 | **2.00** |" in page.read_text()
    assert (tmp_path / "benchmarks.png").exists()


def test_publishing_from_a_dirty_tree_is_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "is_tree_dirty", lambda: True)
    with pytest.raises(SystemExit):
        main.arguments(["--publish"])
    monkeypatch.setattr(results, "is_tree_dirty", lambda: False)
    assert main.arguments(["--publish"]).publish


def test_the_page_in_the_repository_has_the_marks_of_a_run() -> None:
    readme.with_numbers(main.PAGE.read_text(), a_run({"streamhouse": [1.0], "kafka": [1.0]}), readme.PUBLISHED)


def test_a_full_run_asks_everything_and_its_broker_ends_last() -> None:
    names = [measure.name for measure in main.chosen(main.arguments(["--full"]))]
    assert names[-1] == "cost"
    assert {"fixed-rate", "fan-out", "partitions", "cold-reads", "connections", "groups"} < set(names)
    assert [measure.name for measure in main.chosen(main.arguments([]))] == [each.name for each in main.MEASURES]
