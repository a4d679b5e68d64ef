"""A real S3 server in a process of its own: SeaweedFS on loopback, for tests, benchmarks and local clusters.

    with RealS3(folder) as server:
        server.create_bucket("records")
        environment = {**os.environ, **server.environment}     # what `--store s3://records/prefix` needs

Ports stay the same over restarts, so that clients find it again after `kill` and `start`.
"""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import obstore
from obstore.store import S3Store

REGION: Final = "us-east-1"
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
_GRPC_OFFSET: Final = 10_000  # where SeaweedFS's own worker looks for the admin server
_PORTS: Final = (11_000, 21_000)  # below those that the system gives to outgoing connections, also with the offset
_BINARY: Final = Path(sys.executable).parent / "weed"


class RealS3:
    """`weed mini` on a folder. Buckets are made by name only; a bucket that nobody made is missing, as on AWS."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.access_key = "streamhouse"
        self.secret_key = secrets.token_hex(16)
        self.log_path = folder / "weed.log"
        self._ports = _ports()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()  # a graceful end takes seconds, and nobody needs what it would keep

    def __repr__(self) -> str:
        return f"<RealS3 {self.endpoint} {'up' if self._process else 'down'}>"

    @property
    def port(self) -> int:
        return self._ports["s3.port"]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the S3 server is not running"
        return self._process.pid

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which any S3 client finds it."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
        }

    @property
    def output(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def start(self) -> None:
        """Start and wait until it answers."""
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}
        with self.log_path.open("ab") as output:
            self._process = subprocess.Popen(self._command(), stdout=output, stderr=output, env=environment)
        self._wait_for(lambda: _answers(self.endpoint), "start")

    def create_bucket(self, name: str) -> None:
        """Make a bucket; no error when it is there."""
        client = S3Store(
            name,
            config={
                "access_key_id": self.access_key,
                "secret_access_key": self.secret_key,
                "endpoint": self.endpoint,
                "region": REGION,
            },
            client_options={"allow_http": True},
        )
        signed = obstore.sign(client, "PUT", "", timedelta(minutes=1))
        self._wait_for(lambda: _put(signed), "make a bucket")

    def kill(self) -> None:
        """SIGKILL: nothing is written or said any more."""
        os.kill(self.pid, signal.SIGKILL)
        self._end()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL when it takes too long: no test rests on a graceful end."""
        os.kill(self.pid, signal.SIGTERM)
        self._end()

    def restart(self) -> None:
        self.kill()
        self.start()

    def _end(self) -> None:
        assert self._process is not None
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _wait_for(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not done():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the S3 server did not {what}:\n{self.output[-4000:]}")
            time.sleep(0.02)

    def _command(self) -> list[str]:
        """Every port is given; nothing is reported to anybody; parts that are not needed stay off."""
        flags = {name: str(port) for name, port in self._ports.items()}
        flags |= {
            "dir": str(self.folder / "data"),
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.telemetry": "false",
            "master.telemetry.url": "http://127.0.0.1:9/",
            "s3.autoCreateBucket": "false",
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
            "webdav": "false",
            "admin.ui": "false",
        }
        return [str(_BINARY), "mini", *(f"-{name}={value}" for name, value in flags.items())]


def _ports() -> dict[str, int]:
    names = [f"{part}.port" for part in ("master", "volume", "filer", "s3")]
    names += [f"{name}.grpc" for name in names]
    with _Reservation() as ports:
        chosen = {name: ports.take() for name in names}
        chosen["admin.port"] = ports.take(offset=_GRPC_OFFSET)
        chosen["admin.port.grpc"] = chosen["admin.port"] + _GRPC_OFFSET
        return chosen


class _Reservation:
    """Free ports of loopback, held until all are chosen, so that none is chosen twice."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._held:
            each.close()

    def take(self, *, offset: int = 0) -> int:
        """A port that is free, together with its neighbour at `offset`."""
        low, high = _PORTS
        while True:
            port = low + secrets.randbelow(high - low)
            if self._hold(port) and (offset == 0 or self._hold(port + offset)):
                return port

    def _hold(self, port: int) -> bool:
        probe = socket.socket()
        self._held.append(probe)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _answers(endpoint: str) -> bool:
    """Whether the S3 gateway serves: any HTTP answer but an error of its own, such as a refusal to list buckets."""
    try:
        with urllib.request.urlopen(endpoint, timeout=2):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False


def _put(url: str) -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=b"", method="PUT"), timeout=10) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        if error.code != 409 and error.code < 500:
            raise AssertionError(f"no bucket can be made; status={error.code}") from None
        return error.code == 409  # it is there already
    except OSError:
        return False
