"""Chaos: `python -m tests.chaos --minutes 5 --seed 17`; says the verdict in one page and in its exit code.

Owns        the command line; where things go; what is printed
Leaves      the run to `run`, judging to `checker`, the page to `report`
"""

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .checker import check
from .faults import PROFILES
from .figures import summary_lines
from .history import History, load_history
from .report import write_report
from .run import Options, run
from .transaction_figures import transaction_lines


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="how long faults are made")
    parser.add_argument("--seed", type=int, help="the order of faults; chosen by chance unless given")
    parser.add_argument("--dir", type=Path, help="where everything is kept; else it goes when all is well")
    parser.add_argument("--report", type=Path, default=Path("chaos.html"), help="the page to write")
    parser.add_argument("--rate", type=float, default=25.0, help="records per second of each producer")
    parser.add_argument("--lease-ttl", type=float, default=3.0, help="seconds")
    parser.add_argument("--profile", choices=list(PROFILES), default="everything", help="which kinds of fault come")
    parser.add_argument("--again", type=Path, help="judge this history instead of making one")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    logging.lastResort = None  # clients tell of every fault; what matters is in the history
    if options.again:
        return _judge(load_history(options.again), options.report)
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    folder = options.dir or Path(tempfile.mkdtemp(prefix="streamhouse-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # a database that runs as somebody else must be able to enter
    _say(f"seed {seed}, {options.minutes:g} minutes of faults, everything in {folder}")
    history = asyncio.run(
        run(
            Options(
                minutes=options.minutes,
                seed=seed,
                folder=folder / "cluster",
                lease_ttl_s=options.lease_ttl,
                per_second=options.rate,
                profile=options.profile,
            ),
            _say,
        )
    )
    history.save(folder / "history.json")
    verdict = _judge(history, options.report)
    if options.dir is None and verdict == 0:
        shutil.rmtree(folder, ignore_errors=True)
    elif verdict:
        _say(f"history and logs are in {folder}")
    return verdict


def _judge(history: History, report: Path) -> int:
    anomalies = check(history)
    for line in (*summary_lines(history), *transaction_lines(history)):
        _say(line)
    for anomaly in anomalies:
        _say(f"ANOMALY {anomaly}")
    write_report(report, history, anomalies)
    _say(f"{len(anomalies)} anomalies, seed {history.seed}; the page is {report}")
    return 1 if anomalies else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
