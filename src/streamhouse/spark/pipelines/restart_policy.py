"""Decides for one pipeline of a supervisor: start, wait, retry or give up; and until when its lease is valid.

Data path   assigned jobs, runner events, the clock -> **PipelineState** -> start and stop; a status for the heartbeat
Owns        phases, backoff between attempts, the status; lease deadlines by the monotonic clock
Leaves      processes to `runner_process`, assignment to the agents

A lease counts from before its heartbeat was sent, so it never ends later here than at the agents. No I/O.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from streamhouse.clock import Ids
from streamhouse.model.pipeline import GENERATION, Phase
from streamhouse.spark.pipelines.runner_protocol import Ended, PipelineJob

STOP_AT: Final = 0.6
"""Fraction of the lease time after which queries are stopped."""
KILL_AT: Final = 0.8
"""Fraction of the lease time after which processes are killed."""

END_AT: Final = 0.9
"""Fraction of the lease time after which a watchdog process kills runners, whatever their supervisor does."""


class LeaseStage(Enum):
    HELD = auto()
    STOP = auto()
    KILL = auto()


class LeaseDeadline:
    """All of a supervisor's pipelines are renewed by the same heartbeat."""

    def __init__(self) -> None:
        self._since: float | None = None
        self.ttl_s = 15.0

    def __repr__(self) -> str:
        return f"<Lease since={self._since} ttl_s={self.ttl_s:g}>"

    def renewed(self, sent_at: float, ttl_s: float) -> None:
        self._since, self.ttl_s = sent_at, ttl_s

    @property
    def deadline(self) -> float | None:
        """Until when runners may continue if they hear nothing more; None before the first heartbeat."""
        return None if self._since is None else self._since + END_AT * self.ttl_s

    def stage(self, now: float) -> LeaseStage:
        if self._since is None or now < self._since + STOP_AT * self.ttl_s:
            return LeaseStage.HELD
        return LeaseStage.STOP if now < self._since + KILL_AT * self.ttl_s else LeaseStage.KILL


MAX_LINES: Final = 100
"""Lines of a pipeline's log that wait for a heartbeat; older ones are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits between tries: doubled from `first_s` to `most_s`, starting over after `healthy_s` without a failure."""

    first_s: float = 1.0
    most_s: float = 60.0
    healthy_s: float = 60.0

    def wait_s(self, failures: int) -> float:
        return float(min(self.most_s, self.first_s * 2 ** min(failures - 1, 30)))


class PipelineState:
    """One pipeline, as long as one supervisor owns one version of it under one epoch."""

    def __init__(self, job: PipelineJob, *, backoff: Backoff, ids: Ids, now: float) -> None:
        self.job = job
        self._backoff, self._ids = backoff, ids
        self.phase = Phase.STARTING
        self.run: int | None = None
        self.start_at: float | None = now
        self._failures = 0
        self._restarts = 0
        self._begun_at: float | None = None
        self._error: str | None = None
        self._figures: dict[str, Any] = {}
        self._late_before = job.late_rows
        if job.has_run:  # reported from the start: the next owner must know that there was a checkpoint
            self._figures = {"batch_id": job.last_batch, "progress": {GENERATION: job.generation}}
            self._figures |= {"late_rows": job.late_rows} if job.late_rows else {}
        self.lines: deque[dict[str, Any]] = deque(maxlen=MAX_LINES)
        if job.refusal:
            self.phase, self.start_at, self._error = Phase.FAILED, None, job.refusal

    def __repr__(self) -> str:
        return f"<Care {self.job.name} {self.phase.value} epoch={self.job.epoch} run={self.run}>"

    def is_due(self, now: float) -> bool:
        return self.run is None and self.start_at is not None and self.start_at <= now

    # --- events

    def started(self, run: int) -> None:
        self.run, self.start_at, self.phase = run, None, Phase.STARTING
        self._late_before = self._figures.get("late_rows", self._late_before)

    def begun(self, now: float, now_ms: int) -> None:
        self.phase, self._begun_at = Phase.RUNNING, now
        self.log_event(now_ms, "info", f"started; revision={self.job.revision} generation={self.job.generation}")

    def update(self, figures: dict[str, Any]) -> None:
        """A micro-batch has completed: an earlier error no longer holds."""
        self._figures |= figures
        if "late_rows" in figures:  # a run counts its own
            self._figures["late_rows"] = self._late_before + figures["late_rows"]
        self._error = None

    def ended(self, ended: Ended, now: float, now_ms: int) -> None:
        self.run = None
        if ended.how == "done":
            self.phase = Phase.DONE
            self.log_event(now_ms, "info", "completed; all available records were processed")
        elif ended.how == "failed":
            self._failed(ended.error or "unknown error", ended.can_retry, now, now_ms)
        else:
            self.start_at = now  # a pipeline that is stopped for good drops this state

    def runner_lost(self, now: float, now_ms: int) -> None:
        """The runner process has exited."""
        self.run = None
        self._failed("its runner exited", True, now, now_ms)

    def _failed(self, error: str, can_retry: bool, now: float, now_ms: int) -> None:
        if self._begun_at is not None and now - self._begun_at >= self._backoff.healthy_s:
            self._failures = 0
        self._begun_at, self._error = None, error
        self._failures += 1
        if not can_retry:
            self.phase, self.start_at = Phase.FAILED, None
            self.log_event(now_ms, "error", f"failed; error={error} do=change or restart it")
            return
        wait_s = self._ids.jitter(self._backoff.wait_s(self._failures))
        self.phase, self.start_at = Phase.BACKING_OFF, now + wait_s
        self._restarts += 1
        self.log_event(now_ms, "warning", f"failed; error={error} retry_in_s={wait_s:.1f}")

    def log_event(self, now_ms: int, level: str, text: str) -> None:
        self.lines.append({"at_ms": now_ms, "level": level, "text": text})

    def status(self, now_ms: int) -> dict[str, Any]:
        return {
            "rows_in": 0,
            "dead_letters": 0,
            "late_rows": 0,
            **self._figures,
            "phase": self.phase.value,
            "revision": self.job.revision,
            "restarts": self._restarts,
            "error": self._error,
            "told_at_ms": now_ms,
        }
