"""Topics that ask for schema ids refuse records without them, and name the records to blame."""

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.errors import InvalidConfig, InvalidRecord, Unavailable
from streamhouse.format.records import Record, build_batch
from streamhouse.model.topic import parse_topic_config
from tests.broker.schemas.support import CLICKS, ORDERS, avro
from tests.broker.support import NOW_MS, World, batch, produce, values_of
from tests.broker.support import ORDERS as PARTITION

VALUES = "streamhouse.schema.validation"
KEYS = "streamhouse.schema.validation.key"
BY_ID = {"id": "schema_of_id", "subject": "versions_of_schema"}


def framed(schema_id: int, payload: bytes = b"\x02") -> bytes:
    return b"\0" + schema_id.to_bytes(4) + payload


def keyed(key: bytes | None, value: bytes | None) -> memoryview:
    return memoryview(build_batch([Record(key=key, value=value, timestamp_ms=NOW_MS)]))


async def start(world: World, **settings: str) -> Broker:
    broker = await world.start_with(PARTITION, **settings)
    await broker.schemas.register(ORDERS, avro("x"))
    await broker.schemas.register(CLICKS, avro("y"))
    return broker


async def test_without_the_setting_anything_goes_and_nobody_asks(world: World) -> None:
    broker = await start(world)
    await produce(broker, batch(b"anything"))
    assert world.metadata.count("schema_of_id") == 0


@pytest.mark.parametrize("check", ["id", "true", "subject"])
async def test_values_need_an_id(world: World, check: str) -> None:
    broker = await start(world, **{VALUES: check})
    with pytest.raises(InvalidRecord, match="schema id") as refused:
        await produce(broker, batch(framed(1), b"bare", framed(1), b"\0\0\0", b"\1\0\0\0\1x"))
    assert list(refused.value.records) == [1, 3, 4]
    await produce(broker, batch(framed(1), framed(1)))
    assert list(await values_of(broker)) == [0, 1]


async def test_nulls_need_none(world: World) -> None:
    broker = await start(world, **{VALUES: "id", KEYS: "id"})
    await produce(broker, keyed(None, None))
    await produce(broker, keyed(framed(2), None))


async def test_an_unknown_id_is_refused_by_name(world: World) -> None:
    broker = await start(world, **{VALUES: "id"})
    with pytest.raises(InvalidRecord, match="ids=99") as refused:
        await produce(broker, batch(framed(1), framed(99), framed(2), framed(99)))
    assert list(refused.value.records) == [1, 3]


@pytest.mark.parametrize("check", ["id", "subject"])
async def test_a_batch_full_of_ids_that_were_never_given_is_one_question(world: World, check: str) -> None:
    broker = await start(world, **{VALUES: check})
    with pytest.raises(InvalidRecord, match="ids=100,101,102") as refused:
        await produce(broker, batch(framed(1), *(framed(number) for number in range(100, 1100))))
    assert list(refused.value.records) == list(range(1, 1001))
    assert [world.metadata.count(each) for each in ("schema_contexts", BY_ID[check])] == [1, 1]


async def test_a_batch_of_more_ids_than_are_looked_for_is_refused(world: World) -> None:
    broker = await start(world, **{VALUES: "id"})
    with pytest.raises(InvalidRecord, match="more schema ids of values than a batch may have; limit=2000"):
        await produce(broker, batch(*(framed(number) for number in range(2001))))


async def test_any_known_id_will_do_unless_the_subjects_own_is_requested(world: World) -> None:
    broker = await start(world, **{VALUES: "id"})
    await produce(broker, batch(framed(2)))
    await broker.catalog.alter("orders", lambda _: {VALUES: "subject"})
    broker._apply_settings()
    with pytest.raises(InvalidRecord, match="orders-value"):
        await produce(broker, batch(framed(2)))
    await produce(broker, batch(framed(1)))


async def test_confluents_name_for_it_requests_the_subject(world: World) -> None:
    broker = await start(world, **{"confluent.value.schema.validation": "true"})
    with pytest.raises(InvalidRecord, match="orders-value"):
        await produce(broker, batch(framed(2)))
    await produce(broker, batch(framed(1)))


async def test_keys_are_checked_for_themselves(world: World) -> None:
    broker = await start(world, **{KEYS: "id"})
    with pytest.raises(InvalidRecord, match="a key"):
        await produce(broker, keyed(b"bare", b"bare"))
    await produce(broker, keyed(framed(1), b"bare"))


async def test_ids_in_memory_cost_no_question(world: World) -> None:
    broker = await start(world, **{VALUES: "id"})
    for _ in range(5):
        await produce(broker, batch(framed(1)))
    assert world.metadata.count("schema_of_id") == 1
    world.metadata.refuse("schema_of_id", 10)
    await produce(broker, batch(framed(1)))
    with pytest.raises(Unavailable):  # perhaps it is known by now: the same batch may come again
        await produce(broker, batch(framed(3)))


async def test_a_schema_registered_a_moment_ago_is_accepted(world: World) -> None:
    broker = await start(world, **{VALUES: "subject"})
    with pytest.raises(InvalidRecord):
        await produce(broker, batch(framed(3)))
    await broker.schemas.register(ORDERS, avro("x", "z?"))
    await produce(broker, batch(framed(3)))


async def test_a_deleted_schema_is_refused(world: World) -> None:
    broker = await start(world, **{VALUES: "id"})
    await produce(broker, batch(framed(2)))
    await broker.schemas.delete_subject(CLICKS)
    await produce(broker, batch(framed(2)))
    await broker.schemas.delete_subject(CLICKS, permanent=True)
    with pytest.raises(InvalidRecord):
        await produce(broker, batch(framed(2)))


async def test_compressed_batches_are_looked_into(world: World) -> None:
    broker = await start(world, **{VALUES: "id"})
    with pytest.raises(InvalidRecord):
        await produce(broker, batch(framed(1), b"bare" * 100, codec=1))
    await produce(broker, batch(framed(1), framed(1, b"payload" * 100), codec=1))


def test_the_stricter_of_two_names_holds() -> None:
    config = parse_topic_config({VALUES: "id", "confluent.value.schema.validation": "true", KEYS: "id"})
    assert config.schema_checks == {"key": "id", "value": "subject"}
    assert parse_topic_config({}).schema_checks == {}
    with pytest.raises(InvalidConfig):
        parse_topic_config({VALUES: "maybe"})
