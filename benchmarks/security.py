"""Security: what access rules and TLS cost a request, beside Kafka, and whether a noisy client disturbs others.

    .venv/bin/python -m benchmarks.security [rules|tls|noise] [--rounds N]

Data path   prepared frames -> a broker's socket, with and without TLS
Owns        the settings and certificates of the brokers; figures for pairs that take turns in one run

Pairs run at the same time and take turns, so that what else the machine does concerns both. Ratios are medians of
rounds; the CPU of a request is the broker's.
"""

import argparse
import json
import ssl
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from benchmarks.batches import batch
from benchmarks.kafka_peer import KafkaPeer
from benchmarks.measure import topic
from benchmarks.peer import HOST, Peer
from benchmarks.raw_client import CLIENT_ID, BrokerRefused, Connection, first_offsets, metadata_brokers, produce_frame
from benchmarks.streamhouse_peer import StreamHousePeer
from tests.support.certificates import make_authority

TURN_S: Final = 2.0
IN_FLIGHT: Final = 5
RULES: Final = 1000
RULES_PER_REQUEST: Final = 100
NOISY: Final = b"streamhouse-noisy"
NOISY_BYTES_PER_S: Final = 1_000_000
QUIET_INTERVAL_S: Final = 0.01
CERTIFICATE: Final = "broker"


class SecurePeer(StreamHousePeer):
    """An agent with settings of its own; with `tls` its Kafka listener is encrypted."""

    def __init__(self, settings: Mapping[str, str], *, tls: Path | None = None) -> None:
        super().__init__()
        self._settings = dict(settings)
        self._tls = tls
        if tls is not None:
            self._settings |= {
                "kafka.protocol": "SSL",
                "security.tls_certificate": str(tls / f"{CERTIFICATE}.pem"),
                "security.tls_key": str(tls / f"{CERTIFICATE}.key"),
            }

    def prepare(self) -> list[str]:
        return [*super().prepare(), *(part for pair in self._settings.items() for part in ("--set", "=".join(pair)))]

    def connect(self, *, buffer_bytes: int = 64 * 1024) -> Connection:
        return _encrypted(super().connect(buffer_bytes=buffer_bytes), self._tls)

    def _answers(self) -> bool:
        return _answers(self)

    def post(self, method: str, path: str, body: object) -> None:
        request = urllib.request.Request(
            f"http://{HOST}:{self.http_port}{path}",
            method=method,
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=30).close()


PROTOCOLS: Final = "listener.security.protocol.map"


class SecureKafkaPeer(KafkaPeer):
    """Kafka with TLS on its listener for clients."""

    def __init__(self, tls: Path) -> None:
        super().__init__()
        self._tls = tls

    def connect(self, *, buffer_bytes: int = 64 * 1024) -> Connection:
        return _encrypted(super().connect(buffer_bytes=buffer_bytes), self._tls)

    def _answers(self) -> bool:
        return _answers(self)

    def settings(self, *, controller_port: int) -> dict[str, str]:
        keys = (self._tls / f"{CERTIFICATE}.key").read_text() + (self._tls / f"{CERTIFICATE}.pem").read_text()
        store = self.folder / "keystore.pem"
        store.write_text(keys)
        plain = super().settings(controller_port=controller_port)
        of_listeners = {name: plain[name] for name in ("listeners", "advertised.listeners")}
        return {
            **plain,
            **{
                name: value.replace(f"PLAINTEXT://{self.bootstrap}", f"SSL://{self.bootstrap}")
                for name, value in of_listeners.items()
            },
            PROTOCOLS: plain[PROTOCOLS].replace("PLAINTEXT:PLAINTEXT,", "SSL:SSL,"),
            "inter.broker.listener.name": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._tls / "ca.pem"),
        }


def _answers(peer: Peer) -> bool:
    try:
        with peer.connect() as connection:
            return metadata_brokers(connection) > 0
    except (OSError, BrokerRefused):
        return False


def _encrypted(connection: Connection, tls: Path | None) -> Connection:
    if tls is not None:
        context = ssl.create_default_context(cafile=str(tls / "ca.pem"))
        connection.sock = context.wrap_socket(connection.sock, server_hostname=HOST)
    return connection


def produced(connection: Connection, request: bytes, seconds: float) -> int:
    """How many times a request was sent and answered within this time, `IN_FLIGHT` of them at once."""
    sent = answered = 0
    deadline = time.perf_counter() + seconds
    while answered < sent or time.perf_counter() < deadline:
        if sent - answered < IN_FLIGHT and time.perf_counter() < deadline:
            connection.send(request)
            sent += 1
        else:
            first_offsets(connection.receive())
            answered += 1
    return answered


def turn(peer: Peer, connection: Connection, request: bytes) -> tuple[float, float]:
    """Requests a second, and CPU milliseconds of the broker for each."""
    cpu_s, began = peer.cpu_s(), time.perf_counter()
    count = produced(connection, request, TURN_S)
    return count / (time.perf_counter() - began), (peer.cpu_s() - cpu_s) * 1000 / count


