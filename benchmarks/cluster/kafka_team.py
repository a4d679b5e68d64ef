"""Kafka team: three Apache Kafka brokers on loopback, each record on all of them.

Data path   `kafka_peer` -> **kafka_team** -> `rates`, `ack`
Owns        what makes three brokers a cluster: a quorum, three replicas of each topic, two of which an ack waits for
Leaves      one broker's properties and process to `kafka_peer`

This is what Kafka's users run where records must outlive a machine, as records in a bucket do: `acks=all` with
`min.insync.replicas=2`. Fsync is left to the system, as by default.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Final, Self

from benchmarks import process
from benchmarks.cluster.team import Bill
from benchmarks.kafka_peer import KafkaPeer
from benchmarks.peer import HOST, free_port

BROKERS: Final = 3


class ReplicatedKafkaPeer(KafkaPeer):
    """One of the brokers. `controllers` are the ports of all by node id."""

    start_timeout_s: ClassVar[float] = 90.0

    def __init__(self, node_id: int, controllers: Mapping[int, int]) -> None:
        super().__init__()
        self._node_id, self._controllers = node_id, controllers

    def settings(self, *, controller_port: int) -> dict[str, str]:
        del controller_port  # the others know it already
        voters = ",".join(f"{node}@{HOST}:{port}" for node, port in self._controllers.items())
        internal = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        return {
            **super().settings(controller_port=self._controllers[self._node_id]),
            "node.id": str(self._node_id),
            "controller.quorum.voters": voters,
            "default.replication.factor": str(BROKERS),
            "min.insync.replicas": "2",
            **{f"{topic}.replication.factor": str(BROKERS) for topic in internal},
        }


class KafkaTeam:
    """`with KafkaTeam() as team:` starts three brokers, and ends them all."""

    def __init__(self) -> None:
        ports = [free_port() for _ in range(BROKERS)]
        controllers = dict(enumerate(ports, 1))
        self._brokers = [ReplicatedKafkaPeer(node_id, controllers) for node_id in controllers]

    def __repr__(self) -> str:
        return f"<KafkaTeam {self._brokers}>"

    def __enter__(self) -> Self:
        try:
            with ThreadPoolExecutor(BROKERS) as pool:  # none of them answers before there is a quorum
                list(pool.map(KafkaPeer.start, self._brokers))
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        with ThreadPoolExecutor(BROKERS) as pool:  # the last one alone would wait for its quorum
            list(pool.map(KafkaPeer.stop, self._brokers))

    @property
    def bootstrap(self) -> str:
        return self._brokers[0].bootstrap

    def bill(self) -> Bill:
        return Bill(agents={each.bootstrap: process.cpu_s(each.pid) for each in self._brokers}, servers={})
