"""Faults: which ones, in what order, when and for how long; all of it follows from the seed.

Data path   seed -> **faults** -> nemesis
Owns        the kinds of fault, how often each is chosen, how long each lasts
Leaves      doing them to `nemesis`
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from .checker import PAUSE

KILL: Final = "SIGKILL"
HICCUP: Final = "SIGSTOP, short"
TERM: Final = "SIGTERM"
JOIN: Final = "agent joins"
STORE_HOLE: Final = "store: black hole"
STORE_RESET: Final = "store: reset"
DATABASE_HOLE: Final = "database: black hole"
DATABASE_RESET: Final = "database: reset"
RESTART: Final = "PostgreSQL restarted"

PROCESS: Final = (KILL, PAUSE, HICCUP, TERM)
CUTS: Final = (STORE_HOLE, STORE_RESET, DATABASE_HOLE, DATABASE_RESET)
# How often, against each other, and for how many seconds: how long a process is away or a connection is cut.
WEIGHTS: Final = {
    KILL: 5,
    PAUSE: 5,
    HICCUP: 2,
    TERM: 4,
    JOIN: 3,
    STORE_HOLE: 3,
    STORE_RESET: 2,
    DATABASE_HOLE: 3,
    DATABASE_RESET: 2,
    RESTART: 2,
}
LASTS_S: Final = {
    KILL: (0.0, 6.0),
    PAUSE: (1.2, 4.0),  # in lease times: everybody else has taken over when it wakes
    HICCUP: (0.1, 0.7),  # in lease times: nobody, or hardly
    TERM: (0.0, 4.0),
    JOIN: (4.0, 12.0),
    STORE_HOLE: (0.5, 9.0),
    STORE_RESET: (0.5, 9.0),
    DATABASE_HOLE: (0.5, 9.0),
    DATABASE_RESET: (0.5, 9.0),
    RESTART: (0.0, 4.0),
}
GAPS_S: Final = (0.3, 9.0)
SETTLE_S: Final = 4.0  # what a process needs to be back
ALL: Final = 0.3  # share of cuts that are felt by everybody


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    at_s: float
    kind: str
    targets: tuple[str, ...]
    lasts_s: float
    gently: bool
    """of an agent that leaves, or a database that is restarted: SIGTERM instead of SIGKILL"""


def plan(
    seed: int, *, duration_s: float, agents: Sequence[str], spare: Sequence[str], lease_ttl_s: float
) -> list[Planned]:
    """The faults of a run. Nobody is killed or paused who is away already; everything else may come together."""
    chance = random.Random(seed)
    busy_until = dict.fromkeys([*agents, *spare, RESTART], 0.0)
    return list(_plan(chance, duration_s, agents, spare, lease_ttl_s, busy_until))


def _plan(
    chance: random.Random,
    duration_s: float,
    agents: Sequence[str],
    spare: Sequence[str],
    lease_ttl_s: float,
    busy_until: dict[str, float],
) -> Iterator[Planned]:
    now = 1.0 + chance.uniform(*GAPS_S)
    kinds = _bag(chance)
    while now < duration_s:
        kind = next(kinds)
        lasts_s = min(_lasts(chance, kind, lease_ttl_s), max(0.5, duration_s - now))
        free = _free(kind, agents, spare, busy_until, now)
        if free:
            targets = _targets(chance, kind, free)
            if kind not in CUTS:
                busy_until |= dict.fromkeys(targets, now + lasts_s + SETTLE_S)
            yield Planned(at_s=now, kind=kind, targets=targets, lasts_s=lasts_s, gently=chance.random() < 0.5)
        now += chance.uniform(*GAPS_S)


def _bag(chance: random.Random) -> Iterator[str]:
    """Kinds by weight, shuffled: each comes before any is chosen more often than it should."""
    while True:
        bag = [kind for kind, weight in WEIGHTS.items() for _ in range(weight)]
        chance.shuffle(bag)
        yield from bag


def _lasts(chance: random.Random, kind: str, lease_ttl_s: float) -> float:
    shortest, longest = LASTS_S[kind]
    unit = lease_ttl_s if kind in (PAUSE, HICCUP) else 1.0
    return chance.uniform(shortest, longest) * unit


def _free(
    kind: str, agents: Sequence[str], spare: Sequence[str], busy_until: dict[str, float], now: float
) -> list[str]:
    candidates = {JOIN: spare, RESTART: [RESTART]}.get(kind, agents)
    return list(candidates) if kind in CUTS else [name for name in candidates if busy_until[name] <= now]


def _targets(chance: random.Random, kind: str, free: Sequence[str]) -> tuple[str, ...]:
    if kind in CUTS and chance.random() < ALL:
        return tuple(free)
    return (chance.choice(free),)
