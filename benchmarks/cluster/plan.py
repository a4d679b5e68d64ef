"""Plan: the sizes of a run, and what a question to a cluster looks like.

Owns        `FULL` (under eight minutes) and `QUICK` (two)
Leaves      asking to the modules that implement `Question`
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from benchmarks.measure import Answer, Curve, Reading
from benchmarks.pace import quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """How often, and for how long, in seconds."""

    kills: int
    hand_overs: int
    rates_repetitions: int
    warm_up_s: float
    produce_s: float
    consume_s: float
    latency_s: float
    idle_s: float
    trickle_s: float
    loaded_s: float
    joins: int
    patience_s: float


FULL: Final = ClusterPlan(
    kills=5,
    hand_overs=3,
    rates_repetitions=2,
    warm_up_s=2.0,
    produce_s=4.0,
    consume_s=2.0,
    latency_s=5.0,
    idle_s=10.0,
    trickle_s=32.0,  # longer than records wait for their segment, so that the flushes are in it
    loaded_s=6.0,
    joins=3,
    patience_s=30.0,
)
QUICK: Final = ClusterPlan(
    kills=1,
    hand_overs=1,
    rates_repetitions=1,
    warm_up_s=0.5,
    produce_s=1.5,
    consume_s=1.0,
    latency_s=1.5,
    idle_s=3.0,
    trickle_s=5.0,
    loaded_s=2.0,
    joins=1,
    patience_s=2.0,
)


class Question(Protocol):
    """Something to be found out, with clusters that it starts itself."""

    name: str
    question: str

    def ask(self, plan: ClusterPlan) -> Iterator[Answer]: ...


def spread(scenario: str, values_s: Sequence[float]) -> Iterator[Answer]:
    """Few values: their median and their extremes say more than percentiles would."""
    ascending_ms = sorted(value * 1e3 for value in values_s)
    if not ascending_ms:
        return
    yield Reading(scenario=scenario, metric="least", value=ascending_ms[0])
    yield Reading(scenario=scenario, metric="median", value=quantile(ascending_ms, 0.5))
    yield Reading(scenario=scenario, metric="longest", value=ascending_ms[-1])
    yield Reading(scenario=scenario, metric="samples", value=len(ascending_ms))
    yield Curve(scenario=scenario, quantiles_ms=[round(value, 3) for value in ascending_ms])
