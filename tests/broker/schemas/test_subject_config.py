"""Which rules hold for a subject, and what they demand."""

import pytest

from streamhouse.broker.schemas.subject_config import (
    check_registration,
    check_subject,
    describe_incompatibilities,
    effective_config,
    group_of,
    incompatibilities,
)
from streamhouse.errors import InvalidSubject, ModeRefused
from streamhouse.model.schema import Level, Mode, Rules, Subject
from streamhouse.schemas import parse_schema

ORDERS = Subject(".", "orders-value")
NOTHING = Rules()


def rules(own: Rules = NOTHING, context: Rules = NOTHING, everywhere: Rules = NOTHING) -> list[Rules]:
    return [own, context, everywhere]


def test_without_rules_versions_must_be_backward_compatible_and_may_be_written() -> None:
    result = effective_config(rules())
    assert (result.level, result.mode, result.normalize, result.group) == (Level.BACKWARD, Mode.READWRITE, False, None)


def test_the_narrowest_rule_holds_name_by_name() -> None:
    result = effective_config(
        rules(
            Rules(config='{"normalize": true}'),
            Rules(config='{"compatibilityLevel": "FULL", "normalize": false}', mode=Mode.READONLY),
            Rules(config='{"compatibilityGroup": "major"}', mode=Mode.IMPORT),
        )
    )
    assert (result.level, result.mode, result.normalize, result.group) == (Level.FULL, Mode.READONLY, True, "major")


def test_a_subject_may_be_written_where_its_context_may_not() -> None:
    assert effective_config(rules(Rules(mode=Mode.READWRITE), Rules(mode=Mode.READONLY))).mode is Mode.READWRITE


def test_an_override_beats_what_narrower_scopes_say() -> None:
    result = effective_config(rules(Rules(mode=Mode.READWRITE), everywhere=Rules(mode=Mode.READONLY_OVERRIDE)))
    assert result.mode is Mode.READONLY_OVERRIDE


@pytest.mark.parametrize(
    ("mode", "is_import", "allowed"),
    [
        (Mode.READWRITE, False, True),
        (Mode.READWRITE, True, False),
        (Mode.IMPORT, True, True),
        (Mode.IMPORT, False, False),
        (Mode.READONLY, False, False),
        (Mode.READONLY_OVERRIDE, True, False),
    ],
)
def test_modes_say_who_may_register(mode: Mode, is_import: bool, allowed: bool) -> None:
    if allowed:
        check_registration(ORDERS, mode, is_import=is_import)
    else:
        with pytest.raises(ModeRefused):
            check_registration(ORDERS, mode, is_import=is_import)


@pytest.mark.parametrize("name", ["", "__GLOBAL", "__EMPTY", "a\nb", "a\x00b", "x" * 1001])
def test_some_names_are_no_subjects(name: str) -> None:
    with pytest.raises(InvalidSubject):
        check_subject(Subject(".", name))


def test_the_global_context_has_no_subjects() -> None:
    with pytest.raises(InvalidSubject):
        check_subject(Subject(".__GLOBAL", "orders"))
    check_subject(Subject(".other", "io/example/orders.proto"))


ONE = parse_schema("AVRO", '{"type":"record","name":"A","fields":[{"name":"x","type":"int"}]}', {})
MORE = parse_schema(
    "AVRO", '{"type":"record","name":"A","fields":[{"name":"x","type":"int"},{"name":"y","type":"int"}]}', {}
)
OTHER = parse_schema("JSON", '{"type":"object"}', {})


@pytest.mark.parametrize(
    ("newer", "older", "level", "fits"),
    [
        (MORE, ONE, "BACKWARD", False),  # nothing to fill the new field with
        (MORE, ONE, "FORWARD", True),
        (MORE, ONE, "FULL", False),
        (MORE, ONE, "NONE", True),
        (ONE, MORE, "BACKWARD", True),
        (ONE, MORE, "FORWARD", False),
        (ONE, MORE, "FULL_TRANSITIVE", False),
        (ONE, ONE, "FULL", True),
        (OTHER, ONE, "BACKWARD", False),
        (OTHER, ONE, "NONE", True),
    ],
)
def test_a_level_says_who_must_read_whose_records(newer: object, older: object, level: str, fits: bool) -> None:
    assert (incompatibilities(newer, older, Level(level)) == []) is fits  # type: ignore[arg-type]


def test_reasons_name_the_kind_the_place_and_the_older_version() -> None:
    result = describe_incompatibilities(
        incompatibilities(MORE, ONE, Level.BACKWARD), version=3, older=ONE, level=Level.BACKWARD
    )
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in result[0]
    assert result[-3] == "{oldSchemaVersion: 3}"
    assert ONE.text in result[-2]
    assert result[-1] == "{compatibility: 'BACKWARD'}"
    assert describe_incompatibilities([], version=3, older=ONE, level=Level.BACKWARD) == []


@pytest.mark.parametrize(
    ("metadata", "group"),
    [(None, None), ("{}", None), ('{"properties": {"major": "2"}}', "2"), ('{"properties": {"major": 2}}', None)],
)
def test_versions_are_grouped_by_a_property(metadata: str | None, group: str | None) -> None:
    assert group_of(metadata, "major") == group
