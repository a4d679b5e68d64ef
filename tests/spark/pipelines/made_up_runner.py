"""A runner without a Spark: it says what a runner says, and leaves a line in its log for every start and stop.

Beside each run it writes down, again and again, the time until which it has gone on. A pipeline called `slow` takes
`SLOW_S` to stop.
"""

import os
import sys
import threading
import time

from streamhouse.spark.pipelines.lease_guard import DeadlineProcess
from streamhouse.spark.pipelines.runner_protocol import (
    Ended,
    Event,
    Exit,
    Metrics,
    Ready,
    Renewed,
    Start,
    Started,
    Stop,
    encode_message,
    read_command,
)

SLOW_S = 5.0
TICK_S = 0.05


def tell(event: Event) -> None:
    sys.stdout.buffer.write(encode_message(event))
    sys.stdout.buffer.flush()


def note(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


class Run(threading.Thread):
    def __init__(self, start: Start) -> None:
        super().__init__(daemon=True)
        self._number, self._pipeline = start.run, start.pipeline["name"]
        self._stop_at: float | None = None

    def stop(self) -> None:
        self._stop_at = time.monotonic() + (SLOW_S if self._pipeline == "slow" else 0.0)

    def run(self) -> None:
        while self._stop_at is None or time.monotonic() < self._stop_at:
            note(f"runs {self._pipeline} {time.monotonic()}")
            time.sleep(TICK_S)
        tell(Ended(run=self._number, how="stopped"))


def main() -> None:
    deadline = DeadlineProcess.start()
    tell(Ready(jvm_pid=os.getpid(), spark="made up"))
    runs: dict[int, Run] = {}
    for line in sys.stdin.buffer:
        command = read_command(line)
        if isinstance(command, Renewed):
            deadline.renew(command.deadline)
        elif isinstance(command, Exit):
            threading.Thread(target=leave, args=(list(runs.values()),), daemon=True).start()
        elif isinstance(command, Start):
            note(f"start {command.pipeline['name']} {command.epoch}")
            runs[command.run] = Run(command)
            runs[command.run].start()
            tell(Started(run=command.run))
            tell(Metrics(run=command.run, figures={"rows_in": 7, "batch_id": 1}))
        elif isinstance(command, Stop):
            note(f"stop {command.run}")
            runs[command.run].stop()


def leave(runs: list[Run]) -> None:
    for each in runs:
        each.join()
    os._exit(0)


if __name__ == "__main__":
    main()
