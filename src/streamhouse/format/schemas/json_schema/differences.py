"""Differences between two JSON schemas, and which of them break readers: the rules of Confluent's registry.

Data path   shapes of the older and the newer schema -> **differences** -> what the caller is told
Owns        what is compared with what, circles, limits, and which kinds of differences are harmless
Leaves      limits on numbers, texts, objects and lists to `json_schema.*_differences`

Pairs of shapes are judged once. A pair that is met inside itself is taken for good at first; if the pair turns out to
be bad, everything is judged again with that knowledge until nothing new is found, so that a good verdict never rests on
a bad one. The number of steps and the length of lists are limited; beyond the limits the verdict is no.
"""

from collections.abc import Generator, Sequence
from typing import Final

from streamhouse.format.schemas.base import MAX_INCOMPATIBILITIES, Incompatibility
from streamhouse.format.schemas.json_schema import shapes
from streamhouse.format.schemas.json_schema.array_differences import array_differences
from streamhouse.format.schemas.json_schema.kinds import Difference, Matches, Pair, Steps, at, breaks
from streamhouse.format.schemas.json_schema.matching import largest_matching
from streamhouse.format.schemas.json_schema.object_differences import object_differences
from streamhouse.format.schemas.json_schema.scalar_differences import scalar_differences
from streamhouse.format.schemas.json_schema.shapes import Shape, followed
from streamhouse.format.schemas.json_schema.validation import Patterns
from streamhouse.format.schemas.steps import TooComplex, run_steps

MAX_QUESTIONS: Final = 300_000
"""Pairs that are asked for, known ones too, and what is carried from pair to pair."""
MAX_FOUND: Final = 30
"""Differences kept of one pair: shapes that share parts can have more than there are atoms."""

Known = dict[tuple[int, int], list[Difference]]


def incompatibilities(newer: Shape, older: Shape) -> list[Incompatibility]:
    """Why a reader with the newer schema can't read what fits the older one."""
    try:
        found = [each for each in differences(older, newer) if each.breaks]
    except TooComplex:
        message = f"the schemas are too complex to be compared; steps={MAX_QUESTIONS}"
        return [Incompatibility(kind="SCHEMA_TOO_COMPLEX", path="#/", message=message)]
    return [
        Incompatibility(kind=kind, path=f"#/{path}", message=f"{kind.lower().replace('_', ' ')} at #/{path}")
        for kind, path in dict.fromkeys(found)
    ][:MAX_INCOMPATIBILITIES]


def differences(original: Shape, update: Shape) -> list[Difference]:
    """All differences, harmless ones too, with paths such as `properties/a/maxLength`."""
    bad: Known = {}
    matches = Patterns().matches
    questions_left = MAX_QUESTIONS
    while True:
        comparison = _Comparison(bad, questions_left, matches)
        whole: Pair = (original, update)
        found = run_steps(whole, comparison.known, comparison.judge)
        questions_left, known, bad = comparison.questions_left, bad, comparison.bad_pairs()
        if not comparison.was_optimistic or bad.keys() == known.keys():
            return found


class _Comparison:
    """One walk over both schemas."""

    def __init__(self, bad: Known, questions_left: int, matches: Matches) -> None:
        self.was_optimistic = False
        self.questions_left = questions_left
        self._bad = bad
        self._judged: Known = {}
        self._open: set[tuple[int, int]] = set()
        self._matches = matches

    def bad_pairs(self) -> Known:
        return {pair: found for pair, found in self._judged.items() if breaks(found)}

    def known(self, pair: Pair) -> list[Difference] | None:
        self.questions_left -= 1
        if self.questions_left < 0:
            raise TooComplex
        original, update = pair
        if original is None or update is None:
            if original is update:
                return []
            return [Difference("SCHEMA_ADDED" if original is None else "SCHEMA_REMOVED", "")]
        key = (id(followed(original)), id(followed(update)))
        if key not in self._open:
            return self._judged.get(key)
        if key in self._bad:
            return self._bad[key]
        self.was_optimistic = True
        return []

    def judge(self, pair: Pair) -> Steps:
        original, update = pair
        assert original is not None
        assert update is not None
        original, update = followed(original), followed(update)
        key = (id(original), id(update))
        self._open.add(key)
        found = limited((yield from self._compare(original, update)))
        self._open.discard(key)
        self.questions_left -= len(found)
        self._judged[key] = found
        return found

    def _compare(self, original: Shape, update: Shape) -> Steps:
        fitting = yield from _one_side_combined(original, update)
        if fitting is not None:
            return fitting
        if type(original) is not type(update):
            return _other_kind(original, update)
        return _words(original, update) + (yield from self._same_kind(original, update))

    def _same_kind(self, original: Shape, update: Shape) -> Steps:
        match original, update:
            case shapes.Combined(), shapes.Combined():
                return (yield from _combined(original, update))
            case shapes.Not(), shapes.Not():
                # What must not match is the other way around.
                inner = yield (update.inner, original.inner)
                return [Difference("NOT_TYPE_EXTENDED" if breaks(inner) else "NOT_TYPE_NARROWED", "not")]
            case shapes.Object(), shapes.Object():
                return (yield from object_differences(self._matches, original, update))
            case shapes.Array(), shapes.Array():
                return (yield from array_differences(original, update))
        return scalar_differences(original, update)


