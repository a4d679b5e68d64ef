"""Kafka peer: one Apache Kafka broker in KRaft mode on loopback, as its authors configure it.

Data path   `kafka_jars` -> **kafka_peer** -> the measures; also an oracle for tests that ask "what does Kafka do?"
Owns        the broker's properties and its JVM flags
Leaves      the life of the process to `peer`

Everything that decides speed is Kafka's default: the flush policy, thread counts, the heap of 1 GiB and the collector
that its own start script sets. Changed is only what a single node needs, and that deleted topics free the disk at once.
"""

import subprocess
from typing import ClassVar, Final

from benchmarks.kafka_jars import KAFKA_VERSION, java, kafka_jars
from benchmarks.peer import HOST, Peer, PeerFailed, free_port

CLUSTER_ID: Final = "c3RyZWFtaG91c2UtYmVuYw"
JVM_FLAGS: Final = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
LOGGING: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class KafkaPeer(Peer):
    """An Apache Kafka broker; raises `PeerUnavailable` where Java or Maven is missing."""

    name: ClassVar[str] = "kafka"

    def __init__(self, *, is_synced: bool = False) -> None:
        """With `is_synced` every message is flushed to the disk before its ack, as the agent does with fsync=always."""
        super().__init__()
        self.is_synced = is_synced

    @property
    def version(self) -> str:
        return f"Apache Kafka {KAFKA_VERSION}{', flush.messages=1' * self.is_synced}"

    def prepare(self) -> list[str]:
        properties = self.folder / "server.properties"
        settings = self.settings(controller_port=free_port())
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        (self.folder / "log4j2.properties").write_text(LOGGING)
        self._format(str(properties))
        return self._java(*JVM_FLAGS, main=["kafka.Kafka", str(properties)])

    def _java(self, *flags: str, main: list[str]) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        return [java(), *flags, logging, "-cp", f"{kafka_jars()}/*", *main]

    def _format(self, properties: str) -> None:
        command = self._java("-XX:TieredStopAtLevel=1", main=["kafka.tools.StorageTool", "format"])
        command += ["--cluster-id", CLUSTER_ID, "--config", properties]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise PeerFailed(f"kafka could not format its storage: {(done.stdout + done.stderr)[-500:]}")

    def settings(self, *, controller_port: int) -> dict[str, str]:
        """The broker's properties."""
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.segment.delete.delay.ms": "100",
        }
        if self.is_synced:
            settings["log.flush.interval.messages"] = "1"
        return settings
