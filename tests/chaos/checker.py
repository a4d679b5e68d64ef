"""Checker: what a history must not contain, whatever happened to the cluster.

Data path   history -> **checker** -> anomalies, for the report and the exit code
Owns        the promises, as far as clients can see them
Leaves      recording to the clients; figures that are no promise to `figures`

Plain functions over a finished history. Two events are in order only if one was answered before the other was sent.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Final

from .anomaly import Anomaly
from .history import Commit, Fault, History, Log, RecordId, Send
from .transaction_checker import TRANSACTION_PROMISES

MAX_PER_KIND: Final = 20  # one cause has thousands of effects, and nobody reads them all
ZOMBIE_S: Final = 10.0  # so long after a pause an acknowledgement is looked at with suspicion
PAUSE: Final = "SIGSTOP"


def check(history: History) -> list[Anomaly]:
    """Everything that is wrong, in the order of the promises."""
    return [anomaly for promise in PROMISES for anomaly in _few(promise(history))]


def _few(anomalies: Iterable[Anomaly]) -> Iterator[Anomaly]:
    seen: dict[str, int] = defaultdict(int)
    for each in anomalies:
        seen[each.kind] += 1
        if seen[each.kind] <= MAX_PER_KIND:
            yield each
    for kind, count in seen.items():
        if count > MAX_PER_KIND:
            yield Anomaly(kind=kind, text=f"… and {count - MAX_PER_KIND} more")


# --- the log itself -----------------------------------------------------------------------------------------------


def log_is_well_formed(history: History) -> Iterator[Anomaly]:
    """Offsets grow, and every record is one of ours with all its bytes."""
    for partition, records in history.log.items():
        before = -1
        for offset, record in records:
            if offset <= before:
                yield Anomaly(kind="offset twice", text=f"partition {partition} shows {offset} after {before}")
            before = offset
            if record is None or record.partition != partition:
                yield Anomaly(kind="corrupt record", text=f"partition {partition} offset {offset} holds {record}")


def log_survives_agents(history: History) -> Iterator[Anomaly]:
    """Read again by agents that were just started, the log is the same; it may have grown by what nobody answered."""
    unanswered = {send.record for send in history.sends if not send.acked}
    for partition, records in history.log.items():
        again = dict(history.log_again.get(partition, ()))
        for offset, record in records:
            if again.get(offset) != record:
                text = f"partition {partition} offset {offset} held {record}, then {again.get(offset)}"
                yield Anomaly(kind="changed by a restart", text=text)
        end = records[-1].offset + 1 if records else 0
        for offset in sorted(again.keys() - {each.offset for each in records}):
            if offset >= end and again[offset] in unanswered:
                continue
            text = f"partition {partition} offset {offset} was nothing, then {again[offset]}"
            yield Anomaly(kind="changed by a restart", text=text)


def nothing_comes_from_nowhere(history: History) -> Iterator[Anomaly]:
    """Every record in the log was sent by somebody."""
    sent = {send.record for send in history.sends}
    for partition, records in history.log.items():
        for offset, record in records:
            if record is not None and record not in sent:
                yield Anomaly(kind="phantom record", text=f"{record} in partition {partition} at {offset}: never sent")


# --- acknowledgements ---------------------------------------------------------------------------------------------


def acks_are_kept(history: History) -> Iterator[Anomaly]:
    """Every acknowledged record is where it was acknowledged."""
    stored, places = _by_offset(history.log), _places(history.log)
    for send in history.sends:
        if not send.acked:
            continue
        if send.offset is None and send.record in places:
            continue  # librdkafka knows it from the success of the next batch
        if send.offset is None or send.offset < 0:
            yield Anomaly(kind="ack without offset", text=f"{send.record} offset={send.offset}", at=send.answered_at)
            continue
        found = stored.get((send.record.partition, send.offset))
        if found != send.record:
            yield Anomaly(
                kind="acked by a zombie" if _after_a_pause(history.faults, send) else "lost ack",
                text=_where_it_went(send, found, places),
                at=send.answered_at,
            )


def _where_it_went(send: Send, found: RecordId | None, places: Mapping[RecordId, list[int]]) -> str:
    by = f" by {send.by}" if send.by else ""
    elsewhere = places.get(send.record)
    where = f"it is at {elsewhere}" if elsewhere else "it is nowhere"
    return f"{send.record} was acked{by} at {send.offset}, which holds {found or 'nothing'}; {where}"


def _after_a_pause(faults: Iterable[Fault], send: Send) -> bool:
    """Whether it was acknowledged by somebody who had just been paused, as far as one can know."""
    assert send.answered_at is not None
    for fault in faults:
        if fault.kind != PAUSE or fault.ended_at is None or send.by not in ("", *fault.targets):
            continue
        if 0 <= send.answered_at - fault.ended_at <= ZOMBIE_S:
            return True
    return False


def offsets_are_given_once(history: History) -> Iterator[Anomaly]:
    """No offset is acknowledged for two records."""
    given: dict[tuple[int, int], RecordId] = {}
    for send in history.sends:
        if send.acked and send.offset is not None:
            first = given.setdefault((send.record.partition, send.offset), send.record)
            if first != send.record:
                text = f"partition {send.record.partition} offset {send.offset} was given to {first} and {send.record}"
                yield Anomaly(kind="offset twice", text=text, at=send.answered_at)


def acks_follow_time(history: History) -> Iterator[Anomaly]:
    """What is sent after an acknowledgement gets a higher offset, whoever sent either."""
    told = (send for send in history.sends if send.acked and send.offset is not None)
    for partition, sends in _by_partition(told).items():
        acks = sorted((send.answered_at or 0.0, send.offset or 0, send.record) for send in sends)
        following, highest = 0, (-1, RecordId("", partition, -1))
        for send in sorted(sends, key=lambda each: each.sent_at):
            while following < len(acks) and acks[following][0] < send.sent_at:
                highest = max(highest, acks[following][1:])
                following += 1
            if (send.offset or 0) < highest[0]:
                text = f"{send.record} got {send.offset}, though {highest[1]} had {highest[0]} before it was sent"
                yield Anomaly(kind="behind an earlier ack", text=text, at=send.answered_at)


# --- producers ----------------------------------------------------------------------------------------------------


def idempotent_records_are_stored_once(history: History) -> Iterator[Anomaly]:
    """Whatever was retried, refused or lost on the way."""
    idempotent = set(history.idempotent)
    for record, offsets in _places(history.log).items():
        if record.producer in idempotent and len(offsets) > 1:
            yield Anomaly(kind="stored twice", text=f"{record} of an idempotent producer is at {offsets}")


def order_is_kept(history: History) -> Iterator[Anomaly]:
    """Records of a producer stand in the log, and are acknowledged, in the order in which it sent them."""
    yield from _idempotent_order(history)
    yield from _order_of_acks(history)


def _idempotent_order(history: History) -> Iterator[Anomaly]:
    idempotent = set(history.idempotent)
    for partition, records in history.log.items():
        last: dict[str, int] = defaultdict(lambda: -1)
        for offset, record in records:
            if record is None or record.producer not in idempotent:
                continue
            if record.number < last[record.producer]:
                text = f"{record} at {offset} of partition {partition} follows number {last[record.producer]}"
                yield Anomaly(kind="out of order", text=text)
            last[record.producer] = max(record.number, last[record.producer])


def _order_of_acks(history: History) -> Iterator[Anomaly]:
    """Who has one request under way per partition gets offsets that grow with the numbers."""
    unordered = set(history.unordered)
    last: dict[tuple[str, int], Send] = {}
    for send in sorted(history.sends, key=lambda each: each.record):
        if not send.acked or send.offset is None or send.record.producer in unordered:
            continue
        before = last.get(send.record[:2])
        if before is not None and (before.offset or 0) >= send.offset:
            text = f"{before.record} was acked at {before.offset} and {send.record} at {send.offset}"
            yield Anomaly(kind="out of order", text=text, at=send.answered_at)
        last[send.record[:2]] = send


def producers_are_answered(history: History) -> Iterator[Anomaly]:
    """After the faults everything sent is answered, and every producer succeeds in every partition."""
    for send in history.sends:
        if send.answered_at is None and send.record.producer not in history.stubborn:
            yield Anomaly(kind="stuck producer", text=f"{send.record} was never answered", at=send.sent_at)
    if history.healed_at is None:
        return
    late = [send for send in history.sends if send.sent_at > history.healed_at]
    succeeded = {send.record[:2] for send in late if send.acked}
    for producer, partition in sorted({send.record[:2] for send in late} - succeeded):
        if producer not in history.stubborn:
            yield Anomaly(
                kind="stuck producer", text=f"{producer} has no ack in partition {partition} after the faults"
            )


# --- consumers ----------------------------------------------------------------------------------------------------


def reads_are_true(history: History) -> Iterator[Anomaly]:
    """Whatever anybody consumed is in the log at that offset."""
    stored = _by_offset(history.log)
    for each in history.consumed:
        found = stored.get((each.partition, each.offset))
        if found != each.record or found is None:
            text = (
                f"{each.member} read {each.record} in partition {each.partition} at {each.offset}, which holds {found}"
            )
            yield Anomaly(kind="phantom read", text=text, at=each.at)


def groups_see_everything(history: History) -> Iterator[Anomaly]:
    """Members commit what they have consumed and nothing else, so a group passes over no record, and ends at the last
    acknowledged one or behind it: requests that nobody waited for any more may be stored when members are gone."""
    acked = {(send.record.partition, send.offset) for send in history.sends if send.acked}
    read: dict[str, set[tuple[int, int]]] = {each.group: set() for each in history.commits}
    for each in history.consumed:
        read.setdefault(each.group, set()).add((each.partition, each.offset))
    highest: dict[tuple[str, int], int] = defaultdict(lambda: -1)
    for each in history.consumed:
        key = each.group, each.partition
        highest[key] = max(highest[key], each.offset)
    for group, seen in sorted(read.items()):
        for partition, records in history.log.items():
            missing = [offset for offset, _ in records if (partition, offset) not in seen]
            passed = [offset for offset in missing if offset < highest[group, partition]]
            if passed:
                text = f"{group} never saw {len(passed)} records of partition {partition}, first {passed[0]}"
                yield Anomaly(kind="passed over", text=text)
            if any((partition, offset) in acked for offset in missing[len(passed) :]):
                text = f"{group} ended at {highest[group, partition]} of {records[-1].offset} in partition {partition}"
                yield Anomaly(kind="stuck consumer", text=text)


# --- commits ------------------------------------------------------------------------------------------------------


def commits_never_go_back(history: History) -> Iterator[Anomaly]:
    """No member commits less than what was accepted before it spoke: it would have started below a commit."""
    for (group, partition), commits in _by_group(history.commits).items():
        accepted = sorted((each for each in commits if each.accepted), key=lambda each: each.answered_at or inf)
        following, highest = 0, -1
        for commit in sorted((each for each in commits if each.accepted), key=lambda each: each.sent_at):
            while following < len(accepted) and (accepted[following].answered_at or inf) < commit.sent_at:
                highest = max(highest, accepted[following].offset)
                following += 1
            if commit.offset < highest:
                text = f"{commit.member} of {group} committed {commit.offset} in partition {partition} after {highest}"
                yield Anomaly(kind="commit went back", text=text, at=commit.answered_at)


def commits_are_remembered(history: History) -> Iterator[Anomaly]:
    """What the cluster says is committed is the last accepted commit, or one made at the same time."""
    answers = {key: _latest_begin(commits) for key, commits in _by_group(history.commits).items()}
    made: dict[tuple[str, int, int], list[Commit]] = defaultdict(list)
    for commit in history.commits:
        made[commit.group, commit.partition, commit.offset].append(commit)
    for seen in history.observed:
        answered, begun = answers.get((seen.group, seen.partition), ([], []))
        known = bisect_left(answered, seen.sent_at)
        since = begun[known - 1] if known else -inf  # a commit that was over before this one began is history
        if seen.offset < 0:
            if known:
                yield Anomaly(kind="commit lost", text=f"{_told(seen.group, seen.partition)} nothing", at=seen.sent_at)
        elif not any(_may_be_told(each, since, seen.answered_at) for each in made[seen[2:]]):
            text = f"{_told(seen.group, seen.partition)} {seen.offset}, which no commit explains"
            yield Anomaly(kind="commit lost", text=text, at=seen.sent_at)


def _latest_begin(commits: Iterable[Commit]) -> tuple[list[float], list[float]]:
    """Times of answers, and for each the latest beginning of a commit accepted until then."""
    accepted = sorted((each.answered_at or inf, each.sent_at) for each in commits if each.accepted)
    begun: list[float] = []
    for _, sent_at in accepted:
        begun.append(max(sent_at, begun[-1]) if begun else sent_at)
    return [answered for answered, _ in accepted], begun


def _may_be_told(commit: Commit, since: float, until: float) -> bool:
    if commit.accepted is None:
        return commit.sent_at <= until  # without an answer it may happen at any time
    return commit.accepted and commit.sent_at <= until and (commit.answered_at or inf) >= since


def _told(group: str, partition: int) -> str:
    return f"committed of {group} in partition {partition} was told as"


# --- the run ------------------------------------------------------------------------------------------------------


def nobody_is_in_trouble(history: History) -> Iterator[Anomaly]:
    """No client gives up, no agent ends by itself, every agent is ready in time and stops when told to."""
    for each in history.troubles:
        yield Anomaly(kind="trouble", text=f"{each.who}: {each.text}", at=each.at)


def _by_offset(log: Log) -> dict[tuple[int, int], RecordId | None]:
    return {(partition, each.offset): each.record for partition, records in log.items() for each in records}


def _places(log: Log) -> dict[RecordId, list[int]]:
    places: dict[RecordId, list[int]] = defaultdict(list)
    for records in log.values():
        for offset, record in records:
            if record is not None:
                places[record].append(offset)
    return places


def _by_partition(sends: Iterable[Send]) -> dict[int, list[Send]]:
    found: dict[int, list[Send]] = defaultdict(list)
    for send in sends:
        found[send.record.partition].append(send)
    return found


def _by_group(commits: Iterable[Commit]) -> dict[tuple[str, int], list[Commit]]:
    found: dict[tuple[str, int], list[Commit]] = defaultdict(list)
    for commit in commits:
        found[commit.group, commit.partition].append(commit)
    return found


PROMISES: Final[tuple[Callable[[History], Iterator[Anomaly]], ...]] = (
    acks_are_kept,
    offsets_are_given_once,
    acks_follow_time,
    log_is_well_formed,
    log_survives_agents,
    nothing_comes_from_nowhere,
    idempotent_records_are_stored_once,
    order_is_kept,
    reads_are_true,
    groups_see_everything,
    commits_never_go_back,
    commits_are_remembered,
    producers_are_answered,
    *TRANSACTION_PROMISES,
    nobody_is_in_trouble,
)