def _one_side_combined(original: Shape, update: Shape) -> Generator[Pair, list[Difference], list[Difference] | None]:
    """A plain shape may fit into one of several, and one of several that must all hold may be enough."""
    pairs: list[Pair] = []
    kind = ""
    if isinstance(update, shapes.Combined) and not isinstance(original, shapes.Combined):
        if len(update.parts) == 1 or update.criterion != "allOf":
            kind, pairs = "SUM_TYPE_EXTENDED", [(original, part) for part in update.parts]
    elif (
        isinstance(original, shapes.Combined)
        and not isinstance(update, shapes.Combined)
        and (len(original.parts) == 1 or original.criterion == "allOf")
    ):
        kind, pairs = "PRODUCT_TYPE_NARROWED", [(part, update) for part in original.parts]
    for pair in pairs:
        found = yield pair
        if not breaks(found):
            return [*found, Difference(kind, "")] if len(pairs) > 1 else found
    return None


def _combined(original: shapes.Combined, update: shapes.Combined) -> Steps:
    change = _criterion_change(original, update)
    found = [Difference(change, "")] if change else []
    if change == "COMBINED_TYPE_CHANGED":
        return found
    olds = list({part.key: part for part in original.parts}.values())
    news = list({part.key: part for part in update.parts}.values())
    found += _size_change(original, update, len(olds), len(news))
    fits: list[dict[int, list[Difference]]] = []
    for index, old in enumerate(olds):
        fits.append({})
        for new_index, new in enumerate(news):
            result = yield (old, new)
            if not breaks(result):
                fits[index][new_index] = at(f"{original.criterion}/{index}", result)
    matched = largest_matching(fits, len(news))
    for old_index, new_index in matched.items():
        found += fits[old_index][new_index]
    if len(matched) < min(len(olds), len(news)):
        found.append(Difference("COMBINED_TYPE_SUBSCHEMAS_CHANGED", ""))
    return found


def limited(found: list[Difference]) -> list[Difference]:
    """No more than the limit, and never without one that breaks if there is one."""
    if len(found) <= MAX_FOUND:
        return found
    return sorted(found, key=lambda each: not each.breaks)[:MAX_FOUND]


def _other_kind(original: Shape, update: Shape) -> list[Difference]:
    if isinstance(original, shapes.Never) or isinstance(update, shapes.Anything):
        return []
    # Connect writes decimals as texts or as numbers, and calls both bytes.
    if original.connect_type == update.connect_type == "bytes":
        return []
    return [Difference("TYPE_CHANGED", "")]


def _words(original: Shape, update: Shape) -> list[Difference]:
    pairs: Sequence[tuple[str, object, object]] = (
        ("ID_CHANGED", original.identifier, update.identifier),
        ("TITLE_CHANGED", original.title, update.title),
        ("DESCRIPTION_CHANGED", original.description, update.description),
        ("DEFAULT_CHANGED", original.default, update.default),
    )
    return [Difference(kind, "") for kind, old, new in pairs if old != new]


def _criterion_change(original: shapes.Combined, update: shapes.Combined) -> str | None:
    if original.criterion == update.criterion:
        return None
    one_old, one_new = len(original.parts) == 1, len(update.parts) == 1
    extended = (
        update.criterion == "anyOf"
        or (one_old and (one_new or update.criterion == "oneOf"))
        or (one_new and original.criterion == "allOf")
    )
    return "COMBINED_TYPE_EXTENDED" if extended else "COMBINED_TYPE_CHANGED"


def _size_change(original: shapes.Combined, update: shapes.Combined, olds: int, news: int) -> list[Difference]:
    if olds < news:
        return [Difference("PRODUCT_TYPE_EXTENDED" if update.criterion == "allOf" else "SUM_TYPE_EXTENDED", "")]
    if olds > news:
        return [Difference("PRODUCT_TYPE_NARROWED" if original.criterion == "allOf" else "SUM_TYPE_NARROWED", "")]
    return []
