"""Faults: which ones, in what order, when and for how long; all of it follows from the seed.

Data path   seed -> **faults** -> nemesis
Owns        the kinds of fault, how often each is chosen, how long each lasts
Leaves      doing them to `nemesis`
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

KILL: Final = "SIGKILL"
PAUSE: Final = "SIGSTOP"
HICCUP: Final = "SIGSTOP, short"
TERM: Final = "SIGTERM"
JOIN: Final = "agent joins"
STORE_HOLE: Final = "store: black hole"
STORE_RESET: Final = "store: reset"
DATABASE_HOLE: Final = "database: black hole"
DATABASE_RESET: Final = "database: reset"
RESTART: Final = "PostgreSQL restarted"
CLIENTS_HOLE: Final = "clients: black hole"
CLIENTS_RESET: Final = "clients: reset"
PEERS_HOLE: Final = "other agents: black hole"
PEERS_RESET: Final = "other agents: reset"
STORE_500: Final = "store: answers 500"
STORE_SLOW_DOWN: Final = "store: answers 503 SlowDown"
STORE_403: Final = "store: answers 403"
STORE_LIES: Final = "store: PUT done, answered 500"
STORE_OLD_LISTS: Final = "store: lists 3 s late"
STORE_CUT_SHORT: Final = "store: bodies cut short"
STORE_GONE: Final = "store: objects gone"
CLOCK: Final = "clock: wrong"

PROCESS: Final = (KILL, PAUSE, HICCUP, TERM)
CUTS: Final = (
    STORE_HOLE,
    STORE_RESET,
    DATABASE_HOLE,
    DATABASE_RESET,
    CLIENTS_HOLE,
    CLIENTS_RESET,
    PEERS_HOLE,
    PEERS_RESET,
)
ANSWERS: Final = (
    STORE_500,
    STORE_SLOW_DOWN,
    STORE_403,
    STORE_LIES,
    STORE_OLD_LISTS,
    STORE_CUT_SHORT,
    STORE_GONE,
)
CONNECTIONS: Final = (*CUTS, *ANSWERS)
"""What is done to connections: it meets agents that are away, too, and comes together with anything."""
# How often, against each other, and for how many seconds: how long a process is away or a connection is cut.
RARELY_FELT: Final = (STORE_OLD_LISTS, STORE_GONE, PEERS_HOLE, PEERS_RESET)
"""These need a list with young objects, a read that no cache answers, or one agent that has something to say to
another. Whether one was felt stands beside it on the page."""
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
    CLIENTS_HOLE: 2,
    CLIENTS_RESET: 2,
    PEERS_HOLE: 2,
    PEERS_RESET: 1,
    STORE_500: 2,
    STORE_SLOW_DOWN: 2,
    STORE_403: 2,
    STORE_LIES: 2,
    STORE_OLD_LISTS: 1,
    STORE_CUT_SHORT: 2,
    STORE_GONE: 1,
    CLOCK: 2,
}
PROFILES: Final = {
    "everything": tuple(WEIGHTS),
    "processes": (*PROCESS, JOIN, RESTART),
    "networks": (*CUTS, KILL, PAUSE),
    "stores": (*ANSWERS, STORE_HOLE, KILL, PAUSE),
    "clocks": (CLOCK, KILL, PAUSE, TERM, RESTART),
    "databases": (DATABASE_HOLE, DATABASE_RESET, RESTART, KILL),
}
"""Which kinds come. After the faults of `everything` and `databases` the stores are exchanged, too (`databases`)."""
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
    CLIENTS_HOLE: (0.5, 9.0),
    CLIENTS_RESET: (0.5, 6.0),
    PEERS_HOLE: (0.5, 9.0),
    PEERS_RESET: (0.5, 6.0),
    STORE_500: (1.0, 8.0),
    STORE_SLOW_DOWN: (1.0, 8.0),
    STORE_403: (1.0, 6.0),
    STORE_LIES: (1.0, 8.0),
    STORE_OLD_LISTS: (3.0, 10.0),
    STORE_CUT_SHORT: (1.0, 8.0),
    STORE_GONE: (1.0, 6.0),
    CLOCK: (2.0, 12.0),
}
WRONG_S: Final = (0.5, 600.0)  # by how much a clock is wrong, either way
GAPS_S: Final = (0.3, 9.0)
SETTLE_S: Final = 4.0  # what a process needs to be back
ALL: Final = 0.3  # share of what is done to connections that is felt by everybody


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    at_s: float
    kind: str
    targets: tuple[str, ...]
    lasts_s: float
    gently: bool
    """of an agent that leaves, or a database that is restarted: SIGTERM instead of SIGKILL"""
    wrong_s: float = 0.0
    """by how much a clock is wrong"""


def plan(
    seed: int,
    *,
    duration_s: float,
    agents: Sequence[str],
    spare: Sequence[str],
    lease_ttl_s: float,
    kinds: Sequence[str] = tuple(WEIGHTS),
) -> list[Planned]:
    """The faults of a run. Nobody is killed or paused who is away already; everything else may come together."""
    chance = random.Random(seed)
    busy_until = dict.fromkeys([*agents, *spare, RESTART], 0.0)
    return list(_plan(chance, duration_s, agents, spare, lease_ttl_s, busy_until, kinds))


def _plan(
    chance: random.Random,
    duration_s: float,
    agents: Sequence[str],
    spare: Sequence[str],
    lease_ttl_s: float,
    busy_until: dict[str, float],
    some: Sequence[str],
) -> Iterator[Planned]:
    now = 1.0 + chance.uniform(*GAPS_S)
    kinds = _bag(chance, some)
    while now < duration_s:
        kind = next(kinds)
        lasts_s = min(_lasts(chance, kind, lease_ttl_s), max(0.5, duration_s - now))
        free = _free(kind, agents, spare, busy_until, now)
        if free:
            targets = _targets(chance, kind, free)
            if kind not in CONNECTIONS:
                busy_until |= dict.fromkeys(targets, now + lasts_s + SETTLE_S)
            gently = chance.random() < 0.5
            wrong_s = _wrong_s(chance) if kind == CLOCK else 0.0
            yield Planned(at_s=now, kind=kind, targets=targets, lasts_s=lasts_s, gently=gently, wrong_s=wrong_s)
        now += chance.uniform(*GAPS_S)


def _wrong_s(chance: random.Random) -> float:
    """A second as often as minutes, forward as often as back."""
    shortest, longest = WRONG_S
    return chance.choice((-1, 1)) * math.exp(chance.uniform(math.log(shortest), math.log(longest)))


def _bag(chance: random.Random, kinds: Sequence[str]) -> Iterator[str]:
    """Kinds by weight, shuffled: each comes before any is chosen more often than it should."""
    while True:
        bag = [kind for kind in kinds for _ in range(WEIGHTS[kind])]
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
    return list(candidates) if kind in CONNECTIONS else [name for name in candidates if busy_until[name] <= now]


def _targets(chance: random.Random, kind: str, free: Sequence[str]) -> tuple[str, ...]:
    if kind == STORE_GONE or (kind in CONNECTIONS and chance.random() < ALL):
        return tuple(free)
    return (chance.choice(free),)
