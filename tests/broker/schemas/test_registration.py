"""Registering: ids and versions, compatibility, references, modes, and what happens when several do it at once."""

import asyncio
from dataclasses import replace

import pytest

from streamhouse.broker.schemas import Proposal, SchemaRegistry
from streamhouse.config import SchemaSettings
from streamhouse.errors import (
    IncompatibleSchema,
    InvalidSchema,
    InvalidSubject,
    ModeRefused,
    ReferenceExists,
    SchemaLimit,
    Unavailable,
    UnknownSchema,
    UnknownSubject,
    UnknownVersion,
)
from streamhouse.model.schema import Level, Mode, Reference, Subject
from tests.broker.conftest import MakeWorld
from tests.broker.schemas.support import CLICKS, ORDERS, avro, needing, numbers, record, registry
from tests.broker.support import World, settle

PLAIN = avro("x")
WIDER = avro("x", "y?")
ELSEWHERE = Subject(".elsewhere", "orders-value")
CONTEXT = Subject(".", "")


@pytest.fixture
def schemas(world: World) -> SchemaRegistry:
    return registry(world)


async def set_level(schemas: SchemaRegistry, level: str, scope: Subject = ORDERS) -> None:
    await schemas.set_config(scope, {"compatibilityLevel": level})


async def test_the_same_schema_again_is_the_same_version(schemas: SchemaRegistry) -> None:
    spaced = Proposal(text=record("x").replace(":", " : "))
    assert await numbers(schemas, ORDERS, PLAIN, WIDER, PLAIN, spaced) == [(1, 1), (2, 2), (1, 1), (1, 1)]


async def test_the_same_schema_has_one_id_in_all_subjects_of_a_context(schemas: SchemaRegistry) -> None:
    await numbers(schemas, ORDERS, PLAIN, WIDER)
    assert await numbers(schemas, CLICKS, WIDER) == [(1, 2)]
    assert await numbers(schemas, ELSEWHERE, WIDER) == [(1, 1)]


async def test_equal_texts_of_two_languages_are_two_schemas(schemas: SchemaRegistry) -> None:
    text = '{"type":"string"}'
    assert await numbers(schemas, ORDERS, Proposal(text=text)) == [(1, 1)]
    assert await numbers(schemas, CLICKS, Proposal(type="JSON", text=text)) == [(1, 2)]


async def test_what_is_normalized_is_the_same_however_it_was_written(schemas: SchemaRegistry) -> None:
    doubled = Proposal(text='{"type":"record","name":"A","fields":[{"name":"x","type":{"type":"int"}}]}')
    single = Proposal(text='{"type":"record","name":"A","fields":[{"name":"x","type":"int"}]}')
    first = await schemas.register(ORDERS, doubled, normalize=True)
    assert await schemas.register(ORDERS, single, normalize=True) == first
    result = await schemas.lookup(ORDERS, doubled, normalize=True)
    assert result == first


async def test_a_subject_can_always_be_normalized(schemas: SchemaRegistry) -> None:
    await schemas.set_config(ORDERS, {"normalize": True})
    doubled = Proposal(text='{"type":"record","name":"A","fields":[{"name":"x","type":{"type":"int"}}]}')
    single = Proposal(text='{"type":"record","name":"A","fields":[{"name":"x","type":"int"}]}')
    assert await numbers(schemas, ORDERS, doubled, single) == [(1, 1), (1, 1)]


async def test_an_incompatible_schema_is_refused_with_reasons_and_uses_no_id(schemas: SchemaRegistry) -> None:
    await schemas.register(ORDERS, PLAIN)
    with pytest.raises(IncompatibleSchema) as refused:
        await schemas.register(ORDERS, avro("x", "y"))
    assert any("READER_FIELD_MISSING_DEFAULT_VALUE" in reason for reason in refused.value.reasons)
    assert await numbers(schemas, ORDERS, WIDER) == [(2, 2)]


