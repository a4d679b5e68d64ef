"""Run seeds: `python -m tests.simulation --seeds 200`, or one again: `--seed 17 --trace`.

Owns        the command line, the summary, how a failing seed is printed
Leaves      everything else to `scenario`
"""

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from .options import ALL_PROFILES
from .scenario import Outcome, run_seed


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one only, and say everything about it")
    parser.add_argument(
        "--profile", choices=sorted(ALL_PROFILES), help="faults to inject, instead of the seed's own choice"
    )
    parser.add_argument("--trace", action="store_true", help="with --seed: print what happens")
    parser.add_argument("--jobs", type=int, default=2, help="processes to use")
    parser.add_argument("--keep-going", action="store_true", help="run all seeds, also after one has failed")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    logging.disable(logging.CRITICAL)
    if options.seed is not None:
        outcome = run_seed(options.seed, profile=options.profile, trace=_print if options.trace else None)
        _print(_summary(outcome))
        return 1 if outcome.failure else 0
    return _run_many(options)


def _run_many(options: argparse.Namespace) -> int:
    started = time.monotonic()
    seeds = range(options.start, options.start + options.seeds)
    totals: dict[str, int] = {}
    failed = done = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(partial(_quietly, profile=options.profile), seeds, chunksize=4):
            done += 1
            for name, count in outcome.counts.items():
                totals[name] = totals.get(name, 0) + count
            if outcome.failure:
                failed += 1
                _print(_summary(outcome))
                if not options.keep_going:
                    pool.shutdown(cancel_futures=True)
                    break
    seconds = time.monotonic() - started
    _print(f"{done} seeds, {failed} failed, {seconds:.1f} s, {done / seconds * 60:.0f} seeds/min")
    _print(" ".join(f"{name}={count}" for name, count in sorted(totals.items())))
    return 1 if failed else 0


def _quietly(seed: int, profile: str | None) -> Outcome:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")  # coroutines of the dead were never awaited
    return run_seed(seed, profile=profile)


def _summary(outcome: Outcome) -> str:
    again = f"python -m tests.simulation --seed {outcome.seed}"
    if outcome.profile:
        again += f" --profile {outcome.profile}"
    counts = " ".join(f"{name}={count}" for name, count in outcome.counts.items())
    return (
        f"seed {outcome.seed}: {outcome.failure or 'passed'}\n"
        f"  {outcome.options}\n"
        f"  {counts} steps={outcome.steps} virtual_s={outcome.virtual_s:.1f} wall_s={outcome.wall_s:.2f} "
        f"digest={outcome.digest:08x}\n"
        f"  again: {again} --trace"
    )


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
