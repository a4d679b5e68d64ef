"""Runner: asks every question of every peer, in turns, and keeps the answers.

Data path   the measures -> **runner** -> `results`
Owns        the order of a run: peers take turns with fresh brokers, and who goes first changes
Leaves      medians to `results`; showing to `table` and `plot`
Invariant   one broker runs at a time, so that nobody pays for the other's work
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks import results
from benchmarks.kafka_jars import PeerUnavailable
from benchmarks.measure import Curve, Measure, Plan, Reading
from benchmarks.peer import Peer, PeerFailed
from benchmarks.process import Patience
from benchmarks.raw_client import BrokerRefused
from benchmarks.results import CurveSample, Run, Sample

MakePeer = Callable[[], Peer]
FAILURES: Final = (BrokerRefused, OSError, ValueError, RuntimeError, AssertionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One life of one broker, and what it is asked meanwhile."""

    measures: tuple[Measure, ...]
    repetition: int
    peer: str


def turns(measures: Sequence[Measure], peers: Sequence[str], plan: Plan) -> list[Turn]:
    """Who is asked what, in order. Peers swap places with every repetition."""
    groups = [(measure,) for measure in measures] if plan.broker_for_each_measure else [tuple(measures)]
    order: list[Turn] = []
    for group in groups:
        for repetition in range(plan.repetitions):
            names = peers if repetition % 2 == 0 else peers[::-1]
            order += [Turn(measures=group, repetition=repetition, peer=name) for name in names]
    return order


class Runner:
    """One run: holds what was answered so far, and what went wrong."""

    def __init__(self, makers: dict[str, MakePeer], plan: Plan, plan_name: str) -> None:
        self._makers, self._plan, self._plan_name = makers, plan, plan_name
        self._began_at, self._began = results.now(), time.perf_counter()
        self._commit = results.commit()
        self._samples: list[Sample] = []
        self._curves: list[CurveSample] = []
        self._versions: dict[str, str] = {}
        self._busy_cores: list[float] = []
        self._patience = Patience(plan.patience_s)
        self.notes: list[str] = []
        self.asked = 0

    def run(self, measures: Sequence[Measure]) -> Iterator[tuple[Turn, Measure]]:
        """Take one turn after the other; yields each question before it is asked, so that somebody can watch."""
        absent: set[str] = set()
        for turn in turns(measures, list(self._makers), self._plan):
            if turn.peer not in absent:
                try:
                    yield from self._take(turn)
                except (PeerUnavailable, PeerFailed) as reason:
                    absent.add(turn.peer)
                    self.notes.append(f"{turn.peer} skipped: {reason}")

    def _take(self, turn: Turn) -> Iterator[tuple[Turn, Measure]]:
        yield turn, turn.measures[0]
        self._busy_cores.append(round(self._patience.wait(), 2))
        with self._makers[turn.peer]() as peer:
            self._versions[turn.peer] = peer.version
            self._keep("footprint", Reading(scenario="until it answers", metric="start-up", value=peer.startup_s), turn)
            for measure in turn.measures:
                yield turn, measure
                self._ask(measure, peer, turn)
                self.asked += 1

    def _ask(self, measure: Measure, peer: Peer, turn: Turn) -> None:
        try:
            for response in measure.ask(peer, self._plan):
                if isinstance(response, Curve):
                    self._keep_curve(measure.name, response, turn)
                else:
                    self._keep("footprint" if response.metric == "memory" else measure.name, response, turn)
        except FAILURES as error:
            self.notes.append(f"{turn.peer} failed in {measure.name}: {type(error).__name__}: {error}")

    def _keep(self, measure: str, reading: Reading, turn: Turn) -> None:
        self._samples.append(
            Sample(
                measure=measure,
                scenario=reading.scenario,
                metric=reading.metric,
                peer=turn.peer,
                repetition=turn.repetition,
                value=reading.value,
            )
        )

    def _keep_curve(self, measure: str, curve: Curve, turn: Turn) -> None:
        self._curves.append(
            CurveSample(
                measure=measure,
                scenario=curve.scenario,
                peer=turn.peer,
                repetition=turn.repetition,
                quantiles_ms=curve.quantiles_ms,
            )
        )

    def result(self) -> Run:
        return Run(
            began_at=self._began_at,
            plan=self._plan_name,
            commit=self._commit,
            machine=results.machine(),
            peers=self._versions,
            notes=self.notes,
            took_s=round(time.perf_counter() - self._began, 1),
            busy_cores=self._busy_cores,
            samples=self._samples,
            curves=self._curves,
        )
