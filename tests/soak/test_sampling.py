"""Samples are of this process and this machine, and series have a value for each look."""

import os
import threading

import pytest

from tests.soak.sampling import ALLOWANCES, Series, allowance_of, heap_in, javas_of, process_of, tree_of
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
    kinds = {*process_of(os.getpid()), "tasks", "processes", "heap", "metaspace"}
    assert all(allowance_of(f"agent 1 {kind}") == ALLOWANCES[kind] for kind in kinds)


G1 = """4711:
 garbage-first heap   total 524288K, used 40960K [0x00000000e0000000, 0x0000000100000000)
  region size 1024K, 2 young (2048K), 0 survivors (0K)
 Metaspace       used 102400K, committed 103104K, reserved 1114112K
  class space    used 9999K, committed 10240K, reserved 1048576K
"""
SERIAL = """4711:
 def new generation   total 157248K, used 1024K [0x00000000e0000000, 0x00000000eaaa0000, 0x00000000eaaa0000)
  eden space 139776K,   3% used [0x00000000e0000000, 0x00000000e051ef18, 0x00000000e8880000)
  from space 17472K,   0% used [0x00000000e8880000, 0x00000000e8880000, 0x00000000e9990000)
 tenured generation   total 349568K, used 39936K [0x00000000eaaa0000, 0x0000000100000000, 0x0000000100000000)
   the space 349568K,  11% used [0x00000000eaaa0000, 0x00000000ed1a0000, 0x00000000ed1a0000, 0x0000000100000000)
 Metaspace       used 102400K, committed 103104K, reserved 1114112K
  class space    used 9999K, committed 10240K, reserved 1048576K
"""


@pytest.mark.parametrize("text", [G1, SERIAL])
def test_the_heap_of_a_java_is_what_its_generations_use_and_classes_lie_beside_it(text: str) -> None:
    assert heap_in(text) == {"heap": 40.0, "metaspace": 100.0}


def test_a_java_that_has_ended_holds_nothing() -> None:
    assert heap_in("") == {"heap": 0.0, "metaspace": 0.0}
    assert javas_of(os.getpid()) == []
