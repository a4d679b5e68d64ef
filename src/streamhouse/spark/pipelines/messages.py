"""Messages: what a supervisor and its runner say to each other, a line of JSON each.

Data path   supervisor -> commands -> **runner's stdin**; runner's stdout -> events -> supervisor
Owns        the shapes of both, and their text
Leaves      what is done about them to `supervisor` and `runner`

A run is one start of one pipeline: what is told of a run that is over means nothing for the next.
"""

from typing import Any, Final, Literal, TypeAlias

import msgspec


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start", tag_field="do"):
    """`pipeline` is what agents tell of it."""

    run: int
    epoch: int
    pipeline: dict[str, Any]


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop", tag_field="do"):
    run: int


class Renewed(msgspec.Struct, frozen=True, kw_only=True, tag="renewed", tag_field="do"):
    """Until when runs may go on, by the machine's monotonic clock; None: there are none."""

    deadline: float | None


class Exit(msgspec.Struct, frozen=True, kw_only=True, tag="exit", tag_field="do"):
    """Stop everything, then end."""


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready", tag_field="event"):
    """Spark is there."""

    jvm_pid: int
    spark: str


class Begun(msgspec.Struct, frozen=True, kw_only=True, tag="begun", tag_field="event"):
    """Each of its queries has done a micro-batch, or found nothing to read."""

    run: int


class Figures(msgspec.Struct, frozen=True, kw_only=True, tag="figures", tag_field="event"):
    """Fields of a status, those that are known."""

    run: int
    figures: dict[str, Any]


class Line(msgspec.Struct, frozen=True, kw_only=True, tag="line", tag_field="event"):
    """Something to read in the pipeline's log."""

    run: int
    text: str
    level: str = "info"


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended", tag_field="event"):
    """`can_retry`: trying again may help."""

    run: int
    how: Literal["stopped", "done", "failed"]
    error: str | None = None
    can_retry: bool = True


Command: TypeAlias = Start | Stop | Renewed | Exit
Event: TypeAlias = Ready | Begun | Figures | Line | Ended

_COMMANDS: Final[msgspec.json.Decoder[Command]] = msgspec.json.Decoder(Command)
_EVENTS: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)


def written(message: Command | Event) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def read_command(line: bytes) -> Command:
    return _COMMANDS.decode(line)


def read_event(line: bytes) -> Event:
    return _EVENTS.decode(line)