def compare(peers: Mapping[str, Peer], request: Callable[[str], bytes], rounds: int, what: str) -> None:
    """Print the median of each peer's turns, and ratios to the first."""
    with ExitStack() as stack:
        names = {name: stack.enter_context(topic(peer, "t", 1)) for name, peer in peers.items()}
        connections = {name: stack.enter_context(peer.connect()) for name, peer in peers.items()}
        turns: dict[str, list[tuple[float, float]]] = {name: [] for name in peers}
        for name, peer in peers.items():
            turn(peer, connections[name], request(names[name]))  # to warm up
        for number in range(rounds):
            order = list(peers)[:: 1 if number % 2 == 0 else -1]
            for name in order:
                turns[name].append(turn(peers[name], connections[name], request(names[name])))
    first, *_ = peers
    for name, measured in turns.items():
        rates, costs = zip(*measured, strict=True)
        ratio = median(cost / base for (_, cost), (_, base) in zip(measured, turns[first], strict=True))
        rate_ratio = median(rate / base for (rate, _), (base, _) in zip(measured, turns[first], strict=True))
        print(
            f"{what} | {name} | {median(rates):.0f} requests/s | {median(costs):.3f} ms CPU each | "
            f"rate x {rate_ratio:.3f} | CPU x {ratio:.3f}"
        )


def one_record(name: str) -> bytes:
    return produce_frame(name, [(0, batch(record_bytes=100, records=1, codec="none").body)], acks=-1)


def many_records(name: str) -> bytes:
    return produce_frame(name, [(0, batch(record_bytes=1000, records=900, codec="none").body)], acks=-1)


def rules(rounds: int) -> None:
    """Access rules on and off, with a thousand rules of others."""
    on = SecurePeer({"security.authorization": "acls", "security.super_users": "User:ANONYMOUS"})
    peers: dict[str, Peer] = {"without": StreamHousePeer(), f"with {RULES} rules": on}
    with peers["without"], on:
        rule = {"operation": "write", "resource_type": "topic", "pattern": "prefixed", "permission": "allow"}
        for first in range(0, RULES, RULES_PER_REQUEST):
            numbers = range(first, first + RULES_PER_REQUEST)
            acls = [rule | {"principal": f"User:u{number}", "name": f"topic-{number}-"} for number in numbers]
            on.post("POST", "/v1/acls", {"acls": acls})
        for what, request in (("one record", one_record), ("900 KB", many_records)):
            compare(peers, request, rounds, what)


def tls(rounds: int) -> None:
    """TLS beside no TLS, and beside Kafka's."""
    with certificates() as folder, ExitStack() as stack:
        peers: dict[str, Peer] = {
            "StreamHouse": StreamHousePeer(),
            "StreamHouse, TLS": SecurePeer({}, tls=folder),
            "Kafka": KafkaPeer(),
            "Kafka, TLS": SecureKafkaPeer(folder),
        }
        for peer in peers.values():
            stack.enter_context(peer)
        for what, request in (("one record", one_record), ("900 KB", many_records)):
            compare(peers, request, rounds, what)


@contextmanager
def certificates() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-tls-") as name:
        make_authority(Path(name)).issue(Path(name), CERTIFICATE)
        yield Path(name)


def noise(rounds: int) -> None:
    """The waits of a quiet client alone, and beside one that sends as fast as it can, above its quota."""
    assert len(NOISY) == len(CLIENT_ID)
    with SecurePeer({}) as peer, topic(peer, "quiet", 1) as quiet, topic(peer, "noisy", 1) as noisy:
        limits = {"entity": {"client-id": NOISY.decode()}, "limits": {"producer_byte_rate": NOISY_BYTES_PER_S}}
        peer.post("PUT", "/v1/quotas", limits)
        loud = many_records(noisy).replace(CLIENT_ID, NOISY)
        alone: list[float] = []
        beside: list[float] = []
        with peer.connect() as connection, peer.connect() as other:
            waits(connection, one_record(quiet), TURN_S)
            for _ in range(rounds):
                alone += waits(connection, one_record(quiet), TURN_S)
                for _ in range(IN_FLIGHT):
                    other.send(loud)
                beside += waits(connection, one_record(quiet), TURN_S)
                for _ in range(IN_FLIGHT):
                    first_offsets(other.receive())
        for what, measured in (("alone", alone), ("beside a noisy one", beside)):
            print(f"quiet client {what} | p50 {at(measured, 50):.2f} ms | p99 {at(measured, 99):.2f} ms")
        print(f"p99 x {at(beside, 99) / at(alone, 99):.2f}")


def waits(connection: Connection, request: bytes, seconds: float) -> list[float]:
    """Milliseconds from when each request was due to its answer."""
    taken = []
    began = time.perf_counter()
    for number in range(round(seconds / QUIET_INTERVAL_S)):
        due = began + number * QUIET_INTERVAL_S
        time.sleep(max(0.0, due - time.perf_counter()))
        first_offsets(connection.call(request))
        taken.append((time.perf_counter() - due) * 1000)
    return taken


def at(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=100)[percent - 1]


MEASURES: Final[Mapping[str, Callable[[int], None]]] = {"rules": rules, "tls": tls, "noise": noise}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measure", nargs="*", choices=[*MEASURES, []], default=list(MEASURES))
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    for name in given.measure:
        MEASURES[name](given.rounds)


if __name__ == "__main__":
    main()