@pytest.mark.parametrize(
    ("level", "steps", "last_fits"),
    [
        ("BACKWARD", [("x",), ("x", "y?"), ("x", "y")], True),  # the last one can't read the first
        ("BACKWARD_TRANSITIVE", [("x",), ("x", "y?"), ("x", "y")], False),
        ("FORWARD", [("x", "y"), ("x", "y?"), ("x",)], True),  # the first one can't read the last
        ("FORWARD_TRANSITIVE", [("x", "y"), ("x", "y?"), ("x",)], False),
        ("FULL", [("x",), ("x", "y?"), ("x", "y?", "z?")], True),
        ("FULL", [("x",), ("x", "y?"), ("x", "y")], True),
        ("FULL_TRANSITIVE", [("x",), ("x", "y?"), ("x", "y")], False),
        ("FULL", [("x",), ("y",)], False),
        ("NONE", [("x",), ("y",)], True),
    ],
)
async def test_levels_compare_the_latest_or_all_versions(
    schemas: SchemaRegistry, level: str, steps: list[tuple[str, ...]], last_fits: bool
) -> None:
    await set_level(schemas, level)
    for fields in steps[:-1]:
        await schemas.register(ORDERS, avro(*fields))
    assert (await schemas.compatibility(ORDERS, avro(*steps[-1]), everything=True) == []) is last_fits
    if last_fits:
        await schemas.register(ORDERS, avro(*steps[-1]))
    else:
        with pytest.raises(IncompatibleSchema):
            await schemas.register(ORDERS, avro(*steps[-1]))


async def test_deleted_versions_are_not_compared(schemas: SchemaRegistry) -> None:
    await schemas.register(ORDERS, PLAIN)
    await schemas.delete_version(ORDERS, 1)
    assert await numbers(schemas, ORDERS, avro("other")) == [(2, 2)]


async def test_versions_of_another_group_are_not_compared(schemas: SchemaRegistry) -> None:
    await schemas.set_config(ORDERS, {"compatibilityGroup": "major"})
    one, two = '{"properties": {"major": "1"}}', '{"properties": {"major": "2"}}'
    await numbers(schemas, ORDERS, avro("x", metadata=one), avro("y", metadata=two))
    with pytest.raises(IncompatibleSchema):
        await schemas.register(ORDERS, avro("z", metadata=one))
    assert await numbers(schemas, ORDERS, avro("x", "z?", metadata=one)) == [(3, 3)]


async def test_one_version_can_be_compared_alone(schemas: SchemaRegistry) -> None:
    await numbers(schemas, ORDERS, PLAIN, WIDER)
    request = avro("x", "y")
    assert await schemas.compatibility(ORDERS, request, version=2) == []
    assert await schemas.compatibility(ORDERS, request) == []
    assert await schemas.compatibility(ORDERS, request, version=1) != []
    with pytest.raises(UnknownVersion):
        await schemas.compatibility(ORDERS, request, version=3)
    assert await schemas.compatibility(CLICKS, request, everything=True) == []


async def test_bad_texts_are_refused(schemas: SchemaRegistry) -> None:
    for proposal in (
        Proposal(text="{"),
        Proposal(text=""),
        Proposal(text="  "),
        Proposal(text='"nothing"'),
        Proposal(type="XML", text="<a/>"),
    ):
        with pytest.raises(InvalidSchema):
            await schemas.register(ORDERS, proposal)
    with pytest.raises(InvalidSubject):
        await schemas.register(CONTEXT, PLAIN)
    assert await schemas.subjects() == []


async def test_limits_have_names(make_world: MakeWorld) -> None:
    settings = SchemaSettings(max_schema_bytes=200, max_references=1, max_subjects=2, max_versions=2)
    schemas = registry(await make_world(schemas=settings))
    with pytest.raises(InvalidSchema, match=r"schemas\.max_schema_bytes"):
        await schemas.register(ORDERS, avro(*(f"field{n}?" for n in range(10))))
    await set_level(schemas, "NONE", CONTEXT)
    await numbers(schemas, ORDERS, avro("a"), avro("b"))
    with pytest.raises(SchemaLimit, match=r"schemas\.max_versions"):
        await schemas.register(ORDERS, avro("c"))
    await schemas.register(CLICKS, avro("a"))
    with pytest.raises(SchemaLimit, match=r"schemas\.max_subjects"):
        await schemas.register(Subject(".", "more"), avro("a"))
    with pytest.raises(SchemaLimit, match=r"schemas\.max_references"):
        await schemas.register(CLICKS, needing(Reference("a", "orders-value", 1), Reference("b", "orders-value", 2)))


