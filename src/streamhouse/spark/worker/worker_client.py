"""Finds, starts and stops the SQL worker, and validates files with it. Imports no PySpark.

Data path   shell, `pipelines validate` -> **worker_client** -> a worker's address and token, /v1/sql/validate
Owns        finding a worker that answers; starting exactly one; waiting for it; stopping it
Leaves      the directory to `discovery`, queries and validation to the worker

A worker outlives the process that started it: it has its own session and log, and exits when it is idle.
"""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from importlib.util import find_spec
from typing import Any, Final

import httpx
import msgspec

from streamhouse.clock import Clock, SystemClock
from streamhouse.errors import ChildFailed, Misconfigured, Unavailable
from streamhouse.errors.base import install_command
from streamhouse.spark.agents.definition_applier import Validate, Validated
from streamhouse.spark.runtime.java import java_home
from streamhouse.spark.worker.discovery import RuntimeDir, Worker, runtime_dir, same_agents

START_TIMEOUT_S: Final = 300.0
"""Spark takes 5 to 15 seconds; a machine that swaps, or has much else to do, takes minutes."""
POLL_S: Final = 0.1
REQUEST_TIMEOUT_S: Final = 5.0
STOP_TIMEOUT_S: Final = 15.0

OnWait = Callable[[float], None]
"""Called now and then with the seconds of waiting for a worker that starts."""


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a worker."""

    busy: int = 0
    queries: int = 0
    idle_s: float = 0.0
    up_s: float = 0.0
    spark: str = ""


async def ensure_worker(
    agents: str, *, on_wait: OnWait | None = None, clock: Clock | None = None, home: RuntimeDir | None = None
) -> Worker:
    """The worker for these agents (`host:port,…`), started where there is none; it is ready when this returns.

    Raises `Misconfigured` where there is no Java or no PySpark, `ChildFailed` (with the log's path and last lines)
    where the worker ended, `Unavailable` where it is there and doesn't answer.
    """
    clock, home = clock or SystemClock(), home or runtime_dir(agents)
    worker = await find_worker(agents, home=home)
    if worker is not None:
        return worker
    waiting = _Waiting(home, clock, on_wait)
    async with waiting.turn():
        worker = await find_worker(agents, home=home)
        if worker is not None:
            return worker
        process = None if home.has_worker() else launch(agents, home)
        worker = await waiting.until_ready(agents, process)
    if process is not None:
        process.returncode = 0  # it outlives this process, which doesn't wait for it
    return worker


async def find_worker(agents: str, *, home: RuntimeDir | None = None) -> Worker | None:
    """The worker that runs for these agents, if it answers."""
    home = home or runtime_dir(agents)
    worker = home.read()
    if worker is None or not home.has_worker():
        return None
    return None if await worker_status(worker) is None else worker


async def worker_status(worker: Worker) -> WorkerStatus | None:
    """None if no worker responds."""
    try:
        async with httpx.AsyncClient(timeout=REQUEST_TIMEOUT_S, trust_env=False) as client:
            response = await client.get(f"http://{worker.address}/health", headers=authorization(worker))
            response.raise_for_status()
            return msgspec.json.decode(response.content, type=WorkerStatus)
    except httpx.TimeoutException:
        raise Unavailable(
            f"the SQL worker doesn't answer; address={worker.address} pid={worker.pid} log={worker.log}"
            " do=wait, or end it with: streamhouse sql stop"
        ) from None
    except (httpx.HTTPError, msgspec.DecodeError, OSError):
        return None


async def stop_worker(agents: str, *, clock: Clock | None = None, home: RuntimeDir | None = None) -> Worker | None:
    """End the worker of these agents, with what it does; None where there is none."""
    clock, home = clock or SystemClock(), home or runtime_dir(agents)
    worker = home.read()
    if worker is None or not home.has_worker():  # the lock is the proof that the number is still this worker's
        return None
    deadline = clock.monotonic() + STOP_TIMEOUT_S
    _signal(worker.pid, signal.SIGTERM)
    while home.has_worker():
        if clock.monotonic() > deadline:
            _signal(worker.pid, signal.SIGKILL)
            break
        await clock.sleep(POLL_S)
    return worker


def authorization(worker: Worker) -> dict[str, str]:
    return {"authorization": f"Bearer {worker.token}"}


def launch(agents: str, home: RuntimeDir, *, flags: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
    """A worker that starts, in a session of its own: what ends the shell doesn't end it."""
    if find_spec("pyspark") is None:
        raise Misconfigured(f"SQL needs Spark, which is not installed; do={install_command('spark')}")
    java_home()  # raises with what to do, here and not in the log of a process that ends at once
    command = [sys.executable, "-m", "streamhouse.spark.worker.process", "--agents", same_agents(agents), *flags]
    with home.log.open("wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=home.folder
        )


class _Waiting:
    """The time until a worker is there."""

    def __init__(self, home: RuntimeDir, clock: Clock, on_wait: OnWait | None) -> None:
        self._home, self._clock, self._on_wait = home, clock, on_wait
        self._began = clock.monotonic()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One caller at a time starts a worker; the others wait and then use it."""
        with ExitStack() as held:
            while not held.enter_context(self._home.starting()):
                held.close()
                await self._pause()
            yield

    async def until_ready(self, agents: str, process: "subprocess.Popen[bytes] | None") -> Worker:
        while True:
            worker = await find_worker(agents, home=self._home)
            if worker is not None:
                return worker
            ended = not self._home.has_worker() if process is None else process.poll() is not None
            if ended:
                raise self._failed(None if process is None else process.returncode)
            await self._pause()

    async def _pause(self) -> None:
        waited_s = self._clock.monotonic() - self._began
        if waited_s > START_TIMEOUT_S:
            raise Unavailable(f"the SQL worker did not start in time; waited_s={waited_s:.0f} log={self._home.log}")
        if self._on_wait is not None:
            self._on_wait(waited_s)
        await self._clock.sleep(POLL_S)

    def _failed(self, code: int | None) -> ChildFailed:
        words = self._home.last_words()
        reason = words[-1].strip() if words else "no output"
        text = f"the SQL worker did not start; code={code} why={reason}"
        return ChildFailed(text, log_path=str(self._home.log), last_lines=words)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


TIMEOUT_S: Final = 120.0


def worker_validation(agents: str, *, on_wait: OnWait | None = None) -> Validate:
    async def validate(text: str, python: Sequence[Mapping[str, Any]]) -> Validated:
        worker = await ensure_worker(agents, on_wait=on_wait)
        async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
            try:
                response = await client.post(
                    f"http://{worker.address}/v1/sql/validate",
                    json={"text": text} | ({"python": list(python)} if python else {}),
                    headers=authorization(worker),
                )
                response.raise_for_status()
            except httpx.HTTPError as error:
                raise Unavailable(
                    f"the SQL worker doesn't answer; why={str(error) or type(error).__name__} log={worker.log}"
                ) from None
        result = msgspec.json.decode(response.content)
        return result["statements"], result.get("python") or {}

    return validate
