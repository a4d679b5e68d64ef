"""Noticing: seeds are run with a guard taken out of the product until one of them fails.

    python -m tests.simulation.noticing [NAME…]    lines for the table below: after changes that seeds take another way
                                                   by; all mutations, or those that `make test` shows as expensive

Owns        all mutations; where looking for each begins
Leaves      what is broken, and how, to the mutations; what breaks by it to `scenario`
"""

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

import pytest

from tests.simulation.group_mutations import GROUP_MUTATIONS
from tests.simulation.job_mutations import JOB_MUTATIONS
from tests.simulation.mutation import Mutation, Patch
from tests.simulation.mutations import MUTATIONS
from tests.simulation.placing_mutations import PLACING_MUTATIONS
from tests.simulation.scenario import Outcome, run_seed
from tests.simulation.team_mutations import TEAM_MUTATIONS
from tests.simulation.transaction_mutations import TRANSACTION_MUTATIONS

ALL: Final[Mapping[str, Mutation]] = {
    **MUTATIONS,
    **GROUP_MUTATIONS,
    **TEAM_MUTATIONS,
    **PLACING_MUTATIONS,
    **JOB_MUTATIONS,
    **TRANSACTION_MUTATIONS,
}
NO_TRANSACTIONS: Final = {"transactors": 0, "committed_followers": 0}
"""Where it isn't about them, there are none: other things happen more often."""
NOTICED: Final[Mapping[str, int]] = {
    "a PUT may overwrite": 1,
    "a WAL is removed before its recovery is finished": 94,
    "a claim frees the leases": 1,
    "a closed log is not sealed": 83,
    "a dead session's log is not sealed": 2,
    "a duplicate is answered before its original is durable": 14,
    "a flush gives up after a failure": 1,
    "a gap is called out of order where a partition has moved": 278,
    "a marker is taken however late it comes": 26,
    "a placed run carries no producers": 11,
    "a rebalance waits for ever": 22,
    "a rebalance waits for nobody": 3,
    "a refused batch is overtaken": 3,
    "a repeated commit is not recognised": 6,
    "a repeated placement is not recognised": 6,
    "an agent stops without flushing": 6,
    "an answer counts though a marker came meanwhile": 300,
    "an unfinished hold goes on under its epoch": 252,
    "appends are acknowledged without a valid lease": 3,
    "assignments are handed out before they are durable": 330,
    "blocks are not checked": 1,
    "commits are not fenced": 6,
    "deadlines wake nobody": 3,
    "heartbeats of a claimed session are accepted": 1,
    "leases of the living are taken": 1,
    "log objects are deleted before the mark is stored": 6,
    "memory is not given back": 1,
    "offsets count before their transaction is decided": 11,
    "offsets expire too early": 32,
    "offsets expire under their readers": 1,
    "offsets never expire": 1,
    "recovered entries are not replayed for producers": 3,
    "recovered segments lack the producers": 3,
    "recovery begins at the first object": 1,
    "seals are removed with the log": 2,
    "segments lack the producers": 3,
    "sequences advance though the append failed": 3,
    "sessions never end": 8,
    "the WAL is truncated before the segment is registered": 5,
    "the generation of a commit is not checked": 13,
    "the high watermark moves before the commit": 15,
    "the mark passes what is not flushed": 0,
    "the member of a commit is not checked": 2,
    "the next leader doesn't know the producers": 1,
    "the sweep takes objects of live sessions": 1,
    "whatever has our name is taken for ours": 1,
}
"""Seeds that notice, pass with the guard and cost little. When one no longer does, the others are tried as ever."""


def notice(name: str, patch: Patch) -> Outcome | None:
    """The first seed that violates, without this guard, a rule that its absence is expected to violate."""
    ALL[name].apply(patch)
    return next((outcome for seed in _seeds(name) if is_noticed(name, outcome := run(name, seed))), None)


def is_noticed(name: str, outcome: Outcome) -> bool:
    return not outcome.violations.isdisjoint(ALL[name].breaks)


def run(name: str, seed: int) -> Outcome:
    """The seed as a mutation has it; the control run is the same before the mutation is applied."""
    mutation = ALL[name]
    return run_seed(seed, profile=mutation.profile, tweaks={**NO_TRANSACTIONS, **mutation.tweaks})


def _seeds(name: str) -> Iterator[int]:
    known = [NOTICED[name]] if name in NOTICED else []
    return chain(known, (seed for seed in ALL[name].range if seed not in known))


def main(names: Sequence[str]) -> None:
    logging.getLogger("streamhouse").setLevel(logging.CRITICAL)
    for name in names or sorted(ALL):
        seed = cheapest_seed(name)
        if seed is not None and seed != ALL[name].first:
            sys.stdout.write(f'    "{name}": {seed},\n')


def cheapest_seed(name: str) -> int | None:
    """Of the seeds that fail without this guard and pass with it, the one that takes the fewest steps."""
    mutation = ALL[name]
    with pytest.MonkeyPatch.context() as patch:
        mutation.apply(patch)
        outcomes = [run(name, seed) for seed in mutation.range]
    noticed = sorted((outcome.steps, outcome.seed) for outcome in outcomes if is_noticed(name, outcome))
    return next((seed for _, seed in noticed if not run(name, seed).failure), None)


if __name__ == "__main__":
    main(sys.argv[1:])