async def test_a_large_schema_is_understood_beside_the_loop(make_world: MakeWorld) -> None:
    schemas = registry(await make_world(schemas=SchemaSettings(inline_bytes=10)))
    assert await numbers(schemas, ORDERS, PLAIN, WIDER) == [(1, 1), (2, 2)]


# --- what isn't said


async def test_metadata_and_rules_are_inherited_and_make_another_schema(schemas: SchemaRegistry) -> None:
    tagged = replace(PLAIN, metadata='{"properties": {"owner": "a"}}', rule_set='{"domainRules": []}')
    assert await numbers(schemas, ORDERS, PLAIN, tagged, PLAIN) == [(1, 1), (2, 2), (2, 2)]
    result = await schemas.register(ORDERS, WIDER)
    assert (result.schema.metadata, result.schema.rule_set) == (tagged.metadata, tagged.rule_set)
    assert (await schemas.lookup(ORDERS, WIDER)).version == 3


async def test_without_a_text_the_latest_version_is_meant(schemas: SchemaRegistry) -> None:
    await schemas.register(ORDERS, PLAIN)
    result = await schemas.register(ORDERS, Proposal(metadata='{"properties": {"a": "b"}}'))
    assert (result.version, result.schema.text) == (2, record("x"))


# --- references


async def test_references_are_found_through_references(schemas: SchemaRegistry) -> None:
    await schemas.register(ORDERS, Proposal(text=record("x")))
    middle = Subject(".", "middle")
    await schemas.register(
        middle, needing(Reference("Order", "orders-value", 1), text=record(name="Middle", order="Order"))
    )
    result = await schemas.register(
        CLICKS, needing(Reference("Middle", "middle", 1), text=record(name="Top", middle="Middle"))
    )
    parsed = await schemas.schema(result.schema_id)
    value = {"middle": {"order": {"x": 7}}}
    assert parsed.decode(parsed.encode(value)) == value
    assert [each.schema_id for each in await schemas.referenced_by(middle, 1)] == [result.schema_id]


async def test_a_reference_to_the_latest_is_to_the_one_that_is_latest_now(schemas: SchemaRegistry) -> None:
    await numbers(schemas, ORDERS, PLAIN, WIDER)
    result = await schemas.register(CLICKS, needing(Reference("Order", "orders-value", -1)))
    assert result.schema.references == (Reference("Order", "orders-value", 2),)


async def test_other_references_make_another_schema(schemas: SchemaRegistry) -> None:
    await numbers(schemas, ORDERS, PLAIN, WIDER)
    await set_level(schemas, "NONE", CLICKS)
    first = await schemas.register(CLICKS, needing(Reference("Order", "orders-value", 1)))
    second = await schemas.register(CLICKS, needing(Reference("Order", "orders-value", 2)))
    assert first.schema_id != second.schema_id


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        (Reference("Order", "orders-value", 9), "no such version"),
        (Reference("Order", "nobody", 1), "no such version"),
        (Reference("Order", "nobody", -1), "no version"),
        (Reference("Order", "orders-value", 1), "deleted"),
    ],
)
async def test_a_missing_reference_is_named(schemas: SchemaRegistry, reference: Reference, why: str) -> None:
    await numbers(schemas, ORDERS, PLAIN, WIDER)
    await schemas.delete_version(ORDERS, 1)
    with pytest.raises(InvalidSchema, match=why) as refused:
        await schemas.register(CLICKS, needing(reference))
    assert refused.value.path == "references/Order"


