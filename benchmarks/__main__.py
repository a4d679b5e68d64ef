"""`python -m benchmarks`: runs the measures, shows tables, writes JSON and a plot.

Data path   arguments -> **__main__** -> `runner` -> `results`, `table`, `plot`, `readme`
Owns        the command line and the progress bar
Leaves      measuring to the measures
"""

import argparse
import gc
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks import plot, readme, results, table
from benchmarks.active_connections import ActiveConnections
from benchmarks.clients import Clients
from benchmarks.cold_reads import ColdReads
from benchmarks.cost import Cost
from benchmarks.end_to_end import EndToEnd
from benchmarks.fan_out import FanOut
from benchmarks.fixed_rate import FixedRate
from benchmarks.footprint import Footprint
from benchmarks.kafka_peer import KafkaPeer
from benchmarks.latency import ProduceLatency
from benchmarks.measure import FULL, QUICK, Measure
from benchmarks.partition_growth import PartitionGrowth
from benchmarks.peer import raise_open_file_limit
from benchmarks.rebalance import Rebalance
from benchmarks.requests import Requests
from benchmarks.runner import MakePeer, Runner, turns
from benchmarks.streamhouse_peer import StreamHousePeer
from benchmarks.throughput import Throughput

MEASURES: Final[tuple[Measure, ...]] = (
    Footprint(),  # first, as one broker may be asked all of these and its idle memory is wanted
    Throughput(),
    Clients(),
    Requests(),
    ProduceLatency(),
    EndToEnd(),
    Cost(),  # last, as it ends its broker
)
MORE_MEASURES: Final[tuple[Measure, ...]] = (
    FixedRate(),
    FanOut(),
    PartitionGrowth(),
    ColdReads(),
    ActiveConnections(),
    Rebalance(),
)
"""Of `--full`, and of `--only` by their names."""
PEERS: Final = ("streamhouse", "kafka")
PAGE: Final = results.FOLDER.parent.parent / "docs" / "benchmarks.md"
PICTURE: Final = PAGE.parent / "images" / "benchmarks.png"


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    names = [measure.name for measure in (*MEASURES, *MORE_MEASURES)]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="StreamHouse beside Apache Kafka.")
    parser.add_argument("--quick", action="store_true", help="one short repetition, under two minutes")
    parser.add_argument(
        "--full", action="store_true", help="all measures, an hour: fixed rates, fan-out, growth, groups"
    )
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--peers", default=",".join(PEERS), help="who is asked: streamhouse,kafka")
    parser.add_argument(
        "--fsync",
        choices=["never", "interval", "always"],
        default="never",
        help="the agent's WAL policy; with always, Kafka has flush.messages=1",
    )
    parser.add_argument("--again", type=Path, metavar="JSON", help="with --only: measure that part of a run again")
    parser.add_argument("--write-readme", action="store_true", help="put the newest numbers into benchmarks/README.md")
    parser.add_argument(
        "--publish", action="store_true", help="write docs/benchmarks.md; only for a clean tree and a quiet machine"
    )
    parser.add_argument(
        "--no-run", action="store_true", help="show, draw and write the newest results; measure nothing"
    )
    asked = parser.parse_args(words)
    if asked.again and not asked.only:
        parser.error("--again needs --only: which part of that run shall be measured again?")
    if asked.publish and results.is_tree_dirty():
        parser.error("--publish needs a clean tree: numbers name the commit that they are of; commit, or stash")
    if unknown := set(asked.peers.split(",")) - set(PEERS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    return asked


def makers(asked: argparse.Namespace) -> dict[str, MakePeer]:
    known: dict[str, MakePeer] = {
        "streamhouse": partial(StreamHousePeer, fsync=asked.fsync),
        "kafka": partial(KafkaPeer, is_synced=asked.fsync == "always"),
    }
    return {name: known[name] for name in PEERS if name in asked.peers.split(",")}


def chosen(asked: argparse.Namespace) -> list[Measure]:
    """The measures that are named; else those of every run, and with `--full` the others, too. `Cost` stays last."""
    if asked.only:
        return [measure for measure in (*MORE_MEASURES, *MEASURES) if measure.name in asked.only]
    return [*MEASURES[:-1], *(MORE_MEASURES if asked.full else ()), MEASURES[-1]]


def run(asked: argparse.Namespace, console: Console) -> results.Run:
    plan, plan_name = (QUICK, "quick") if asked.quick else (FULL, "full")
    measures = chosen(asked)
    peers = makers(asked)
    runner = Runner(peers, plan, plan_name)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, refresh_per_second=2) as progress:
        total = sum(len(turn.measures) for turn in turns(measures, list(peers), plan))
        task = progress.add_task("starting", total=total)
        for turn, measure in runner.run(measures):
            words = f"{measure.name}: {turn.peer}, {turn.repetition + 1} of {plan.repetitions}"
            progress.update(task, completed=runner.asked, description=words)
        progress.update(task, completed=runner.asked, description="done")
    return results.merged(results.load(asked.again), runner.result(), asked.only) if asked.again else runner.result()


def main() -> None:
    asked, console = arguments(), Console()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that brokers are stopped on the way out
    raise_open_file_limit()
    gc.disable()  # a collection in the client would look like a slow broker; a run makes few cycles
    path = results.newest() if asked.no_run else results.save(run(asked, console))
    if path is None:
        raise SystemExit("no results yet: run without --no-run first")
    shown = results.load(path)
    table.show(shown, console)
    picture = plot.draw(shown, path.with_suffix(".png"))
    console.print(f"[dim]{path}\n{picture}[/]", highlight=False, soft_wrap=True)
    if asked.write_readme:
        readme.write(shown)
    if asked.publish:
        publish(shown)


def publish(shown: results.Run) -> None:
    """Write the page for readers; refuse for a run that says too little."""
    if reasons := results.unfit(shown):
        raise SystemExit(f"not published: {'; '.join(reasons)}")
    plot.draw(shown, PICTURE)
    readme.write(shown, PAGE, readme.PUBLISHED)


if __name__ == "__main__":
    main()
