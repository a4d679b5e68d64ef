"""Soak: `python -m tests.soak --minutes 60`; says in one page, and in its exit code, whether anything grows.

Owns        the command line; the order of a run; the agent that comes and goes; what is printed
Leaves      what is done to `load` and `pipelines`, looking to `sampling`, the verdict to `page` and `trend`
"""

import argparse
import asyncio
import json
import logging
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from streamhouse.dev.agent_process import LocalAgent
from tests.soak.cluster import BUCKET, PREFIX, SoakCluster
from tests.soak.load import Load, Tally, Target, create_topics, too_little
from tests.soak.page import SoakResult, load_result, told, write_page
from tests.soak.pipelines import PASSED, WARM_AFTER, Pipelines
from tests.soak.sampling import HeapSampler, Sampling, bucket_of, process_of, tasks_of, tree_of

SAMPLES: Final = 360
"""About how many samples a run has."""
WARM_UP_SHARE: Final = 1 / 3
MOST_WARM_UP_S: Final = 900.0
MOST_SPARK_WARM_UP_S: Final = 1800.0
"""A supervisor that is not warm by then fails the run."""
AGENT_STAYS_S: Final = 40.0
AGENT_AWAY_S: Final = 3.0
WATCH_S: Final = 60.0
MISSED_SHARE: Final = 0.1


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long the load goes on")
    parser.add_argument("--rate", type=float, default=100.0, help="records per second of the steady producer")
    parser.add_argument("--spark", action="store_true", help="pipelines, too: a supervisor with Spark")
    parser.add_argument("--dir", type=Path, help="where everything is kept; else it goes when all is flat")
    parser.add_argument("--report", type=Path, default=Path("soak.html"), help="the page to write")
    parser.add_argument("--again", type=Path, help="judge this result instead of making one")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    logging.lastResort = None
    if options.again:
        return _tell(load_result(options.again), options.report)
    folder = options.dir or Path(tempfile.mkdtemp(prefix="streamhouse-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # a database that runs as somebody else must be able to enter
    _say(f"{options.minutes:g} minutes, everything in {folder}")
    with SoakCluster(folder / "cluster") as cluster:
        result = asyncio.run(_Run(options, cluster, folder).all_of_it())
    (folder / "soak.json").write_text(json.dumps(result.as_json()))
    beside = options.report.with_suffix(".json")
    beside.parent.mkdir(parents=True, exist_ok=True)
    beside.write_text(json.dumps(result.as_json()))
    code = _tell(result, options.report)
    if options.dir is None and code == 0:
        shutil.rmtree(folder, ignore_errors=True)
    elif code:
        _say(f"series and logs are in {folder}")
    return code


def _tell(result: SoakResult, report: Path) -> int:
    write_page(report, result)
    for name, verdict in result.verdicts.items():
        if verdict.level or verdict.growth:
            _say(f"{'GROWS' if verdict.grows else 'flat ':5} {name:32} {told(verdict)}")
    for failure in result.failures:
        _say(f"FAILURE {failure}")
    _say(f"{len(result.failures)} failures of {len(result.verdicts)} series; the page is {report}")
    return 1 if result.failures else 0


class _Run:
    def __init__(self, options: argparse.Namespace, cluster: SoakCluster, folder: Path) -> None:
        self._options = options
        self._cluster = cluster
        self._seconds = options.minutes * 60
        self._warm_up_s = min(MOST_WARM_UP_S, self._seconds * WARM_UP_SHARE)
        self._judged_s = self._seconds - self._warm_up_s
        self._begun = time.monotonic()
        self._troubles: list[str] = []
        self._target = Target(
            bootstrap=cluster.bootstrap,
            http=[agent.plan.http for agent in cluster.staying],
            kafka=[agent.plan.kafka for agent in cluster.staying],
            per_second=options.rate,
            tally=Tally(),
            stop=threading.Event(),
        )
        self._pipelines = (
            Pipelines(folder / "pipelines", self._target, cluster.environment, cluster.log("supervisor"))
            if options.spark
            else None
        )
        self._sampling = Sampling(
            dsn=cluster.dsn, store=bucket_of(cluster.environment, BUCKET), prefix=PREFIX, now=self._now
        )

    def _now(self) -> float:
        return time.monotonic() - self._begun

    async def all_of_it(self) -> SoakResult:
        await asyncio.to_thread(create_topics, self._target)
        churning = await self._start_pipelines()
        for agent in self._cluster.staying:
            self._sampling.samplers.append(partial(_of_agent, agent))
        load = Load(self._target)
        self._begun = time.monotonic()
        load.start()
        every_s = max(0.5, self._seconds / SAMPLES)
        tasks = [asyncio.create_task(self._sampling.run(every_s)), asyncio.create_task(self._come_and_go())]
        try:
            await self._warm_up()
            while (left_s := self._warm_up_s + self._judged_s - self._now()) > 0:
                await asyncio.sleep(min(WATCH_S, left_s))
                self._watch()
        finally:
            self._target.stop.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(load.stop)
            if churning is not None:
                await asyncio.to_thread(churning.join)
            if self._pipelines is not None:
                await asyncio.to_thread(self._pipelines.stop)
        return self._result()

    async def _warm_up(self) -> None:
        """The share of the run that is not judged; with Spark, until the supervisor is warm, if that is later. What is
        judged is equally long either way."""
        while (left_s := self._warm_up_s - self._now()) > 0:
            await asyncio.sleep(min(WATCH_S, left_s))
            self._watch()
        if self._pipelines is None or self._pipelines.is_warm(self._target):
            return
        while not self._pipelines.is_warm(self._target):
            if self._now() >= MOST_SPARK_WARM_UP_S:
                count = self._target.tally.done[PASSED]
                self._troubles.append(
                    f"Spark is not warm after {self._now():.0f} s: {count} of {WARM_AFTER} pipelines came and went"
                )
                break
            await asyncio.sleep(1)
        self._warm_up_s = self._now()
        _say(f"{self._now():7.0f} s  Spark is warm: the judged time begins")

    async def _start_pipelines(self) -> threading.Thread | None:
        if self._pipelines is None:
            return None
        self._pipelines.start()  # by the main thread, so that it ends with us
        self._sampling.samplers.append(partial(_of_tree, "supervisor", self._pipelines.supervisor.pid))
        self._sampling.samplers.append(HeapSampler("supervisor", self._pipelines.supervisor.pid))
        churning = threading.Thread(target=self._pipelines.churn, args=(self._target,), name="pipelines")
        churning.start()
        return churning

    async def _come_and_go(self) -> None:
        """The last agent: stopped and killed in turn."""
        number = 0
        while True:
            await asyncio.sleep(AGENT_STAYS_S)
            await self._cluster.leave_and_return(kindly=number % 2 == 0, away_s=AGENT_AWAY_S)
            self._target.tally.count("agents that left and came back")
            number += 1

    def _watch(self) -> None:
        _say(f"{self._now():7.0f} s  {dict(self._target.tally.done)} failed: {dict(self._target.tally.failed)}")
        for text in self._cluster.ended():
            if text not in self._troubles:
                self._troubles.append(text)

    def _result(self) -> SoakResult:
        tally, sampling = self._target.tally, self._sampling
        troubles = [*self._troubles, *too_little(tally, self._options.minutes)]
        troubles += [f"{name}: {count}" for name, count in tally.failed.items() if name.endswith(" ended")]
        looks = len(sampling.missed) + len(sampling.series.as_json()["at_s"])
        if len(sampling.missed) > MISSED_SHARE * looks:
            troubles.append(f"{len(sampling.missed)} of {looks} looks failed; {sampling.missed[:3]}")
        if self._pipelines is not None and not tally.done[PASSED]:
            troubles.append("no pipeline came and went")
        return SoakResult(
            minutes=self._options.minutes,
            warm_up_s=self._warm_up_s,
            done=dict(tally.done),
            failed=dict(tally.failed),
            errors=tally.errors,
            troubles=troubles,
            **sampling.series.as_json(),
        )


def _of_agent(agent: LocalAgent) -> dict[str, float]:
    values = process_of(agent.child.pid)
    if (tasks := tasks_of(agent.plan.http)) is not None:
        values["tasks"] = tasks
    return {f"agent {agent.plan.number} {kind}": value for kind, value in values.items()}


def _of_tree(name: str, pid: int) -> dict[str, float]:
    return {f"{name} {kind}": value for kind, value in tree_of(pid).items()}


def _say(text: str) -> None:
    with suppress(BrokenPipeError):
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
