"""A nightly run goes on after a failure, ends what takes too long, and sums up."""

import io
import sys
from pathlib import Path

from tests.support.nightly import ROOT, STEPS, Step, main, run_steps, summary


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
    assert [step.name for step in STEPS if f"\n{step.command[2]}: " not in makefile] == []


def test_an_unknown_step_is_refused() -> None:
    assert main(["simulations"]) == 2
