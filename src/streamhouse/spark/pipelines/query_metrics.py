"""Query metrics: Spark's progress of a query's last micro-batch, as fields of a pipeline's status.

Data path   StreamingQueryProgress -> **query_metrics** -> events -> status
Owns        the metrics and their names; lag; totals over micro-batches
Leaves      reading the progress to `query_run`
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

DEAD_LETTERS: Final = "dead_letters"
"""The name of a query's observed count of dead letters."""
LATE_LINE_S: Final = 60.0
MAX_READ_PARTITIONS: Final = 64
SPARKS_EPOCH: Final = "1970-01-01T00:00:00.000Z"


class Totals:
    """Rows over all micro-batches since the query began; Spark reports the same progress more than once."""

    def __init__(self) -> None:
        self.seen = -1
        self.rows_in = 0
        self.rows_out: int | None = None
        self.dead_letters = 0
        self.late_rows = 0

    def add(self, progresses: Iterable[Mapping[str, Any]]) -> None:
        for progress in progresses:
            if progress["batchId"] <= self.seen or not progress.get("numInputRows"):
                continue
            self.seen = progress["batchId"]
            self.rows_in += progress["numInputRows"]
            out = (progress.get("sink") or {}).get("numOutputRows", -1)
            self.rows_out = self.rows_out if out < 0 else (self.rows_out or 0) + out
            observed = progress.get("observedMetrics") or {}
            self.dead_letters += (observed.get(DEAD_LETTERS) or {}).get("rows") or 0
            states = progress.get("stateOperators") or ()
            self.late_rows += sum(state.get("numRowsDroppedByWatermark") or 0 for state in states)


class LateRows:
    """When rows that a watermark left out are worth a line of the pipeline's log: once a minute at most."""

    def __init__(self) -> None:
        self._reported = 0
        self._reported_at: float | None = None

    def line(self, late_rows: int, now: float) -> str | None:
        """The log line about these rows since the query started; None if nothing is new, or it is too early."""
        is_soon = self._reported_at is not None and now - self._reported_at < LATE_LINE_S
        if late_rows <= self._reported or is_soon:
            return None
        more, self._reported, self._reported_at = late_rows - self._reported, late_rows, now
        return f"rows came later than the watermark allows and were left out; rows={more} since_start={late_rows}"


def query_metrics(progress: Mapping[str, Any], totals: Totals) -> dict[str, Any]:
    """Fields of a status, from the last progress of a pipeline's main query."""
    states = progress.get("stateOperators") or []
    return {
        "batch_id": progress["batchId"],
        "input_rate": progress.get("inputRowsPerSecond"),
        "processed_rate": progress.get("processedRowsPerSecond"),
        "rows_in": totals.rows_in,
        "rows_out": totals.rows_out,
        "batch_ms": progress.get("batchDuration"),
        "lag_records": lag_of(progress),
        "state_rows": sum(state.get("numRowsTotal", 0) for state in states) if states else None,
        "state_bytes": sum(state.get("memoryUsedBytes", 0) for state in states) if states else None,
        "late_rows": totals.late_rows,
        "watermark_ms": watermark_ms((progress.get("eventTime") or {}).get("watermark")),
    }


class ReadOffsets:
    """The offsets that a query has read since it began, by topic and partition: where it began, and how far it is."""

    def __init__(self) -> None:
        self._read: dict[str, dict[str, tuple[int, int]]] = {}

    def add(self, progress: Mapping[str, Any]) -> None:
        for source in progress.get("sources") or []:
            start, end = _offsets(source.get("startOffset")), _offsets(source.get("endOffset"))
            if start is None or end is None:
                continue
            for (topic, partition), at in end.items():
                known = self._read.setdefault(topic, {})
                first, _ = known.get(partition, (start.get((topic, partition), at), at))
                known[partition] = (first, at)

    def as_progress(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Empty for more partitions than a status should carry."""
        return self._read if sum(map(len, self._read.values())) <= MAX_READ_PARTITIONS else {}


def lag_of(progress: Mapping[str, Any]) -> int | None:
    """How many offsets the topics hold beyond the micro-batch; None if no source reports it."""
    known = [each for each in map(_source_lag, progress.get("sources") or []) if each is not None]
    return sum(known) if known else None


def _source_lag(source: Mapping[str, Any]) -> int | None:
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if end is None or latest is None:
        return None
    return sum(max(0, at - end.get(partition, 0)) for partition, at in latest.items())


def _offsets(progress: Any) -> dict[tuple[str, str], int] | None:
    by_topic = progress.get("offsets") if isinstance(progress, dict) else None
    if not isinstance(by_topic, dict):
        return None
    return {(topic, number): at for topic, offsets in by_topic.items() for number, at in offsets.items()}


def watermark_ms(text: str | None) -> int | None:
    """None before there is one: Spark reports 1970 then."""
    if text is None or text == SPARKS_EPOCH:
        return None
    return round(datetime.fromisoformat(text).timestamp() * 1000)