async def test_what_is_referred_to_stays(schemas: SchemaRegistry) -> None:
    await schemas.register(ORDERS, PLAIN)
    await schemas.register(CLICKS, needing(Reference("Order", "orders-value", 1)))
    with pytest.raises(ReferenceExists):
        await schemas.delete_version(ORDERS, 1)
    with pytest.raises(ReferenceExists):
        await schemas.delete_subject(ORDERS)
    await schemas.delete_subject(CLICKS)
    assert await schemas.delete_version(ORDERS, 1) == 1
    assert (await schemas.schema(2)).type == "AVRO"  # still readable, with what it needs


async def test_references_stay_in_their_context_unless_they_name_another(schemas: SchemaRegistry) -> None:
    await schemas.register(ELSEWHERE, PLAIN)
    inside = Subject(".elsewhere", "user")
    await schemas.register(inside, needing(Reference("Order", "orders-value", 1)))
    with pytest.raises(InvalidSchema):
        await schemas.register(CLICKS, needing(Reference("Order", "orders-value", 1)))
    result = await schemas.register(CLICKS, needing(Reference("Order", ":.elsewhere:orders-value", 1)))
    assert (await schemas.schema(result.schema_id)).type == "AVRO"


async def test_a_schema_needed_twice_is_read_once(schemas: SchemaRegistry, world: World) -> None:
    await schemas.register(ORDERS, PLAIN)
    left, right = Subject(".", "left"), Subject(".", "right")
    reference = Reference("Order", "orders-value", 1)
    await schemas.register(left, needing(reference, text=record(name="Left", order="Order")))
    await schemas.register(right, needing(reference, text=record(name="Right", order="Order")))
    both = needing(
        Reference("Left", "left", 1), Reference("Right", "right", 1), text=record(name="Both", l="Left", r="Right")
    )
    before = world.metadata.count("schema_versions")
    result = await schemas.register(CLICKS, both)
    assert world.metadata.count("schema_versions") == before + 2  # two levels
    parsed = await schemas.schema(result.schema_id)
    value = {"l": {"order": {"x": 1}}, "r": {"order": {"x": 2}}}
    assert parsed.decode(parsed.encode(value)) == value


# --- looking up, deleting


async def test_a_lookup_finds_what_is_there(schemas: SchemaRegistry) -> None:
    with pytest.raises(UnknownSubject):
        await schemas.lookup(ORDERS, PLAIN)
    await numbers(schemas, ORDERS, PLAIN, WIDER)
    assert (await schemas.lookup(ORDERS, PLAIN)).version == 1
    with pytest.raises(UnknownSchema):
        await schemas.lookup(ORDERS, avro("z"))
    await schemas.delete_version(ORDERS, 1)
    with pytest.raises(UnknownSchema):
        await schemas.lookup(ORDERS, PLAIN)
    assert (await schemas.lookup(ORDERS, PLAIN, with_deleted=True)).version == 1


async def test_a_schema_that_comes_back_has_its_id_and_a_new_version(schemas: SchemaRegistry) -> None:
    await numbers(schemas, ORDERS, PLAIN, WIDER)
    await schemas.delete_version(ORDERS, 2)
    assert await numbers(schemas, ORDERS, WIDER) == [(3, 2)]
    assert [each.version for each in await schemas.versions(ORDERS)] == [1, 3]


async def test_an_alias_stands_in_for_a_subject_without_versions(schemas: SchemaRegistry) -> None:
    await schemas.register(ORDERS, PLAIN)
    await schemas.set_config(CLICKS, {"alias": "orders-value"})
    assert (await schemas.version(CLICKS, None)).subject == ORDERS
    assert (await schemas.lookup(CLICKS, PLAIN)).subject == ORDERS


# --- modes


async def test_a_read_only_subject_is_not_changed(schemas: SchemaRegistry) -> None:
    await schemas.register(ORDERS, PLAIN)
    await schemas.set_mode(CONTEXT, Mode.READONLY)
    with pytest.raises(ModeRefused):
        await schemas.register(ORDERS, WIDER)
    with pytest.raises(ModeRefused):
        await schemas.delete_version(ORDERS, 1)
    with pytest.raises(ModeRefused):
        await schemas.delete_subject(ORDERS)
    assert (await schemas.lookup(ORDERS, PLAIN)).version == 1
    await schemas.set_mode(ORDERS, Mode.READWRITE)
    assert await numbers(schemas, ORDERS, WIDER) == [(2, 2)]


