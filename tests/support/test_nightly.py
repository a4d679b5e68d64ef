"""A nightly run goes on after a failure, ends what takes too long, and sums up."""

import io
import sys
from pathlib import Path

from tests.chaos.faults import PROFILES
from tests.soak.page import SoakResult
from tests.support.depth import base_seed
from tests.support.nightly import PAGE, ROOT, Step, chosen, main, run_steps, steps, summary
from tests.support.nightly_page import NightlyRun, StepResult, collect, faults, felt, figures, page


def python(name: str, program: str, limit_s: float = 60.0) -> Step:
    return Step(name=name, command=(sys.executable, "-c", program), limit_s=limit_s)


def test_every_step_is_run_and_failures_are_shown(tmp_path: Path) -> None:
    steps = [
        python("broken", "import sys; print('the reason'); sys.exit(3)"),
        python("endless", "import time; time.sleep(600)", limit_s=0.5),
        python("right", "print('fine')"),
    ]
    out = io.StringIO()
    outcomes = run_steps(steps, logs=tmp_path, out=out)
    assert [each.failure for each in outcomes] == ["exit code 3", "no end within 0 s", ""]
    assert "the reason" in out.getvalue()
    assert "fine" in (tmp_path / "right.log").read_text()
    assert summary(outcomes)[-1].startswith("1 of 3 steps passed; TEST_SEED=")


def test_the_steps_are_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert [step.name for step in steps() if f"\n{step.command[2]}: " not in makefile] == []


def test_an_unknown_step_is_refused() -> None:
    assert main(["simulations"]) == 2


def test_chaos_has_a_step_for_each_profile_and_one_name_for_all() -> None:
    assert [step.name for step in chosen(["chaos"], 1.0)] == [f"chaos-{profile}" for profile in PROFILES]
    (stores,) = chosen(["chaos-stores"], 1.0)
    assert {"PROFILE=stores", "MINUTES=10", "REPORT=.cache/nightly/chaos-stores.html"} <= set(stores.command)


def test_a_share_makes_budgets_smaller_and_lanes_no_deeper_than_with_every_change() -> None:
    simulate, crash, unit = chosen(["simulate", "crash", "test-unit"], 0.05)
    assert (simulate.command[3], crash.command[3:], unit.command[3:]) == ("SEEDS=200", ("KILLS=3",), ())
    assert "TEST_DEPTH=nightly" in chosen(["test-unit"], 1.0)[0].command
    assert [step.name for step in chosen([], 0.05)] == [step.name for step in steps()]


def test_each_night_has_seeds_of_its_own_and_says_the_first() -> None:
    simulate, views = chosen(["simulate", "view-queries"], 1.0)
    assert f"ARGS=--start {base_seed()} --keep-going" in simulate.command
    assert f"ARGS=--first {base_seed()}" in views.command


def test_what_an_earlier_run_left_of_a_step_is_not_shown_for_one_that_came_to_nothing(tmp_path: Path) -> None:
    for name in ("soak.json", "soak.html", "chaos-stores.html"):
        (tmp_path / name).write_text("{}")
    run_steps([python("soak", "import sys; sys.exit(2)")], logs=tmp_path, out=io.StringIO())
    left = collect([result("soak", "exit code 2")], folder=tmp_path, seed=1)
    assert (left.soak, left.links, left.logs) == (None, {}, {"soak": ""})
    assert (tmp_path / "chaos-stores.html").exists()


# --- the page


def result(name: str, failure: str = "") -> StepResult:
    return StepResult(name, f"make {name}", 90.0, failure)


def test_figures_are_taken_from_the_end_of_the_logs() -> None:
    logs = {
        "simulate": "seed 7: passed\n12 seeds, 1 failed, 3.0 s\nacks=731 death:killed=3 fault:disk-full=2 reads=5\n",
        "chaos-stores": "acked=810 sent=900\nSIGKILL of an agent: 4 (2 alone), felt 9 times\n3 anomalies, seed 5\n",
        "chaos-clocks": "acked=90 sent=91\nSIGKILL of an agent: 1 (1 alone), felt 2 times\n0 anomalies, seed 6\n",
        "test-unit": "= 3 failed, 11,402 passed in 60 s =",
    }
    run = NightlyRun(results=[result(name) for name in logs], seed=1, logs=logs)
    reported = {text: number for number, text in figures(run)}
    assert (reported["seeds of the simulation"], reported["seeds that failed"], reported["acks in the simulation"]) == (
        "12",
        "1",
        "731",
    )
    assert (reported["acks in chaos"], reported["anomalies in chaos"]) == ("900", "3")
    assert faults(logs["simulate"]) == [("killed (death)", 3.0), ("disk-full (fault)", 2.0)]
    assert felt([logs["chaos-stores"], logs["chaos-clocks"]]) == [("SIGKILL of an agent", 11.0)]


def test_the_page_shows_failures_and_what_was_not_run() -> None:
    run = NightlyRun(
        results=[result("lint"), result("fuzz", "exit code 1")], seed=42, logs={"fuzz": "a <frame> broke it\n"}
    )
    text = page(run)
    assert "1 of 2 steps failed" in text
    assert "a &lt;frame&gt; broke it" in text
    assert "TEST_SEED=42" in text
    assert text.count("Not in this run.") == 4
    assert "<script" not in text
    assert "http://" not in text
    assert "https://" not in text


def test_curves_of_a_soak_run_are_on_the_page_the_growing_ones_first(tmp_path: Path) -> None:
    times = [float(at) for at in range(0, 600, 5)]
    values = {"agent 1 pss": [100 + at / 5 for at in times], "topics rows": [5.0 for _ in times]}
    soak = SoakResult(minutes=10, warm_up_s=60, at_s=times, values=values, done={}, failed={})
    text = page(NightlyRun(results=[result("soak", "exit code 1")], seed=1, soak=soak))
    assert "agent 1 pss grows" in text
    assert text.index("<b>agent 1 pss</b>") < text.index("<b>topics rows</b>")
    assert text.count("<polyline") == 2


def test_a_run_that_is_ended_early_has_a_page_that_says_what_is_missing(tmp_path: Path) -> None:
    seen = f"import pathlib; print(pathlib.Path({str(tmp_path / PAGE)!r}).read_text())"
    run_steps([python("first", "print('fine')"), python("second", seen)], logs=tmp_path, out=io.StringIO())
    early = (tmp_path / "second.log").read_text()
    assert "All 1 steps passed" in early
    assert "Not run yet: second." in early


def test_the_page_of_a_run_is_written_beside_its_logs(tmp_path: Path) -> None:
    run_steps([python("right", "print('fine')")], logs=tmp_path, out=io.StringIO())
    text = (tmp_path / PAGE).read_text()
    assert "All 1 steps passed" in text
    assert "Not run yet" not in text
    assert collect([result("soak")], folder=tmp_path, seed=1).soak is None
