"""A runner without a Spark: it says what a runner says, and leaves a line in its log for every start and stop."""

import os
import sys

from streamhouse.spark.pipelines.messages import (
    Begun,
    Ended,
    Event,
    Exit,
    Figures,
    Ready,
    Start,
    Stop,
    read_command,
    written,
)


def tell(event: Event) -> None:
    sys.stdout.buffer.write(written(event))
    sys.stdout.buffer.flush()


def note(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main() -> None:
    tell(Ready(jvm_pid=os.getpid(), spark="made up"))
    for line in sys.stdin.buffer:
        command = read_command(line)
        if isinstance(command, Exit):
            break
        if isinstance(command, Start):
            note(f"start {command.pipeline['name']} {command.epoch}")
            tell(Begun(run=command.run))
            tell(Figures(run=command.run, figures={"rows_in": 7, "batch_id": 1}))
        elif isinstance(command, Stop):
            note(f"stop {command.run}")
            tell(Ended(run=command.run, how="stopped"))


if __name__ == "__main__":
    main()
