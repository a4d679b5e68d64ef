"""Depth: how many seeds, examples, frames and kills a test takes, by one setting.

    TEST_DEPTH=quick      with every change, the default
    TEST_DEPTH=nightly    `make nightly`

Owns        the setting; seeds that differ from run to run, and how to run them again
Leaves      what a seed means to the tests

A seed that is chosen at random is printed at the end of a run and in the failure: `TEST_SEED=…` runs it again.
"""

import os
import secrets
from typing import Final, TypeVar

T = TypeVar("T")

DEPTH_VARIABLE: Final = "TEST_DEPTH"
SEED_VARIABLE: Final = "TEST_SEED"
DEPTHS: Final = ("quick", "nightly")
FIRST_RANDOM_SEED: Final = 1_000_000
"""Seeds below are named in tests."""
SPAN: Final = 1_000_000_000


def is_nightly() -> bool:
    depth = os.environ.get(DEPTH_VARIABLE, "quick")
    if depth not in DEPTHS:
        raise ValueError(f"no such depth; {DEPTH_VARIABLE}={depth} known={', '.join(DEPTHS)}")
    return depth == "nightly"


def scaled(*, quick: T, nightly: T) -> T:
    """A number of seeds, frames, rounds or kills; or the parameters of a test: nightly those of `quick` and others."""
    return nightly if is_nightly() else quick


def examples(number: int) -> int:
    """For `max_examples` of hypothesis: a third of the number, and with nightly depth five times as many."""
    return scaled(quick=max(1, number // 3), nightly=number * 5)


def base_seed() -> int:
    """The first of this run's random seeds. It is put into the environment, so that all workers have the same."""
    return int(os.environ.setdefault(SEED_VARIABLE, str(FIRST_RANDOM_SEED + secrets.randbelow(SPAN))))


def random_seeds(count: int) -> range:
    """Seeds that no run before had. Print them in a failure: `TEST_SEED` of the first runs the same again."""
    first = base_seed()
    return range(first, first + count)
