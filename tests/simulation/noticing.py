"""Noticing: seeds are run with a guard taken out of the product until one of them violates what the guard keeps.

Owns        all mutations; `noticed.json`, which says where looking for each begins; the search
Leaves      what is broken, and how, to the mutations; what breaks by it to `scenario`; writing to `mutants`

Each change of the product or of the simulator sends seeds another way, and one that noticed may no longer do so. Then
the search goes on with others: `make mutants` writes down what it finds.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.simulation.group_mutations import GROUP_MUTATIONS
from tests.simulation.job_mutations import JOB_MUTATIONS
from tests.simulation.mutation import Mutation
from tests.simulation.mutations import MUTATIONS
from tests.simulation.placing_mutations import PLACING_MUTATIONS
from tests.simulation.scenario import Outcome, run_seed
from tests.simulation.team_mutations import TEAM_MUTATIONS
from tests.simulation.transaction_mutations import TRANSACTION_MUTATIONS
from tests.simulation.wire_mutations import WIRE_MUTATIONS
from tests.support.memory import limited_memory

ALL: Final[Mapping[str, Mutation]] = {
    **MUTATIONS,
    **GROUP_MUTATIONS,
    **TEAM_MUTATIONS,
    **PLACING_MUTATIONS,
    **JOB_MUTATIONS,
    **TRANSACTION_MUTATIONS,
    **WIRE_MUTATIONS,
}
NO_TRANSACTIONS: Final = {"transactors": 0, "committed_followers": 0}
"""Where it isn't about them, there are none: other things happen more often."""
MEMORY_BYTES: Final = 2 << 30
NOTICED_FILE: Final = Path(__file__).with_name("noticed.json")
NOTICED: Final[Mapping[str, Sequence[int]]] = json.loads(NOTICED_FILE.read_text())
"""Seeds that have noticed and passed with the guard, the last one first. When none of them does any more, the others
are tried as ever; but a seed that had the right circumstances once often has them again."""
KEPT: Final = 4
"""So many seeds of a mutation are kept."""


class Found(NamedTuple):
    """What a search has found: the first seed that notices and passes with the guard, if there was one in time."""

    noticed: Outcome | None
    tried: int
    fails_always: tuple[Outcome, ...]
    """Runs with the guard in place that failed all the same: no seed may."""


def search(name: str, *, budget_s: float | None = None) -> Found:
    """Try the seeds that are known, then all of the mutation's own. With a budget, in seconds of CPU, so that a busy
    machine tries as many: for as long as it lasts, and others after them. A seed that notices is run again with the
    guard."""
    until = time.process_time() + (budget_s or 0)
    tried, fails = 0, list[Outcome]()
    for seed in _seeds(name, is_endless=budget_s is not None):
        if budget_s is not None and tried and time.process_time() >= until:
            break
        tried += 1
        outcome = run_without(name, seed)
        if not is_noticed(name, outcome):
            continue
        if (control := run(name, seed)).failure is None:
            return Found(outcome, tried, tuple(fails))
        fails.append(control)
    return Found(None, tried, tuple(fails))


def cheapest(name: str) -> Found:
    """Of the mutation's own seeds that notice and pass with the guard, the one that takes the fewest steps."""
    outcomes = [run_without(name, seed) for seed in ALL[name].range]
    noticed = sorted((each.steps, each.seed) for each in outcomes if is_noticed(name, each))
    controls = ((seed, run(name, seed)) for _, seed in noticed)
    seed = next((seed for seed, control in controls if control.failure is None), None)
    return Found(next((each for each in outcomes if each.seed == seed), None), len(outcomes), ())


def run_without(name: str, seed: int) -> Outcome:
    """The seed without the guard. What may now believe a length that is a lie has limited memory."""
    with pytest.MonkeyPatch.context() as patch, limited_memory(MEMORY_BYTES):
        ALL[name].apply(patch)
        return run(name, seed)


def is_noticed(name: str, outcome: Outcome) -> bool:
    return not outcome.violations.isdisjoint(ALL[name].breaks)


def run(name: str, seed: int) -> Outcome:
    """The seed as a mutation has it; the control run is the same before the mutation is applied."""
    mutation = ALL[name]
    return run_seed(seed, profile=mutation.profile, tweaks={**NO_TRANSACTIONS, **mutation.tweaks})


def remember(seeds: Mapping[str, int]) -> None:
    """Write down where looking begins from now on."""
    known = {name: with_seed(NOTICED.get(name, ()), seed) for name, seed in seeds.items()}
    lines = [
        f"  {json.dumps(name)}: {json.dumps(list(each))}"
        for name, each in sorted({**NOTICED, **known}.items())
        if name in ALL
    ]
    NOTICED_FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def with_seed(known: Sequence[int], seed: int) -> Sequence[int]:
    """The seeds that are known, this one first."""
    return [seed, *(each for each in known if each != seed)][:KEPT]


def _seeds(name: str, *, is_endless: bool) -> Iterator[int]:
    own, known = ALL[name].range, NOTICED.get(name, ())
    others: Iterable[int] = chain(own, count(own.stop)) if is_endless else own
    return chain(known, (seed for seed in others if seed not in known))
