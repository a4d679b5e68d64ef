"""Iterative comparison of two schemas: recursion without Python's stack, because hostile schemas choose the depth."""

from collections.abc import Callable, Generator
from typing import Final, TypeVar

MAX_DEPTH: Final = 10_000
"""Comparisons that wait for each other."""

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class TooComplex(Exception):
    """Two schemas can't be compared within the limits."""


def compare_iteratively(
    first: Question,
    known: Callable[[Question], Answer | None],
    begin: Callable[[Question], Generator[Question, Answer, Answer]],
) -> Answer:
    """Answer a question by generators that yield the questions they have themselves; `known` answers come at once."""
    answer = known(first)
    if answer is not None:
        return answer
    stack = [begin(first)]
    while True:
        try:
            question = next(stack[-1]) if answer is None else stack[-1].send(answer)
        except StopIteration as end:
            stack.pop()
            done: Answer = end.value
            if not stack:
                return done
            answer = done
            continue
        answer = known(question)
        if answer is None:
            if len(stack) >= MAX_DEPTH:
                raise TooComplex
            stack.append(begin(question))
