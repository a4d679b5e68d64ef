"""Anomaly: one thing in a history that a promise forbids.

Data path   checker, transaction_checker -> **anomaly** -> report, exit code
Owns        the noun
Leaves      finding them to the checkers
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    kind: str
    text: str
    at: float | None = None

    def __str__(self) -> str:
        when = "" if self.at is None else f" at {self.at:.3f} s"
        return f"{self.kind}{when}: {self.text}"
