"""Offset checks: what must hold of committed offsets and of generations.

Data path   history -> **offset_checks** -> anomalies
Owns        commits that go back or are forgotten, partitions with two owners
Leaves      offsets that go with transactions to `cycles`
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import inf

from .anomaly import Anomaly, Kind
from .events import Commit, Outcome, answered
from .index import Index


def commits_never_go_back(index: Index) -> Iterator[Anomaly]:
    """No member commits less than what was accepted before it spoke: it would have started below a commit."""
    for (group, partition), commits in _by_group(index.history.commits).items():
        accepted = [each for each in commits if each.outcome is Outcome.COMMITTED]
        by_end = sorted(accepted, key=lambda each: answered(each.ended))
        following, highest = 0, -1
        for commit in sorted(accepted, key=lambda each: each.begun):
            while following < len(by_end) and answered(by_end[following].ended) < commit.begun:
                highest = max(highest, by_end[following].offset)
                following += 1
            if commit.offset < highest:
                text = f"{commit.member} of {group} committed {commit.offset} in {partition} after {highest}"
                yield Anomaly(kind=Kind.COMMIT_WENT_BACK, text=text, at=commit.ended)


def commits_are_remembered(index: Index) -> Iterator[Anomaly]:
    """What the cluster says is committed is the last accepted commit, or one made at the same time."""
    by_group = _by_group(index.history.commits)
    responses = {key: _latest_begin(commits) for key, commits in by_group.items()}
    made: dict[tuple[str, str, int], list[Commit]] = defaultdict(list)
    for commit in index.history.commits:
        made[commit.group, commit.partition, commit.offset].append(commit)
    for seen in index.history.committed:
        ended, begun, offsets = responses.get((seen.group, seen.partition), ([], [], []))
        known = bisect_left(ended, seen.begun)
        since = begun[known - 1] if known else -inf  # a commit that was over before this one began is history
        expected = f"committed of {seen.group} in {seen.partition} was told as {seen.offset}"
        if seen.offset < 0:
            if known:
                yield Anomaly(kind=Kind.COMMIT_LOST, text=expected, at=seen.begun)
        elif not any(_may_be_told(each, since, seen.ended) for each in made[seen[:3]]):
            went_back = bool(known) and seen.offset < offsets[known - 1] and bool(made[seen[:3]])
            kind = Kind.COMMIT_WENT_BACK if went_back else Kind.COMMIT_LOST
            yield Anomaly(kind=kind, text=f"{expected}, which no commit explains", at=seen.begun)


def _latest_begin(commits: Iterable[Commit]) -> tuple[list[float], list[float], list[int]]:
    """Times of answers, and for each the latest beginning, and the highest offset, of those accepted until then."""
    accepted = sorted(
        (answered(each.ended), each.begun, each.offset) for each in commits if each.outcome is Outcome.COMMITTED
    )
    begun: list[float] = []
    highest: list[int] = []
    for _, at, offset in accepted:
        begun.append(max(at, begun[-1]) if begun else at)
        highest.append(max(offset, highest[-1]) if highest else offset)
    return [ended for ended, _, _ in accepted], begun, highest


def _may_be_told(commit: Commit, since: float, until: float) -> bool:
    if commit.outcome is Outcome.UNKNOWN:
        return commit.begun <= until  # without an answer it may happen at any time
    return commit.outcome is Outcome.COMMITTED and commit.begun <= until and answered(commit.ended) >= since


def partitions_have_one_owner(index: Index) -> Iterator[Anomaly]:
    """In one generation of a group a partition belongs to one member."""
    owners: dict[tuple[str, int, str], str] = {}
    for each in index.history.assignments:
        for partition in each.partitions:
            owner = owners.setdefault((each.group, each.generation, partition), each.member)
            if owner != each.member:
                text = f"{partition} belongs to {owner} and {each.member} in generation {each.generation}, {each.group}"
                yield Anomaly(kind=Kind.TWO_OWNERS, text=text, at=each.at)


def _by_group(commits: Iterable[Commit]) -> dict[tuple[str, str], list[Commit]]:
    results: dict[tuple[str, str], list[Commit]] = defaultdict(list)
    for commit in commits:
        results[commit.group, commit.partition].append(commit)
    return results
