"""`python -m benchmarks.cluster`: asks a cluster, shows tables, writes JSON and the page.

Data path   arguments -> **__main__** -> the questions -> `results`, `table`, `readme`
Owns        the command line, and that a question which fails leaves the others alone
Leaves      measuring to the questions
"""

import argparse
import gc
import signal
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

from rich.console import Console

from benchmarks import readme, results, table
from benchmarks.cluster.ack import Ack
from benchmarks.cluster.failover import Failover
from benchmarks.cluster.hand_over import HandOver
from benchmarks.cluster.null_store import NullStore
from benchmarks.cluster.plan import FULL, QUICK, ClusterPlan, Question
from benchmarks.cluster.rates import Rates
from benchmarks.cluster.start_up import StartUp
from benchmarks.cluster.upkeep import Upkeep
from benchmarks.kafka_jars import PeerUnavailable
from benchmarks.measure import Curve
from benchmarks.peer import PeerFailed, raise_open_file_limit
from benchmarks.process import Patience
from benchmarks.results import CurveSample, Run, Sample
from benchmarks.runner import FAILURES
from streamhouse.errors.base import DISTRIBUTION

QUESTIONS: Final[tuple[Question, ...]] = (Failover(), HandOver(), Rates(), Ack(), NullStore(), Upkeep(), StartUp())
FOLDER: Final = results.FOLDER / "cluster"
PEER: Final = table.OURS


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    names = [question.name for question in QUESTIONS]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster", description="A cluster of StreamHouse agents."
    )
    parser.add_argument("--quick", action="store_true", help="short, about two minutes")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--write-readme", action="store_true", help="put the newest numbers into benchmarks/README.md")
    parser.add_argument("--no-run", action="store_true", help="show and write the newest results; measure nothing")
    return parser.parse_args(words)


class Asker:
    """One run: what was answered so far, and what went wrong."""

    def __init__(self, plan: ClusterPlan, plan_name: str, console: Console) -> None:
        self._plan, self._plan_name, self._console = plan, plan_name, console
        self._began_at, self._began = results.now(), time.perf_counter()
        self._commit = results.commit()
        self._patience = Patience(plan.patience_s)
        self._busy_cores: list[float] = []
        self._samples: list[Sample] = []
        self._curves: list[CurveSample] = []
        self._notes: list[str] = []

    def ask(self, question: Question) -> None:
        self._busy_cores.append(round(self._patience.wait(), 2))
        began = time.perf_counter()
        self._console.print(f"[dim]{question.name}: {question.question}[/]", highlight=False)
        try:
            self._keep(question)
        except (*FAILURES, PeerFailed, PeerUnavailable) as error:
            self._notes.append(f"{question.name} failed: {type(error).__name__}: {error}")
            self._console.print(f"[red]{self._notes[-1]}[/]", highlight=False, markup=True)
        self._console.print(f"[dim]  {time.perf_counter() - began:.0f} s[/]", highlight=False)

    def _keep(self, question: Question) -> None:
        seen: dict[tuple[str, str], int] = {}
        for response in question.ask(self._plan):
            if isinstance(response, Curve):
                self._curves.append(
                    CurveSample(
                        measure=question.name,
                        scenario=response.scenario,
                        peer=PEER,
                        repetition=0,
                        quantiles_ms=response.quantiles_ms,
                    )
                )
                continue
            key = response.scenario, response.metric
            self._samples.append(
                Sample(
                    measure=question.name,
                    scenario=response.scenario,
                    metric=response.metric,
                    peer=PEER,
                    repetition=seen.get(key, 0),
                    value=response.value,
                )
            )
            seen[key] = seen.get(key, 0) + 1

    def result(self) -> Run:
        return Run(
            began_at=self._began_at,
            plan=self._plan_name,
            commit=self._commit,
            machine=results.machine(),
            peers={PEER: f"StreamHouse {version(DISTRIBUTION)}"},
            notes=self._notes,
            took_s=round(time.perf_counter() - self._began, 1),
            busy_cores=self._busy_cores,
            samples=self._samples,
            curves=self._curves,
        )


def run(asked: argparse.Namespace, console: Console) -> Run:
    plan, plan_name = (QUICK, "quick") if asked.quick else (FULL, "full")
    asker = Asker(plan, plan_name, console)
    for question in QUESTIONS:
        if not asked.only or question.name in asked.only:
            asker.ask(question)
    return asker.result()


def main() -> None:
    asked, console = arguments(), Console()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that clusters are stopped on the way out
    raise_open_file_limit()
    gc.disable()  # a collection in the client would look like a slow agent; a run makes few cycles
    path = results.newest(FOLDER) if asked.no_run else results.save(run(asked, console), FOLDER)
    if path is None:
        raise SystemExit("no results yet: run without --no-run first")
    shown = results.load(path)
    table.show(shown, console)
    console.print(f"[dim]{path}[/]", highlight=False, soft_wrap=True)
    if asked.write_readme:
        readme.write(shown, marks=readme.CLUSTER)


if __name__ == "__main__":
    main()
