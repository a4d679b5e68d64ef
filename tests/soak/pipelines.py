"""Pipelines: a supervisor with Spark beside the cluster, and pipelines that are created, run and deleted on it.

Data path   **pipelines** -> supervisor, agents
Owns        the supervisor's process; one pipeline and one view that stay, and others that come and go; when it is warm
Leaves      what they read to `load`
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from streamhouse.dev.processes import ChildProcess, Program
from tests.soak.load import EVENTS, Target

COMMAND: Final = (sys.executable, "-P", "-m", "streamhouse")
CALL_S: Final = 600.0
STOP_S: Final = 30.0
HEAP: Final = "512m"
HEAP_OPTIONS: Final = f"-Xms{HEAP} -XX:+AlwaysPreTouch"
"""All of the heap is taken at the start: what the process takes later is something else. What is held in the heap is a
series of its own."""
WARM_AFTER: Final = 4
"""So many short-lived pipelines warm a supervisor up: then Spark has loaded and compiled what starting, running and
ending a query takes, and its pools have their threads."""
PASSED: Final = "pipelines that came and went"
STAYING: Final = f"""
CREATE TABLE {EVENTS} (item INT) WITH (connector = 'topic', format = 'json');
CREATE PIPELINE copies AS INSERT INTO event_copies SELECT item FROM STREAM({EVENTS});
CREATE MATERIALIZED VIEW items AS SELECT item, count(*) AS events FROM STREAM({EVENTS}) GROUP BY item;
"""
PASSING: Final = (
    "CREATE PIPELINE {name} AS INSERT INTO passing_copies SELECT item + {number} AS item FROM STREAM(events);\n"
)


class Pipelines:
    def __init__(self, folder: Path, target: Target, environment: Mapping[str, str], log_path: Path) -> None:
        self._folder = folder
        self._target = target
        self._environment = environment
        self._agents = ("--agents", ",".join(str(each) for each in target.http))
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            *COMMAND,
            "pipelines",
            "run",
            "--checkpoints",
            str(folder / "checkpoints"),
            "--master",
            "local[2]",
            "--conf",
            f"spark.driver.memory={HEAP}",
            "--conf",
            f"spark.driver.extraJavaOptions={HEAP_OPTIONS}",
            *self._agents,
        ]
        self.supervisor = ChildProcess(
            Program(name="supervisor", command=command, log_path=log_path, environment=environment)
        )

    def start(self) -> None:
        """Start the supervisor and what stays on it."""
        self.supervisor.start()
        self._apply("staying.sql", STAYING)

    def stop(self) -> None:
        """Stop the supervisor, and the SQL worker that applying pipelines has started."""
        self.supervisor.stop(STOP_S)
        self._run("sql", "stop")

    def is_warm(self, target: Target) -> bool:
        return target.tally.done[PASSED] >= WARM_AFTER

    def churn(self, target: Target) -> None:
        """A pipeline comes, runs, and is deleted with its offsets."""
        for number in target.rounds("pipelines", 5.0):
            with target.counted(PASSED):
                name = f"passing_{number}"
                self._apply("passing.sql", PASSING.format(name=name, number=number))
                self._run("pipelines", "delete", name, "--yes")

    def _apply(self, file: str, text: str) -> None:
        path = self._folder / file
        path.write_text(text)
        self._run("pipelines", "apply", str(path), "--wait")

    def _run(self, *arguments: str) -> None:
        command: Sequence[str] = (*COMMAND, *arguments, *self._agents)
        done = subprocess.run(command, env=dict(self._environment), capture_output=True, text=True, timeout=CALL_S)
        if done.returncode:
            raise OSError(f"{' '.join(arguments)}: {done.stderr.strip()[-400:]}")
