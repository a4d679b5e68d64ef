"""Two agents' registries on one PostgreSQL: the same numbers for all, and deletions that are heard."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from streamhouse.broker.schemas import SchemaRegistry
from streamhouse.errors import IncompatibleSchema, ReferenceExists, UnknownSchema
from streamhouse.model.cluster import Change
from streamhouse.model.schema import Reference, Subject
from streamhouse.stores.metadata.postgres import PostgresMetadataStore
from tests.broker.schemas.support import CLICKS, ORDERS, avro, needing
from tests.broker.support import World

pytestmark = pytest.mark.postgres
TIMEOUT_S = 20.0


class Agent:
    """A registry with connections of its own, that listens as an agent does."""

    def __init__(self, store: PostgresMetadataStore) -> None:
        self.store = store
        self.schemas = SchemaRegistry(World().dependencies(metadata=store))
        self._news = asyncio.Event()
        store.subscribe(self._received)

    def _received(self, change: Change) -> None:
        self.schemas.on_change(change)
        self._news.set()

    async def hear(self) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await self._news.wait()
        self._news.clear()


@pytest.fixture
async def agents(empty_database: str) -> AsyncIterator[list[Agent]]:
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(2):
            store = await PostgresMetadataStore(empty_database).open()
            stack.push_async_callback(store.aclose)
            made.append(Agent(store))
            await made[-1].hear()  # that it listens
        yield made


async def test_who_registers_the_same_at_once_gets_the_same_id(agents: list[Agent]) -> None:
    for round_ in range(5):
        subjects = [Subject(".", f"{name}-{round_}") for name in ("a", "b")]
        found = await asyncio.gather(
            *(
                agent.schemas.register(subject, avro(f"f{round_}"))
                for agent in agents
                for subject in subjects
                for _ in range(2)
            )
        )
        assert {(each.version, each.schema_id) for each in found} == {(1, round_ + 1)}


async def test_who_registers_different_ones_at_once_gets_dense_numbers(agents: list[Agent]) -> None:
    await agents[0].schemas.set_config(ORDERS, {"compatibilityLevel": "NONE"})
    found = await asyncio.gather(*(agents[n % 2].schemas.register(ORDERS, avro(f"f{n}")) for n in range(12)))
    assert sorted((each.version, each.schema_id) for each in found) == [(n, n) for n in range(1, 13)]


async def test_of_two_schemas_that_do_not_get_along_one_is_registered(agents: list[Agent]) -> None:
    for number in range(5):
        subject = Subject(".", f"contested-{number}")
        await agents[0].schemas.register(subject, avro("x"))
        fields = (("x", "y?"), ("x", "z?"))
        await agents[0].schemas.set_config(subject, {"compatibilityLevel": "FULL"})
        tries = await asyncio.gather(
            *(agent.schemas.register(subject, avro(*f)) for agent, f in zip(agents, fields, strict=True)),
            agents[1].schemas.register(subject, avro("q")),
            return_exceptions=True,
        )
        assert [type(each) for each in tries][2:] == [IncompatibleSchema]
        assert [each.version for each in await agents[0].schemas.versions(subject)] == [1, 2, 3]


async def test_who_refers_and_who_deletes_do_not_miss_each_other(agents: list[Agent]) -> None:
    for number in range(6):
        base = Subject(".", f"base-{number}")
        await agents[0].schemas.register(base, avro("x"))
        user = needing(Reference("Order", str(base), 1))
        added, deleted = await asyncio.gather(
            agents[0].schemas.register(Subject(".", f"user-{number}"), user),
            agents[1].schemas.delete_version(base, 1),
            return_exceptions=True,
        )
        assert isinstance(added, BaseException) != isinstance(deleted, ReferenceExists)


async def test_a_deletion_elsewhere_is_heard(agents: list[Agent]) -> None:
    here, there = agents
    await there.schemas.register(ORDERS, avro("x"))
    await there.schemas.register(CLICKS, avro("y"))
    assert (await here.schemas.schema(1)).type == "AVRO"
    await there.schemas.delete_subject(ORDERS)
    await here.hear()
    await there.schemas.delete_subject(ORDERS, permanent=True)
    await here.hear()
    with pytest.raises(UnknownSchema):
        await here.schemas.schema(1)
    assert (await here.schemas.schema(2)).type == "AVRO"
