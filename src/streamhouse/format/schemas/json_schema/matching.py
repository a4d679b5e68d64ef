"""Matching: as many of the older schema's alternatives as possible, each with one of the newer's that takes it in."""

from collections.abc import Mapping, Sequence
from typing import Final

from streamhouse.format.schemas.steps import TooComplex

MAX_STEPS: Final = 2_000_000
"""Alternatives can fit each other in more ways than anybody waits for."""


def largest_matching(fits: Sequence[Mapping[int, object]], news: int) -> dict[int, int]:
    """Old index -> new index for a largest set of pairs; `fits[old]` has the new ones that it fits into."""
    owners: dict[int, int] = {}
    steps = 0
    for old in range(len(fits)):
        came_from: dict[int, int] = {}
        waiting = [old]
        free: int | None = None
        while waiting and free is None:
            current = waiting.pop()
            for new in fits[current]:
                steps += 1
                if new in came_from:
                    continue
                came_from[new] = current
                if new not in owners:
                    free = new
                    break
                waiting.append(owners[new])
        if steps > MAX_STEPS:
            raise TooComplex
        _give_away(owners, came_from, free)
        if len(owners) == news:
            break
    return {old: new for new, old in owners.items()}


def _give_away(owners: dict[int, int], came_from: Mapping[int, int], free: int | None) -> None:
    """Everyone along the way takes the one that was found for it, and leaves its own to who asked for it."""
    own = {old: new for new, old in owners.items()}
    while free is not None:
        old = came_from[free]
        owners[free] = old
        free = own.get(old)
