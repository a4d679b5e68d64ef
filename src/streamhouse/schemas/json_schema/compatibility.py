"""Compatibility of JSON schemas: the rules of Confluent's registry.

Compares the nodes of an older and a newer schema, and says which differences break readers. Each pair of nodes is
compared once. A pair that contains itself counts as compatible at first; if it turns out not to be, everything is
compared again with that knowledge until nothing changes. The number of comparisons and the length of lists are
limited: beyond the limits the schemas are incompatible.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Final

from streamhouse.schemas.base import MAX_INCOMPATIBILITIES, Incompatibility
from streamhouse.schemas.comparison import TooComplex, compare_iteratively
from streamhouse.schemas.json_schema import schema_nodes
from streamhouse.schemas.json_schema.array_rules import array_differences
from streamhouse.schemas.json_schema.difference_kinds import Difference, Matches, Pair, Steps, at, breaks
from streamhouse.schemas.json_schema.object_rules import object_differences
from streamhouse.schemas.json_schema.scalar_rules import scalar_differences
from streamhouse.schemas.json_schema.schema_nodes import SchemaNode, resolved
from streamhouse.schemas.json_schema.validator import Patterns

MAX_STEPS: Final = 2_000_000
"""Alternatives can match each other in more ways than can be tried."""


def largest_matching(fits: Sequence[Mapping[int, object]], news: int) -> dict[int, int]:
    """Old index -> new index for a largest set of pairs; `fits[old]` has the new ones that it fits into."""
    owners: dict[int, int] = {}
    steps = 0
    for old in range(len(fits)):
        came_from: dict[int, int] = {}
        waiting = [old]
        free: int | None = None
        while waiting and free is None:
            current = waiting.pop()
            for new in fits[current]:
                steps += 1
                if new in came_from:
                    continue
                came_from[new] = current
                if new not in owners:
                    free = new
                    break
                waiting.append(owners[new])
        if steps > MAX_STEPS:
            raise TooComplex
        _reassign(owners, came_from, free)
        if len(owners) == news:
            break
    return {old: new for new, old in owners.items()}


def _reassign(owners: dict[int, int], came_from: Mapping[int, int], free: int | None) -> None:
    """Move each match along the augmenting path."""
    own = {old: new for new, old in owners.items()}
    while free is not None:
        old = came_from[free]
        owners[free] = old
        free = own.get(old)


MAX_STEPS_IN_ALL: Final = 300_000
"""Pairs to compare, repeated ones included, plus the differences passed from pair to pair."""
MAX_DIFFERENCES: Final = 30
"""Differences kept of one pair: nodes that share parts can have more than there are atoms."""

Known = dict[tuple[int, int], list[Difference]]


def incompatibilities(newer: SchemaNode, older: SchemaNode) -> list[Incompatibility]:
    """Why a reader with the newer schema can't read what fits the older one."""
    try:
        breaking = [each for each in differences(older, newer) if each.breaks]
    except TooComplex:
        message = f"the schemas are too complex to be compared; steps={MAX_STEPS_IN_ALL}"
        return [Incompatibility(kind="SCHEMA_TOO_COMPLEX", path="#/", message=message)]
    return [
        Incompatibility(kind=kind, path=f"#/{path}", message=f"{kind.lower().replace('_', ' ')} at #/{path}")
        for kind, path in dict.fromkeys(breaking)
    ][:MAX_INCOMPATIBILITIES]


def differences(original: SchemaNode, update: SchemaNode) -> list[Difference]:
    """All differences, harmless ones too, with paths such as `properties/a/maxLength`."""
    bad: Known = {}
    matches = Patterns().matches
    steps_left = MAX_STEPS_IN_ALL
    while True:
        comparison = _Comparison(bad, steps_left, matches)
        whole: Pair = (original, update)
        result = compare_iteratively(whole, comparison.known, comparison.judge)
        steps_left, known, bad = comparison.steps_left, bad, comparison.bad_pairs()
        if not comparison.was_optimistic or bad.keys() == known.keys():
            return result


class _Comparison:
    """One walk over both schemas."""

    def __init__(self, bad: Known, steps_left: int, matches: Matches) -> None:
        self.was_optimistic = False
        self.steps_left = steps_left
        self._bad = bad
        self._judged: Known = {}
        self._open: set[tuple[int, int]] = set()
        self._matches = matches

    def bad_pairs(self) -> Known:
        return {pair: differences for pair, differences in self._judged.items() if breaks(differences)}

    def known(self, pair: Pair) -> list[Difference] | None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise TooComplex
        original, update = pair
        if original is None or update is None:
            if original is update:
                return []
            return [Difference("SCHEMA_ADDED" if original is None else "SCHEMA_REMOVED", "")]
        key = (id(resolved(original)), id(resolved(update)))
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
        original, update = resolved(original), resolved(update)
        key = (id(original), id(update))
        self._open.add(key)
        differences = limited((yield from self._compare(original, update)))
        self._open.discard(key)
        self.steps_left -= len(differences)
        self._judged[key] = differences
        return differences

    def _compare(self, original: SchemaNode, update: SchemaNode) -> Steps:
        fitting = yield from _one_side_combined(original, update)
        if fitting is not None:
            return fitting
        if type(original) is not type(update):
            return _other_kind(original, update)
        return _words(original, update) + (yield from self._same_kind(original, update))

    def _same_kind(self, original: SchemaNode, update: SchemaNode) -> Steps:
        match original, update:
            case schema_nodes.Combined(), schema_nodes.Combined():
                return (yield from _combined(original, update))
            case schema_nodes.Not(), schema_nodes.Not():
                # What must not match is the other way around.
                inner = yield (update.inner, original.inner)
                return [Difference("NOT_TYPE_EXTENDED" if breaks(inner) else "NOT_TYPE_NARROWED", "not")]
            case schema_nodes.Object(), schema_nodes.Object():
                return (yield from object_differences(self._matches, original, update))
            case schema_nodes.Array(), schema_nodes.Array():
                return (yield from array_differences(original, update))
        return scalar_differences(original, update)


