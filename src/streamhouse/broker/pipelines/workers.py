"""Supervisors and SQL workers: their heartbeats, what each should run, and which worker gets a query.

Data path   a supervisor's heartbeat -> **workers** -> metadata store; wire -> **workers** -> a worker's address
Owns        limits of a heartbeat, the last reported status, the choice among live workers
Leaves      the assignment of pipelines to the metadata store, which has the clock; queries to `spark.worker`
"""

import base64
import hmac
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from streamhouse.broker.dependencies import Dependencies
from streamhouse.errors import InvalidDefinition, NoWorker
from streamhouse.format.encryption import aes_gcm
from streamhouse.model.pipeline import (
    Event,
    Heartbeat,
    PipelineName,
    PipelineReport,
    SqlWorker,
    Status,
    StoredPipeline,
    Supervisor,
    SupervisorId,
    WorkerId,
)

_ENCRYPTED: Final = "encrypted:"
_NONCE_BYTES: Final = 12
MAX_LINE: Final = 10_000
"""Maximum length of an event's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SupervisorReport:
    """A supervisor's last heartbeat here, by the monotonic clock."""

    at: float
    running: tuple[PipelineReport, ...]


class SupervisorRegistry:
    def __init__(self, dependencies: Dependencies) -> None:
        self._metadata = dependencies.metadata
        self._settings = dependencies.settings.pipelines
        self._clock = dependencies.clock
        self._reports: dict[SupervisorId, _SupervisorReport] = {}

    def __repr__(self) -> str:
        return f"<SupervisorRegistry reports={len(self._reports)}>"

    @property
    def ttl_s(self) -> float:
        """How long a heartbeat is valid."""
        return self._settings.ttl_s

    async def heartbeat(self, heartbeat: Heartbeat) -> Sequence[StoredPipeline]:
        """Record a heartbeat; returns what the supervisor should run. It should stop everything else."""
        running = tuple(self._kept(each) for each in heartbeat.running)
        assigned = await self._metadata.heartbeat_supervisor(
            replace(heartbeat, running=running),
            ttl_ms=round(self._settings.ttl_s * 1000),
            max_events=self._settings.max_events,
            max_supervisors=self._settings.max_supervisors,
        )
        self._forget_silent()
        self._reports[heartbeat.supervisor] = _SupervisorReport(at=self._clock.monotonic(), running=running)
        return assigned

    def statuses(self) -> Mapping[PipelineName, Status]:
        """The last status of each pipeline, from the supervisors that send heartbeats to this agent."""
        self._forget_silent()
        return {
            each.name: each.status
            for report in sorted(self._reports.values(), key=lambda report: report.at)
            for each in report.running
            if each.status is not None
        }

    def _forget_silent(self) -> None:
        since = self._clock.monotonic() - self._settings.ttl_s
        self._reports = {supervisor: report for supervisor, report in self._reports.items() if report.at > since}

    async def all(self) -> Sequence[Supervisor]:
        return await self._metadata.supervisors()

    async def leave(self, supervisor: SupervisorId) -> None:
        await self._metadata.remove_supervisor(supervisor)
        self._reports.pop(supervisor, None)

    def _kept(self, running: PipelineReport) -> PipelineReport:
        limit = self._settings.max_status_bytes
        if running.status is not None and len(json.dumps(asdict(running.status))) > limit:
            raise InvalidDefinition(
                f"a status is too large; pipeline={running.name} limit_bytes={limit} setting=pipelines.max_status_bytes"
            )
        return replace(running, events=tuple(map(_shortened, running.events)))


def _shortened(event: Event) -> Event:
    """Shorten a line and remove NUL characters, which PostgreSQL rejects."""
    return replace(event, text=event.text.replace("\0", " ")[:MAX_LINE])


class SqlWorkers:
    """Where there is a cluster secret, workers' tokens are encrypted with a key that is derived from it, so that nobody
    finds them in the metadata store."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._metadata = dependencies.metadata
        self._settings = dependencies.settings.sql
        secret = dependencies.secrets.cluster_secret.encode()
        self._cipher = aes_gcm(hmac.digest(secret, b"streamhouse worker token", "sha256")) if secret else None

    @property
    def ttl_s(self) -> float:
        return self._settings.worker_ttl_s

    async def beat(self, worker: SqlWorker) -> None:
        await self._metadata.heartbeat_worker(
            self._encrypted(worker),
            ttl_ms=round(self._settings.worker_ttl_s * 1000),
            max_workers=self._settings.max_workers,
        )

    async def all(self) -> Sequence[SqlWorker]:
        """Live workers whose tokens can be decrypted."""
        return [each for worker in await self._metadata.workers() if (each := self._decrypted(worker)) is not None]

    async def drop(self, worker: WorkerId) -> None:
        await self._metadata.drop_worker(worker)

    async def in_order(self) -> Sequence[SqlWorker]:
        """Live workers, the least busy first; raises `NoWorker` if there is none."""
        workers = sorted(await self.all(), key=lambda each: (each.busy, each.worker))
        if not workers:
            raise NoWorker("no SQL worker is running; do=start one: streamhouse sql serve")
        return workers

    def _encrypted(self, worker: SqlWorker) -> SqlWorker:
        if self._cipher is None:
            return worker
        nonce = os.urandom(_NONCE_BYTES)
        token = nonce + self._cipher.encrypt(nonce, worker.token.encode(), worker.worker.encode())
        return replace(worker, token=_ENCRYPTED + base64.b64encode(token).decode())

    def _decrypted(self, worker: SqlWorker) -> SqlWorker | None:
        """None for a worker that another secret announced."""
        if not worker.token.startswith(_ENCRYPTED):
            return worker  # of an agent without a cluster secret, or of an earlier release
        if self._cipher is None:
            return None
        from cryptography.exceptions import InvalidTag

        try:
            token = base64.b64decode(worker.token.removeprefix(_ENCRYPTED), validate=True)
            plain = self._cipher.decrypt(token[:_NONCE_BYTES], token[_NONCE_BYTES:], worker.worker.encode())
        except (InvalidTag, ValueError):
            return None
        return replace(worker, token=plain.decode(errors="replace"))
