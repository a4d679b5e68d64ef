"""What changes between JSON schemas, and which changes break readers."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamhouse.schemas.json_schema.compatibility import differences, largest_matching
from tests.schemas.test_json_schema_texts import NEW, OLD, fits, parsed
from tests.support.depth import examples

INT, STR, NUM = {"type": "integer"}, {"type": "string"}, {"type": "number"}


def changes(older: object, newer: object, *, draft: str | None = None) -> set[str]:
    """Every difference as `KIND path`, those that break a reader with a `!`."""
    if draft is not None:
        older, newer = ({"$schema": draft, **each} for each in (older, newer))  # type: ignore[dict-item]
    old, new = parsed(older), parsed(newer)
    actual = differences(old.node, new.node)
    result = {(each.kind, f"#/{each.path}") for each in actual if each.breaks}
    assert {(each.kind, each.path) for each in new.incompatibilities(old)} == result
    return {f"{'!' if each.breaks else ''}{each.kind} #/{each.path}" for each in actual}


def closed(required: tuple[str, ...] = (), **properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def opened(required: tuple[str, ...] = (), **properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(required)}


def rest(kind: object, **properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "additionalProperties": kind}


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [
        # words that judge nothing
        (
            {"title": "a", "default": 1},
            {"description": "b"},
            {"TITLE_CHANGED #/", "DESCRIPTION_CHANGED #/", "DEFAULT_CHANGED #/"},
        ),
        # types
        (STR, INT, {"!TYPE_CHANGED #/"}),
        (INT, NUM, {"TYPE_EXTENDED #/"}),
        (NUM, INT, {"!TYPE_NARROWED #/"}),
        (STR, {"type": ["string", "null"]}, {"SUM_TYPE_EXTENDED #/"}),
        ({"type": ["string", "null"]}, {"type": ["string", "null", "integer"]}, {"SUM_TYPE_EXTENDED #/"}),
        ({"type": ["string", "null"]}, STR, {"!TYPE_CHANGED #/"}),
        ({"type": ["string", "null"]}, {"type": ["string"]}, {"!SUM_TYPE_NARROWED #/"}),
        (STR, {}, set()),
        (STR, True, set()),
        (False, STR, set()),
        ({}, STR, {"!TYPE_CHANGED #/"}),
        ({}, {"properties": {}}, {"!TYPE_CHANGED #/"}),
        ({"type": "string", "connect.type": "bytes"}, {"type": "number", "connect.type": "bytes"}, set()),
        # texts and numbers
        ({**STR, "maxLength": 3}, {**STR, "maxLength": 4}, {"MAX_LENGTH_INCREASED #/maxLength"}),
        ({**STR, "maxLength": 3}, {**STR, "maxLength": 2}, {"!MAX_LENGTH_DECREASED #/maxLength"}),
        (STR, {**STR, "minLength": 0}, {"!MIN_LENGTH_ADDED #/minLength"}),
        ({**STR, "pattern": "a"}, STR, {"PATTERN_REMOVED #/pattern"}),
        ({**STR, "pattern": "a"}, {**STR, "pattern": "b"}, {"!PATTERN_CHANGED #/pattern"}),
        ({**INT, "minimum": 1}, {**INT, "minimum": 0.5}, {"MINIMUM_DECREASED #/minimum"}),
        ({**INT, "maximum": 1}, {**INT, "maximum": 1.0}, set()),
        (
            {**INT, "exclusiveMaximum": 5},
            {**INT, "exclusiveMaximum": 4},
            {"!EXCLUSIVE_MAXIMUM_DECREASED #/exclusiveMaximum"},
        ),
        ({**NUM, "multipleOf": 0.3}, {**NUM, "multipleOf": 0.1}, {"MULTIPLE_OF_REDUCED #/multipleOf"}),
        ({**NUM, "multipleOf": 2}, {**NUM, "multipleOf": 4}, {"!MULTIPLE_OF_EXPANDED #/multipleOf"}),
        ({**NUM, "multipleOf": 2}, {**NUM, "multipleOf": 3}, {"!MULTIPLE_OF_CHANGED #/multipleOf"}),
        ({**NUM, "multipleOf": 1e300}, {**NUM, "multipleOf": 0.7}, {"!MULTIPLE_OF_CHANGED #/multipleOf"}),
        # enums and constants
        ({"enum": [1, "a"]}, {"enum": ["a", 1.0, None]}, {"ENUM_ARRAY_EXTENDED #/enum"}),
        ({"enum": [1, 2]}, {"enum": [1]}, {"!ENUM_ARRAY_NARROWED #/enum"}),
        ({"enum": [1]}, {"enum": [True]}, {"!ENUM_ARRAY_CHANGED #/enum"}),
        ({"const": {"a": [1]}}, {"const": {"a": [1.0]}}, set()),
        ({"const": 0}, {"const": False}, {"!ENUM_ARRAY_CHANGED #/const"}),
        # objects: open, closed, partly open
        (opened(a=INT), opened(), {"PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/a"}),
        (closed(a=INT), closed(), {"!PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a"}),
        (closed(a=False), closed(), {"PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a"}),
        (opened(), opened(a=INT), {"!OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"}),
        (opened(), opened(a={}), {"PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"}),
        (opened(), opened(("a",), a=INT), {"!REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"}),
        (closed(), closed(a=INT), {"OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a"}),
        (closed(), closed(("a",), a=INT), {"!REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a"}),
        (
            closed(),
            closed(("a",), a={**INT, "default": 1}),
            {"REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a"},
        ),
        (
            rest(INT),
            rest(INT, a=NUM),
            {
                "TYPE_EXTENDED #/properties/a",
                "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
                "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
            },
        ),
        (
            rest(INT),
            rest(INT, a=STR),
            {
                "!TYPE_CHANGED #/properties/a",
                "!PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
                "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
            },
        ),
        (rest(INT, a=INT), rest(INT), {"PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a"}),
        (
            {**closed(ab=INT)},
            {**closed(), "patternProperties": {"b$": INT}},
            {"PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/ab"},
        ),
        (closed(a=INT), closed(("a",), a=INT), {"!REQUIRED_ATTRIBUTE_ADDED #/required/a"}),
        (closed(("a",), a=INT), closed(a=INT), {"REQUIRED_ATTRIBUTE_REMOVED #/required/a"}),
        (opened(), closed(), {"!ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"}),
        (closed(), opened(), {"ADDITIONAL_PROPERTIES_ADDED #/additionalProperties"}),
        (opened(), rest(INT), {"!ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties"}),
        (rest(INT), rest(STR), {"!TYPE_CHANGED #/additionalProperties"}),
        ({"minProperties": 1}, {"minProperties": 2}, {"!MIN_PROPERTIES_INCREASED #/minProperties"}),
        (
            {"dependencies": {"a": ["b"], "c": ["d"]}},
            {"dependencies": {"a": ["b", "e"], "f": INT}},
            {
                "!DEPENDENCY_ARRAY_EXTENDED #/dependencies/a",
                "DEPENDENCY_ARRAY_REMOVED #/dependencies/c",
                "!DEPENDENCY_SCHEMA_ADDED #/dependencies/f",
            },
        ),
        # lists
        ({"items": INT}, {"items": STR}, {"!TYPE_CHANGED #/items"}),
        ({"items": INT, "minItems": 1}, {"minItems": 1}, {"SCHEMA_REMOVED #/items"}),
        ({"minItems": 1}, {"minItems": 1, "items": INT}, {"!SCHEMA_ADDED #/items"}),
        ({"items": [INT]}, {"items": [INT, INT]}, {"!ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/items/1"}),
        ({"items": [INT, INT]}, {"items": [INT]}, {"ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL #/items/1"}),
        (
            {"items": [INT], "additionalItems": False},
            {"items": [INT, INT], "additionalItems": False},
            {"ITEM_ADDED_TO_CLOSED_CONTENT_MODEL #/items/1"},
        ),
        (
            {"items": [INT, INT], "additionalItems": False},
            {"items": [INT], "additionalItems": False},
            {"!ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1"},
        ),
        (
            {"items": [INT], "additionalItems": STR},
            {"items": [INT, STR], "additionalItems": STR},
            {"ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1"},
        ),
        ({"items": INT, "uniqueItems": True}, {"items": INT}, {"UNIQUE_ITEMS_REMOVED #/uniqueItems"}),
        ({"maxItems": 3}, {"maxItems": 2}, {"!MAX_ITEMS_DECREASED #/maxItems"}),
        # combinations
        ({"anyOf": [INT, STR]}, {"anyOf": [STR, INT, NUM]}, {"SUM_TYPE_EXTENDED #/"}),
        ({"oneOf": [INT, STR]}, {"oneOf": [STR]}, {"!SUM_TYPE_NARROWED #/"}),
        ({"oneOf": [INT, STR]}, {"oneOf": [STR, {"type": "boolean"}]}, {"!COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"}),
        ({"oneOf": [INT, STR]}, {"anyOf": [INT, STR]}, {"COMBINED_TYPE_EXTENDED #/"}),
        ({"anyOf": [INT, STR]}, {"oneOf": [INT, STR]}, {"!COMBINED_TYPE_CHANGED #/"}),
        ({"allOf": [INT, {"enum": [1]}]}, {"allOf": [INT]}, {"PRODUCT_TYPE_NARROWED #/"}),
        ({"allOf": [INT]}, {"allOf": [INT, {"enum": [1]}]}, {"!PRODUCT_TYPE_EXTENDED #/"}),
        ({"allOf": [INT, {"enum": [1]}]}, INT, {"PRODUCT_TYPE_NARROWED #/"}),
        (INT, {"oneOf": [INT]}, set()),
        ({"not": INT}, {"not": NUM}, {"!NOT_TYPE_EXTENDED #/not"}),
        ({"not": NUM}, {"not": INT}, {"NOT_TYPE_NARROWED #/not"}),
        ({**STR, "enum": ["a"]}, {**STR, "enum": ["a", "b"]}, {"ENUM_ARRAY_EXTENDED #/allOf/0/enum"}),
    ],
)
def test_changes(older: object, newer: object, expected: set[str]) -> None:
    assert changes(older, newer) == expected


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [
        ({}, {"properties": {}}, set()),
        ({"prefixItems": [INT]}, {"prefixItems": [INT, INT]}, {"!ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/items/1"}),
        (
            {"prefixItems": [INT], "items": STR},
            {"prefixItems": [INT, STR], "items": STR},
            {"ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1"},
        ),
        ({"items": INT}, {"items": STR}, {"!TYPE_CHANGED #/items"}),
        ({"contains": INT}, {"contains": INT, "minContains": 2}, {"!MIN_CONTAINS_INCREASED #/minContains"}),
        ({"type": "array"}, {"type": "array", "contains": INT}, {"!MIN_CONTAINS_ADDED #/minContains"}),
        (
            {"type": "object", "unevaluatedProperties": False},
            {"type": "object"},
            {"UNEVALUATED_PROPERTIES_ADDED #/unevaluatedProperties"},
        ),
        (
            {"type": "object"},
            {"type": "object", "unevaluatedProperties": STR},
            {"!UNEVALUATED_PROPERTIES_NARROWED #/unevaluatedProperties"},
        ),
        (
            {"type": "array", "unevaluatedItems": True},
            {"type": "array", "unevaluatedItems": False},
            {"!UNEVALUATED_ITEMS_REMOVED #/unevaluatedItems"},
        ),
        (
            {"type": "object", "unevaluatedProperties": INT},
            {"type": "object", "unevaluatedProperties": NUM},
            {"TYPE_EXTENDED #/unevaluatedProperties"},
        ),
        (
            {"dependentRequired": {"a": ["b"]}},
            {"dependentRequired": {"a": []}},
            {"DEPENDENCY_ARRAY_NARROWED #/dependencies/a"},
        ),
        (
            {"$defs": {"a": INT}, "$ref": "#/$defs/a", "title": "x"},
            {"$defs": {"a": STR}, "$ref": "#/$defs/a", "title": "x"},
            {"!TYPE_CHANGED #/"},
        ),
    ],
)
def test_changes_in_words_of_2020_12(older: object, newer: object, expected: set[str]) -> None:
    assert changes(older, newer, draft=NEW[1]) == expected


def test_draft_4_makes_limits_exclusive_with_a_word() -> None:
    older = {**INT, "maximum": 5}
    assert changes(older, {**older, "exclusiveMaximum": True}, draft=OLD[0]) == {
        "MAXIMUM_REMOVED #/maximum",
        "!EXCLUSIVE_MAXIMUM_ADDED #/exclusiveMaximum",
    }


class TestReferences:
    def test_are_looked_through(self) -> None:
        here = {"properties": {"a": {"$ref": "#/definitions/x"}}, "definitions": {"x": INT}}
        assert changes(here, {"properties": {"a": NUM}}) == {"TYPE_EXTENDED #/properties/a"}

    def test_of_two_versions_are_compared_by_what_they_mean(self) -> None:
        schema = {"type": "array", "items": {"$ref": "item.json"}}
        older, newer = parsed(schema, **{"item.json": STR}), parsed(schema, **{"item.json": INT})
        assert [each.path for each in newer.incompatibilities(older)] == ["#/items"]

    def test_in_circles_come_to_an_end(self) -> None:
        def tree(leaf: object) -> object:
            return {
                "type": "object",
                "properties": {"leaf": leaf, "children": {"type": "array", "items": {"$ref": "#"}}},
            }

        assert changes(tree(INT), tree(NUM)) == {"TYPE_EXTENDED #/properties/leaf"}
        assert changes(tree(NUM), tree(INT)) == {
            "!TYPE_NARROWED #/properties/leaf",
            "!TYPE_NARROWED #/properties/children/items/properties/leaf",
        }

    def test_in_circles_never_hide_a_bad_pair_behind_a_good_guess(self) -> None:
        """A pair met inside itself is guessed good; what was judged by that guess must be judged again."""

        def schema(first: str, second: str) -> object:
            def node(kind: str, then: str) -> object:
                return {"type": "object", "properties": {"id": {"type": kind}, "then": {"oneOf": [{"$ref": then}]}}}

            nodes = {
                "a": node(first, "#/definitions/c"),
                "b": node(second, "#/definitions/c"),
                "c": node("integer", "#/definitions/a"),
            }
            root = {"oneOf": [{"$ref": "#/definitions/a"}, {"$ref": "#/definitions/b"}]}
            return {"type": "object", "properties": {"root": root}, "definitions": nodes}

        older, newer = parsed(schema("integer", "boolean")), parsed(schema("boolean", "number"))
        assert newer.incompatibilities(older) != []

    def test_of_many_kinds_that_hold_each_other_are_compared_however_deep_it_goes(self) -> None:
        names = [f"T{i}" for i in range(8)]

        def family(kind: object) -> object:
            union = {"oneOf": [{"$ref": f"#/definitions/{name}"} for name in names]}
            kinds = {n: {"type": "object", "properties": {"id": STR, "one": union, "two": union}} for n in names}
            kinds["T0"]["properties"]["id"] = kind  # type: ignore[index]
            return {"type": "object", "properties": {"root": union}, "definitions": kinds}

        older = parsed(family(STR))
        assert parsed({**family(STR), "title": "new"}).incompatibilities(older) == []  # type: ignore[dict-item]
        assert parsed(family(INT)).incompatibilities(older) != []


class TestHostileSchemas:
    def test_shared_parts_do_not_multiply_the_differences(self) -> None:
        def doubling(leaf: object) -> object:
            def step(i: int) -> object:
                then = {"$ref": f"#/definitions/d{i + 1}"}
                return {"properties": {"a": then, "b": then}}

            return {"definitions": {**{f"d{i}": step(i) for i in range(200)}, "d200": leaf}, **step(-1)}  # type: ignore[dict-item]

        result = parsed(doubling(INT)).incompatibilities(parsed(doubling(STR)))
        assert 1 <= len(result) <= 100
        assert all(len(each.path) < 1_000 for each in result)

    def test_thousands_of_alternatives_get_a_verdict_in_bounded_time(self) -> None:
        def many(prefix: str) -> object:
            return {"oneOf": [closed((f"p{i}",), **{f"p{i}": {"const": f"{prefix}{i}"}}) for i in range(1_500)]}

        result = parsed(many("a")).incompatibilities(parsed(many("b")))
        assert [each.kind for each in result] == ["SCHEMA_TOO_COMPLEX"]

    def test_patterns_of_properties_run_on_the_limited_engine(self) -> None:
        newer = {**closed(), "patternProperties": {"^(?=(a+)+b)(a+)+c$": STR, r"^(a+)+\1b$": STR}}
        older = {**closed(), "properties": {"a" * 1_000: STR}}
        assert any("PROPERTY_REMOVED" in each for each in changes(older, newer))


def test_thousands_of_names_are_not_held_against_thousands_of_patterns() -> None:
    newer = {**closed(), "patternProperties": {f"^p{i}$": STR for i in range(1_000)}}
    older = {**closed(), "properties": {f"q{i}": STR for i in range(1_000)}}
    assert [each.kind for each in parsed(newer).incompatibilities(parsed(older))] == ["SCHEMA_TOO_COMPLEX"]


@given(st.integers(1, 3), st.integers(1, 3), st.data())
def test_a_matching_is_as_large_as_trying_everything_finds(olds: int, news: int, data: st.DataObject) -> None:
    edges = st.sets(st.integers(0, news - 1)).map(lambda chosen: dict.fromkeys(chosen))
    fits_into = data.draw(st.lists(edges, min_size=olds, max_size=olds))
    result = largest_matching(fits_into, news)
    assert len(set(result.values())) == len(result)
    assert all(new in fits_into[old] for old, new in result.items())
    free = [*range(news), *([None] * olds)]
    orders = permutations(free, olds)
    best = max(sum(new in fits_into[old] for old, new in enumerate(order)) for order in orders)
    assert len(result) == best


KINDS = st.sampled_from(
    [INT, NUM, STR, {"type": "boolean"}, {"enum": ["a", "b"]}, {"enum": ["a"]}, {"const": "a"}, True]
)


@st.composite
def json_schemas(draw: st.DrawFn, depth: int = 2) -> object:
    if depth == 0 or draw(st.booleans()):
        return draw(KINDS)
    inner = json_schemas(depth - 1)
    match draw(st.sampled_from(["object", "array", "anyOf", "type"])):
        case "object":
            properties = draw(st.dictionaries(st.sampled_from("abc"), inner, max_size=3))
            # Confluent's rules don't look at required names that have no property of their own.
            required = [name for name in properties if draw(st.booleans())]
            additional = draw(st.one_of(st.just(False), st.just(True), inner))
            return {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": additional,
            }
        case "array":
            return {"type": "array", "items": draw(inner)}
        case "anyOf":
            return {"anyOf": draw(st.lists(inner, min_size=1, max_size=3))}
    return {"type": draw(st.lists(st.sampled_from(["string", "integer", "null"]), min_size=1, unique=True))}


VALUES = st.recursive(
    st.sampled_from([None, True, 1, 1.5, "a", "b", "c"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=examples(150), deadline=None)
@given(json_schemas(), json_schemas(), st.lists(VALUES, min_size=5, max_size=10))
def test_what_fits_the_older_schema_fits_a_newer_one_that_may_follow_it(
    older: object, newer: object, values: list[object]
) -> None:
    old, new = parsed(older), parsed(newer)
    if new.incompatibilities(old) == []:
        assert [value for value in values if fits(old, value) and not fits(new, value)] == []


@given(json_schemas())
def test_every_schema_may_follow_itself(schema: object) -> None:
    result = differences(parsed(schema).node, parsed(schema).node)
    assert not any(each.breaks for each in result)