async def test_imports_keep_their_numbers_and_are_not_compared(schemas: SchemaRegistry) -> None:
    given = replace(PLAIN, schema_id=40, version=7)
    with pytest.raises(ModeRefused):
        await schemas.register(ORDERS, given)
    await schemas.set_mode(ORDERS, Mode.IMPORT)
    with pytest.raises(ModeRefused):
        await schemas.register(ORDERS, PLAIN)
    await schemas.register(ORDERS, given)
    await schemas.register(ORDERS, replace(avro("other"), schema_id=41, version=9))
    await schemas.register(ORDERS, given)
    assert [(each.version, each.schema_id) for each in await schemas.versions(ORDERS)] == [(7, 40), (9, 41)]
    with pytest.raises(ModeRefused):
        await schemas.register(ORDERS, replace(avro("third"), schema_id=41, version=10))
    await schemas.set_mode(ORDERS, Mode.READWRITE)
    await set_level(schemas, "NONE")
    assert await numbers(schemas, ORDERS, avro("fourth")) == [(10, 42)]


async def test_a_version_that_is_given_must_be_the_next(schemas: SchemaRegistry) -> None:
    await schemas.register(ORDERS, replace(PLAIN, version=1))
    with pytest.raises(InvalidSchema, match="next"):
        await schemas.register(ORDERS, replace(WIDER, version=5))
    assert await numbers(schemas, ORDERS, replace(WIDER, version=2)) == [(2, 2)]


# --- several at once


async def test_two_agents_that_register_the_same_schema_get_the_same_id(world: World) -> None:
    agents = [registry(world) for _ in range(2)]
    result = await asyncio.gather(*(each.register(ORDERS, PLAIN) for each in agents for _ in range(8)))
    assert {(each.version, each.schema_id) for each in result} == {(1, 1)}


async def test_of_two_that_decide_at_once_the_second_decides_again(world: World) -> None:
    first, second = registry(world), registry(world)
    resume = world.metadata.hold("add_version")
    slow = asyncio.create_task(second.register(ORDERS, PLAIN))
    await settle()
    world.metadata._held.clear()
    await first.register(ORDERS, avro("x", "y?"))
    resume.set()
    result = await slow
    assert (result.version, result.schema_id) == (2, 2)
    assert world.metadata.count("subject_state") == 3


async def test_a_decision_that_no_longer_holds_is_not_committed(world: World) -> None:
    first, second = registry(world), registry(world)
    await first.register(ORDERS, PLAIN)
    resume = world.metadata.hold("add_version")
    slow = asyncio.create_task(second.register(ORDERS, avro("x", "y?")))
    await settle()
    world.metadata._held.clear()
    await first.register(ORDERS, Proposal(text=record("x", y="string").replace('"string"}', '"string","default":""}')))
    resume.set()
    with pytest.raises(IncompatibleSchema):
        await slow


async def test_many_different_schemas_at_once_get_dense_numbers(world: World) -> None:
    schemas = registry(world)
    await set_level(schemas, "NONE")
    result = await asyncio.gather(*(schemas.register(ORDERS, avro(f"f{n}")) for n in range(10)))
    assert sorted((each.version, each.schema_id) for each in result) == [(n, n) for n in range(1, 11)]


async def test_a_registration_whose_answer_got_lost_can_be_repeated(world: World) -> None:
    schemas = registry(world)
    world.metadata.lose_answer("add_version")
    with pytest.raises(Unavailable):
        await schemas.register(ORDERS, PLAIN)
    assert await numbers(schemas, ORDERS, PLAIN) == [(1, 1)]


def test_every_level_has_a_direction_or_none() -> None:
    assert {level for level in Level if not (level.reads_older or level.is_read_by_older)} == {Level.NONE}