def _one_side_combined(
    original: SchemaNode, update: SchemaNode
) -> Generator[Pair, list[Difference], list[Difference] | None]:
    """A plain node may fit into one of several, and one of several that must all hold may be enough."""
    pairs: list[Pair] = []
    kind = ""
    if isinstance(update, schema_nodes.Combined) and not isinstance(original, schema_nodes.Combined):
        if len(update.parts) == 1 or update.criterion != "allOf":
            kind, pairs = "SUM_TYPE_EXTENDED", [(original, part) for part in update.parts]
    elif (
        isinstance(original, schema_nodes.Combined)
        and not isinstance(update, schema_nodes.Combined)
        and (len(original.parts) == 1 or original.criterion == "allOf")
    ):
        kind, pairs = "PRODUCT_TYPE_NARROWED", [(part, update) for part in original.parts]
    for pair in pairs:
        differences = yield pair
        if not breaks(differences):
            return [*differences, Difference(kind, "")] if len(pairs) > 1 else differences
    return None


def _combined(original: schema_nodes.Combined, update: schema_nodes.Combined) -> Steps:
    change = _criterion_change(original, update)
    differences = [Difference(change, "")] if change else []
    if change == "COMBINED_TYPE_CHANGED":
        return differences
    olds = list({part.key: part for part in original.parts}.values())
    news = list({part.key: part for part in update.parts}.values())
    differences += _size_change(original, update, len(olds), len(news))
    fits: list[dict[int, list[Difference]]] = []
    for index, old in enumerate(olds):
        fits.append({})
        for new_index, new in enumerate(news):
            result = yield (old, new)
            if not breaks(result):
                fits[index][new_index] = at(f"{original.criterion}/{index}", result)
    matched = largest_matching(fits, len(news))
    for old_index, new_index in matched.items():
        differences += fits[old_index][new_index]
    if len(matched) < min(len(olds), len(news)):
        differences.append(Difference("COMBINED_TYPE_SUBSCHEMAS_CHANGED", ""))
    return differences


def limited(differences: list[Difference]) -> list[Difference]:
    """No more than the limit, and never without one that breaks if there is one."""
    if len(differences) <= MAX_DIFFERENCES:
        return differences
    return sorted(differences, key=lambda each: not each.breaks)[:MAX_DIFFERENCES]


def _other_kind(original: SchemaNode, update: SchemaNode) -> list[Difference]:
    if isinstance(original, schema_nodes.Never) or isinstance(update, schema_nodes.Anything):
        return []
    # Connect writes decimals as texts or as numbers, and calls both bytes.
    if original.connect_type == update.connect_type == "bytes":
        return []
    return [Difference("TYPE_CHANGED", "")]


def _words(original: SchemaNode, update: SchemaNode) -> list[Difference]:
    pairs: Sequence[tuple[str, object, object]] = (
        ("ID_CHANGED", original.identifier, update.identifier),
        ("TITLE_CHANGED", original.title, update.title),
        ("DESCRIPTION_CHANGED", original.description, update.description),
        ("DEFAULT_CHANGED", original.default, update.default),
    )
    return [Difference(kind, "") for kind, old, new in pairs if old != new]


def _criterion_change(original: schema_nodes.Combined, update: schema_nodes.Combined) -> str | None:
    if original.criterion == update.criterion:
        return None
    one_old, one_new = len(original.parts) == 1, len(update.parts) == 1
    extended = (
        update.criterion == "anyOf"
        or (one_old and (one_new or update.criterion == "oneOf"))
        or (one_new and original.criterion == "allOf")
    )
    return "COMBINED_TYPE_EXTENDED" if extended else "COMBINED_TYPE_CHANGED"


def _size_change(
    original: schema_nodes.Combined, update: schema_nodes.Combined, olds: int, news: int
) -> list[Difference]:
    if olds < news:
        return [Difference("PRODUCT_TYPE_EXTENDED" if update.criterion == "allOf" else "SUM_TYPE_EXTENDED", "")]
    if olds > news:
        return [Difference("PRODUCT_TYPE_NARROWED" if original.criterion == "allOf" else "SUM_TYPE_NARROWED", "")]
    return []
