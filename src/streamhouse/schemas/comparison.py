"""Iterative comparison of two schemas: recursion without Python's stack, because hostile schemas choose the depth."""

from collections.abc import Callable, Generator
from typing import Final, TypeVar

MAX_DEPTH: Final = 10_000
"""Nested comparisons."""

Pair = TypeVar("Pair")
Verdict = TypeVar("Verdict")


class TooComplex(Exception):
    """Two schemas can't be compared within the limits."""


def compare_iteratively(
    first: Pair,
    known: Callable[[Pair], Verdict | None],
    begin: Callable[[Pair], Generator[Pair, Verdict, Verdict]],
) -> Verdict:
    """Compare a pair by generators that yield the pairs they need; `known` returns verdicts that need no generator."""
    verdict = known(first)
    if verdict is not None:
        return verdict
    stack = [begin(first)]
    while True:
        try:
            pair = next(stack[-1]) if verdict is None else stack[-1].send(verdict)
        except StopIteration as end:
            stack.pop()
            done: Verdict = end.value
            if not stack:
                return done
            verdict = done
            continue
        verdict = known(pair)
        if verdict is None:
            if len(stack) >= MAX_DEPTH:
                raise TooComplex
            stack.append(begin(pair))
