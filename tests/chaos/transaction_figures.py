"""Transaction figures: how many transactions ended how, and whom faults have met in the middle of one.

Data path   history -> **transaction_figures** -> transaction_report, summary
Owns        counting
Leaves      judging to `checker`
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from .history import History
from .transactions import ABORTED, COMMITTED, UNKNOWN, Deal


class FamilyOutcomes(NamedTuple):
    family: str
    instances: int
    committed: int
    aborted: int
    never_asked: int
    unknown: int
    unknown_but_there: int
    fenced: int
    records: int
    slowest_s: float
    """from asking for a commit to its answer"""


def outcomes(history: History) -> list[FamilyOutcomes]:
    families: dict[str, list[Deal]] = {}
    for deal in history.transactional.deals:
        families.setdefault(deal.entries[0].family, []).append(deal)
    there = {
        each.entry.deal
        for partitions in history.transactional.committed.values()
        for records in partitions.values()
        for each in records
        if each.entry is not None
    }
    return [_outcomes(family, deals, there) for family, deals in sorted(families.items())]


def _outcomes(family: str, deals: list[Deal], there: set[tuple[str, int]]) -> FamilyOutcomes:
    unknown = [deal for deal in deals if deal.requested_at is not None and deal.outcome == UNKNOWN]
    waits = [(deal.ended_at or 0.0) - (deal.requested_at or 0.0) for deal in deals if deal.outcome == COMMITTED]
    return FamilyOutcomes(
        family=family,
        instances=len({deal.key[0] for deal in deals}),
        committed=len(waits),
        aborted=sum(deal.outcome == ABORTED for deal in deals),
        never_asked=sum(deal.outcome == UNKNOWN and deal.requested_at is None for deal in deals),
        unknown=len(unknown),
        unknown_but_there=sum(deal.key in there for deal in unknown),
        fenced=sum(deal.fenced_at is not None for deal in deals),
        records=sum(len(deal.entries) for deal in deals),
        slowest_s=max(waits, default=0.0),
    )


def met(history: History) -> Counter[tuple[str, str]]:
    """By role and fault: how often an agent that had that part in a transaction under way was struck."""
    once = {(each.at, each.kind, each.agent, each.role) for each in history.transactional.struck}
    return Counter((role, kind) for _, kind, _, role in once)


def transaction_lines(history: History) -> Iterator[str]:
    for each in outcomes(history):
        yield " ".join(
            f"{name}={value:.4g}" if name == "slowest_s" else f"{name}={value}"
            for name, value in each._asdict().items()
        )
    for (role, kind), times in sorted(met(history).items()):
        yield f"{kind} met the {role} of an open transaction {times} times"
