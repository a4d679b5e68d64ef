"""Which group must be looked at next."""

from hypothesis import given
from hypothesis import strategies as st

from streamhouse.broker.groups.coordinator import SLACK, GroupDeadlines


def test_the_earliest_comes_first_and_each_comes_once() -> None:
    deadlines = GroupDeadlines()
    for group_id, at in (("a", 5.0), ("b", 3.0), ("a", 4.0), ("b", 9.0)):
        deadlines.set(group_id, at)
    assert deadlines.next() == 3.0
    assert deadlines.take_due(2.9) == []
    assert deadlines.take_due(10.0) == ["b", "a"]
    assert deadlines.next() == float("inf")


def test_a_forgotten_group_does_not_come() -> None:
    deadlines = GroupDeadlines()
    deadlines.set("a", 1.0)
    deadlines.forget("a")
    assert deadlines.take_due(2.0) == []
    deadlines.set("a", 5.0)
    assert deadlines.next() == 5.0


def test_never_is_not_a_time() -> None:
    deadlines = GroupDeadlines()
    deadlines.set("a", float("inf"))
    assert deadlines.take_due(1e18) == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(min_value=0, max_value=50)), max_size=300))
def test_however_often_times_change_little_is_kept(changes: list[tuple[str, int]]) -> None:
    deadlines = GroupDeadlines()
    earliest: dict[str, float] = {}
    for group_id, at in changes:
        if at % 7 == 0:
            deadlines.forget(group_id)
            earliest.pop(group_id, None)
        deadlines.set(group_id, at)
        earliest[group_id] = min(earliest.get(group_id, 99), at)
        assert deadlines.next() == min(earliest.values())
        assert len(deadlines._heap) <= 2 * 3 + SLACK
