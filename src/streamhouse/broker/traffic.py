"""Traffic: what went through the broker, counted per batch.

Owns        plain counters that cost an addition each
Leaves      names and formats of metrics to `telemetry`
"""


class Traffic:
    __slots__ = ("appended_batches", "appended_bytes", "appended_records", "fetched_bytes")

    def __init__(self) -> None:
        self.appended_batches = 0
        self.appended_bytes = 0
        self.appended_records = 0
        self.fetched_bytes = 0

    def __repr__(self) -> str:
        return f"<Traffic appended={self.appended_records} records fetched={self.fetched_bytes >> 20}MiB>"

    def appended(self, *, records: int, size_bytes: int) -> None:
        self.appended_batches += 1
        self.appended_bytes += size_bytes
        self.appended_records += records

    def fetched(self, *, size_bytes: int) -> None:
        self.fetched_bytes += size_bytes
