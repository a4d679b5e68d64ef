"""Null S3: a bucket that forgets what is large, for questions that an S3 server would answer with its own limits.

    .venv/bin/python -m benchmarks.cluster.null_s3      # prints its environment as JSON; ends with its standard input

Data path   agents -> **null S3**; nothing comes back
Owns        a process with `tests.support.fake_s3` in it, which keeps all names and the bytes of small objects
Leaves      the protocol to `fake_s3`, what is measured to `null_store`

Reading records and recovering a log from it is impossible. SeaweedFS takes 15 CPU seconds for a gigabyte; this, which
reads each body once, less than one.
"""

import asyncio
import json
import subprocess
import sys
from typing import Final, Self

import uvloop

from benchmarks import process
from benchmarks.peer import PeerFailed
from tests.support.fake_s3 import FakeS3, Reply, Request

KEPT_BYTES: Final = 16 * 1024
STOP_TIMEOUT_S: Final = 10.0


class NullS3(FakeS3):
    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        return await self._send(self._do(request), request, "ok", writer)

    def _put(self, request: Request) -> Reply:
        reply = super()._put(request)
        if reply.status == 200 and len(request.body) > KEPT_BYTES:
            self.objects[request.key] = b""
        return reply


class NullS3Process:
    """`with NullS3Process() as store:` starts it and ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self.environment: dict[str, str] = {}
        """By which agents find it."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "benchmarks.cluster.null_s3"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerFailed("the null object server did not start")
        self.environment = json.loads(line)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=STOP_TIMEOUT_S)

    def cpu_s(self) -> float:
        assert self._process is not None, "the server runs"
        return process.cpu_s(self._process.pid)


async def serve() -> None:
    async with NullS3() as server:
        print(json.dumps(server.environment), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve())
