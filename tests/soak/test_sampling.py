"""Samples are of this process and this machine, and series have a value for each look."""

import os
import threading

from tests.soak.sampling import ALLOWANCES, Series, allowance_of, process_of, tree_of
from tests.soak.trend import Sample


def test_a_process_is_seen_with_its_memory_handles_and_threads() -> None:
    before = process_of(os.getpid())
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    with open(os.devnull, "rb"):
        after = process_of(os.getpid())
    release.set()
    thread.join()
    assert before["rss"] >= before["pss"] > 1
    assert (after["threads"] - before["threads"], after["handles"] - before["handles"]) == (1, 1)


def test_a_tree_is_counted_with_what_it_started() -> None:
    child = os.fork()
    if not child:
        os.read(os.pipe()[0], 1)
    try:
        assert tree_of(os.getpid())["processes"] >= 2
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert tree_of(os.getpid())["pss"] > 1


def test_what_appears_later_was_nothing_before_and_what_vanishes_is_nothing_after() -> None:
    series = Series()
    series.add(0.0, {"a rows": 1.0})
    series.add(5.0, {"b rows": 2.0})
    assert series.samples == {
        "a rows": [Sample(0.0, 1.0), Sample(5.0, 0.0)],
        "b rows": [Sample(0.0, 0.0), Sample(5.0, 2.0)],
    }
    assert series.as_json() == {"at_s": [0.0, 5.0], "values": {"a rows": [1.0, 0.0], "b rows": [0.0, 2.0]}}


def test_every_kind_of_series_has_an_allowance() -> None:
    kinds = {*process_of(os.getpid()), "tasks", "processes"}
    assert all(allowance_of(f"agent 1 {kind}") == ALLOWANCES[kind] for kind in kinds)
