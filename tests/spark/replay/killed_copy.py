"""A copy in a process of its own, for a test that kills it: `FAULT` is PLACE:STEP."""

import os
import signal
import sys

from pyspark.sql import SparkSession

from streamhouse.client.loop_thread import LoopThread
from streamhouse.spark.agents.commits import CommitClient, CommitRequest, CommitResult
from streamhouse.spark.replay import copy_job
from streamhouse.spark.replay.copy_job import CopySpec

pending = CommitClient.commit


async def commit(self: CommitClient, commit: CommitRequest, *, timeout_s: float) -> CommitResult:
    """Ours, but for the place where everything ends without a goodbye."""
    reach("before", commit.epoch)
    done = await pending(self, commit, timeout_s=timeout_s)
    reach("after", commit.epoch)
    return done


def reach(place: str, step: int) -> None:
    if os.environ.get("FAULT") == f"{place}:{step}":
        os.killpg(os.getpgid(0), signal.SIGKILL)


def start() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("copy")
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    return builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()


def main(agents: str, source: str, target: str, job: str, step_bytes: str) -> None:
    CommitClient.commit = commit  # type: ignore[method-assign]
    done = copy_job.run(
        CopySpec(source=source, target=target),
        agents=agents,
        start=start,
        loop=LoopThread(),
        job_id=job,
        step_bytes=int(step_bytes),
    )
    sys.stdout.write(f"{done.records} {done.resumed_at} {done.steps}\n")
    sys.stdout.flush()
    SparkSession.builder.getOrCreate().stop()
    os._exit(0)  # whatever threads are left


if __name__ == "__main__":
    main(*sys.argv[1:])
