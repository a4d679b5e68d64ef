"""Differences between two JSON schemas, and which of them break readers: the rules of Confluent's registry.

Data path   shapes of the older and the newer schema -> **differences** -> what the caller is told
Owns        what is compared with what, circles, limits, and which kinds of differences are harmless
Leaves      limits on numbers, texts, objects and lists to `json_schema.*_differences`

Pairs of shapes are judged once. A pair that is met inside itself is taken for good at first; if the pair turns out to
be bad, everything is judged again with that knowledge until nothing new is found, so that a good verdict never rests on
a bad one. The number of pairs, their depth and the length of lists are limited; beyond the limits the verdict is no.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from streamhouse.format.schemas.base import MAX_INCOMPATIBILITIES, Incompatibility
from streamhouse.format.schemas.json_schema import shapes
from streamhouse.format.schemas.json_schema.array_differences import array_differences
from streamhouse.format.schemas.json_schema.kinds import Difference, at, breaks
from streamhouse.format.schemas.json_schema.matching import TooManySteps, largest_matching
from streamhouse.format.schemas.json_schema.object_differences import object_differences
from streamhouse.format.schemas.json_schema.scalar_differences import scalar_differences
from streamhouse.format.schemas.json_schema.shapes import Shape, followed
from streamhouse.format.schemas.json_schema.validation import Patterns

MAX_PAIRS: Final = 200_000
MAX_PAIR_DEPTH: Final = 120
MAX_FOUND: Final = 1_000
"""Differences kept of one pair: shapes that share parts can have more than there are atoms."""


class TooComplex(Exception):
    """The limits are reached."""


def incompatibilities(newer: Shape, older: Shape) -> list[Incompatibility]:
    """Why a reader with the newer schema can't read what fits the older one."""
    try:
        found = [each for each in differences(older, newer) if each.breaks]
    except (TooComplex, TooManySteps, RecursionError):
        message = f"the schemas are too complex to be compared; pairs={MAX_PAIRS} depth={MAX_PAIR_DEPTH}"
        return [Incompatibility(kind="SCHEMA_TOO_COMPLEX", path="#/", message=message)]
    return [
        Incompatibility(kind=kind, path=f"#/{path}", message=f"{kind.lower().replace('_', ' ')} at #/{path}")
        for kind, path in dict.fromkeys(found)
    ][:MAX_INCOMPATIBILITIES]


def differences(original: Shape, update: Shape) -> list[Difference]:
    """All differences, harmless ones too, with paths such as `properties/a/maxLength`."""
    known: dict[tuple[int, int], list[Difference]] = {}
    pairs_left = MAX_PAIRS
    while True:
        comparison = Comparison(known, pairs_left)
        found = comparison.compare(original, update)
        bad = comparison.bad_pairs()
        if not comparison.was_optimistic or bad.keys() == known.keys():
            return found
        known, pairs_left = bad, comparison.pairs_left


class Comparison:
    """One walk over both schemas."""

    def __init__(self, known: dict[tuple[int, int], list[Difference]], pairs_left: int) -> None:
        self.was_optimistic = False
        self.pairs_left = pairs_left
        self.matches = Patterns().matches
        self._known = known
        self._judged: dict[tuple[int, int], list[Difference]] = {}
        self._open: set[tuple[int, int]] = set()
        # Shapes made on the way must outlive their ids.
        self._kept: list[Shape] = []

    def bad_pairs(self) -> dict[tuple[int, int], list[Difference]]:
        return {pair: found for pair, found in self._judged.items() if breaks(found)}

    def compare(self, original: Shape | None, update: Shape | None) -> list[Difference]:
        if original is None or update is None:
            if original is update:
                return []
            return [Difference("SCHEMA_ADDED" if original is None else "SCHEMA_REMOVED", "")]
        original, update = followed(original), followed(update)
        pair = (id(original), id(update))
        if pair in self._judged:
            return self._judged[pair]
        if pair in self._open:
            return self._met_again(pair)
        self.pairs_left -= 1
        if self.pairs_left < 0 or len(self._open) > MAX_PAIR_DEPTH:
            raise TooComplex
        self._kept += (original, update)
        self._open.add(pair)
        found = limited(self._compare(original, update))
        self._open.discard(pair)
        self._judged[pair] = found
        return found

    def _met_again(self, pair: tuple[int, int]) -> list[Difference]:
        if pair in self._known:
            return self._known[pair]
        self.was_optimistic = True
        return []

    def _compare(self, original: Shape, update: Shape) -> list[Difference]:
        shortcut = self._one_side_combined(original, update)
        if shortcut is not None:
            return shortcut
        if type(original) is not type(update):
            return _other_kind(original, update)
        found = _words(original, update)
        match original, update:
            case shapes.Combined(), shapes.Combined():
                return found + self._combined(original, update)
            case shapes.Not(), shapes.Not():
                # What must not match is the other way around.
                inner = self.compare(update.inner, original.inner)
                return [*found, Difference("NOT_TYPE_EXTENDED" if breaks(inner) else "NOT_TYPE_NARROWED", "not")]
            case shapes.Object(), shapes.Object():
                return found + object_differences(self, original, update)
            case shapes.Array(), shapes.Array():
                return found + array_differences(self, original, update)
        return found + scalar_differences(original, update)

    def _one_side_combined(self, original: Shape, update: Shape) -> list[Difference] | None:
        """A plain shape may fit into one of several, and one of several that must all hold may be enough."""
        if isinstance(update, shapes.Combined) and not isinstance(original, shapes.Combined):
            if len(update.parts) == 1:
                return self._good_or_none(original, update.parts[0])
            if update.criterion != "allOf":
                tries = (self._good_or_none(original, part) for part in update.parts)
                return _first_good(tries, "SUM_TYPE_EXTENDED")
        elif isinstance(original, shapes.Combined) and not isinstance(update, shapes.Combined):
            if len(original.parts) == 1:
                return self._good_or_none(original.parts[0], update)
            if original.criterion == "allOf":
                tries = (self._good_or_none(part, update) for part in original.parts)
                return _first_good(tries, "PRODUCT_TYPE_NARROWED")
        return None

    def _good_or_none(self, original: Shape, update: Shape) -> list[Difference] | None:
        found = self.compare(original, update)
        return None if breaks(found) else list(found)

    def _combined(self, original: shapes.Combined, update: shapes.Combined) -> list[Difference]:
        change = _criterion_change(original, update)
        found = [Difference(change, "")] if change else []
        if change == "COMBINED_TYPE_CHANGED":
            return found
        olds = list({part.key: part for part in original.parts}.values())
        news = list({part.key: part for part in update.parts}.values())
        found += _size_change(original, update, len(olds), len(news))
        if len(olds) * len(news) > self.pairs_left:
            raise TooComplex
        fits: list[dict[int, list[Difference]]] = []
        for index, old in enumerate(olds):
            place = f"{original.criterion}/{index}"
            tries = {i: at(place, self.compare(old, new)) for i, new in enumerate(news)}
            fits.append({i: result for i, result in tries.items() if not breaks(result)})
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


def _first_good(tries: Iterable[list[Difference] | None], kind: str) -> list[Difference] | None:
    good = next((found for found in tries if found is not None), None)
    return None if good is None else [*good, Difference(kind, "")]


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
