"""StreamHouse peer: one agent with embedded stores on loopback, as `streamhouse up` starts it.

Data path   `.venv/bin/streamhouse` -> **streamhouse_peer** -> the measures
Owns        the agent's command line, and from which sources it runs: those that are installed, unless others are given
Leaves      the life of the process to `peer`

The disk WAL's policy is `never` unless asked otherwise, because that is what Kafka's default promises too: an ack means
that the operating system has the record, and the disk gets it when the system likes. As with `kafka_peer`, new groups
don't wait for further members, and deleted topics free the disk at once: a broker that keeps what it has written gets
memory for its next files that the machine has never used, which costs several times as much.
"""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar, Final, Literal

from benchmarks.kafka_jars import PeerUnavailable
from benchmarks.peer import HOST, Peer, free_port
from streamhouse.errors.base import DISTRIBUTION

Fsync = Literal["never", "interval", "always"]
COMMAND: Final = Path(sys.executable).parent / "streamhouse"


class StreamHousePeer(Peer):
    """A StreamHouse agent; raises `PeerUnavailable` where it isn't installed beside this Python."""

    name: ClassVar[str] = "streamhouse"

    def __init__(
        self, *, fsync: Fsync = "never", grpc: bool = False, source: Path | None = None, label: str = ""
    ) -> None:
        super().__init__()
        self.fsync = fsync
        self.label = label or version(DISTRIBUTION)
        if source is not None:
            self.environment = {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": ""}
        self.http_port = free_port()
        self.grpc = f"{HOST}:{free_port()}" if grpc else ""

    @property
    def version(self) -> str:
        return f"StreamHouse {self.label}, fsync {self.fsync}"

    def prepare(self) -> list[str]:
        if not COMMAND.exists():
            raise PeerUnavailable("no `streamhouse` beside this Python; `make install` puts it there")
        data, http = str(self.folder / "data"), f"{HOST}:{self.http_port}"
        return [
            *(str(COMMAND), "up", "--data", data, "--kafka", self.bootstrap, "--http", http, "--grpc", self.grpc),
            *("--fsync", self.fsync, "--set", "groups.initial_rebalance_delay_s=0"),
            *("--set", "retention.grace_s=0.1", "--set", "retention.check_s=1"),
        ]
