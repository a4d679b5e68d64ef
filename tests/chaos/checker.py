"""Checker: what a history must not contain, whatever happened to the cluster.

Data path   history -> events -> tests.history, **checker** -> anomalies, for the report and the exit code
Owns        what only this kind of run can see: who was paused, what was copied, clients that gave up
Leaves      all other promises to `tests.history`; figures that are no promise to `figures`
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from tests.history.anomaly import Anomaly, Kind, limited
from tests.history.checker import CHECKS
from tests.history.index import Index

from .events import events_of
from .faults import PAUSE, RARELY_FELT
from .history import Fault, History, RecordId, Send
from .transactions import COPIES, DEALS

ZOMBIE_S: Final = 10.0  # so long after a pause an acknowledgement is looked at with suspicion
FELT_AFTER_S: Final = 5.0
"""For so long, over all agents that a kind of fault strikes, it may go unnoticed: one that has just started asks for
little."""


class Promise(NamedTuple):
    name: str
    text: str
    broken: Callable[[], Iterator[Anomaly]]


def promises(history: History) -> list[Promise]:
    """Everything that is promised, and what breaks it in this history."""
    index = Index(events_of(history))
    ours: list[tuple[Callable[..., Iterator[Anomaly]], object]] = [
        *((each, index) for each in CHECKS),
        *((each, history) for each in OWN_CHECKS),
    ]
    return [
        Promise(each.__name__.replace("_", " "), " ".join((each.__doc__ or "").split()), partial(each, about))
        for each, about in ours
    ]


def check(history: History) -> list[Anomaly]:
    """Everything that is wrong, in the order of the promises; of each kind the first few."""
    anomalies = list(limited(anomaly for promise in promises(history) for anomaly in promise.broken()))
    return anomalies + (check(history.exchanged) if history.exchanged is not None else [])


def paused_agents_acknowledge_nothing(history: History) -> Iterator[Anomaly]:
    """Nothing is lost that was acknowledged by an agent that had just been paused, as far as one can know."""
    places: dict[RecordId, list[int]] = defaultdict(list)
    for records in history.log.values():
        for offset, record in records:
            if record is not None:
                places[record].append(offset)
    for send in history.sends:
        if not send.acked or send.offset is None or not history.log or not _after_a_pause(history.faults, send):
            continue
        where = places[send.record]
        if send.offset not in where:
            by = f" by {send.by}" if send.by else ""
            text = f"{send.record} was acknowledged{by} at {send.offset}; it is at {where or 'no offset'}"
            yield Anomaly(kind="acked by a zombie", text=text, at=send.answered_at)


def _after_a_pause(faults: Iterable[Fault], send: Send) -> bool:
    for fault in faults:
        if fault.kind != PAUSE or fault.ended_at is None or send.by not in ("", *fault.targets):
            continue
        if 0 <= (send.answered_at or 0.0) - fault.ended_at <= ZOMBIE_S:
            return True
    return False


def copies_are_made_once(history: History) -> Iterator[Anomaly]:
    """Of every committed record there is one committed copy, however often its copier was replaced."""
    committed = history.transactional.committed
    made: Counter[tuple[int, int]] = Counter()
    for records in committed.get(COPIES, {}).values():
        made.update(entry.source for _, entry in records if entry is not None)
    due = {(partition, offset) for partition, records in committed.get(DEALS, {}).items() for offset, _ in records}
    for source in sorted(due - made.keys()):
        yield Anomaly(kind="never copied", text=f"partition {source[0]} offset {source[1]}")
    for source, times in sorted(made.items()):
        if source not in due:
            yield Anomaly(kind="copy of nothing", text=f"partition {source[0]} offset {source[1]}")
        elif times > 1:
            yield Anomaly(kind="copied twice", text=f"partition {source[0]} offset {source[1]}: {times} times")


def offsets_of_transactions_never_go_back(history: History) -> Iterator[Anomaly]:
    """What is committed with transactions grows, as one client is told that waits for each answer."""
    last: dict[int, int] = defaultdict(lambda: -1)
    for entry in history.transactional.told:
        if entry.offset < last[entry.partition]:
            text = f"partition {entry.partition}: {entry.offset} after {last[entry.partition]}"
            yield Anomaly(kind="offset went back", text=text, at=entry.sent_at)
        last[entry.partition] = max(entry.offset, last[entry.partition])


def nobody_is_in_trouble(history: History) -> Iterator[Anomaly]:
    """No client gives up, no agent ends by itself, every agent is ready in time and stops when told to."""
    for each in history.troubles:
        yield Anomaly(kind="trouble", text=f"{each.who}: {each.text}", at=each.at)


def every_fault_is_felt(history: History) -> Iterator[Anomaly]:
    """Of the kinds of fault that lasted for some seconds, each was felt at least once by somebody."""
    felt: Counter[str] = Counter()
    lasted_s: dict[str, float] = defaultdict(float)
    for fault in history.faults:
        felt[fault.kind] += fault.hits
        lasted_s[fault.kind] += ((fault.ended_at or fault.begun_at) - fault.begun_at) * len(fault.targets)
    for kind, hits in sorted(felt.items()):
        if not hits and kind not in RARELY_FELT and lasted_s[kind] >= FELT_AFTER_S:
            yield Anomaly(kind=Kind.NO_EVIDENCE, text=f"{kind} came and nobody felt it")


OWN_CHECKS: Final[tuple[Callable[[History], Iterator[Anomaly]], ...]] = (
    paused_agents_acknowledge_nothing,
    copies_are_made_once,
    offsets_of_transactions_never_go_back,
    nobody_is_in_trouble,
    every_fault_is_felt,
)
