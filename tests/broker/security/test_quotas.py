"""Quotas: which limit applies to whom, how long clients wait, and how agents share a limit."""

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.security.quotas import Quotas
from streamhouse.errors import InvalidConfig
from streamhouse.model.quota import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    DEFAULT,
    MAX_NAME_CHARS,
    PRODUCER_BYTE_RATE,
    QuotaEntity,
)
from tests.broker.conftest import MakeWorld
from tests.broker.support import World

RATE = 1000.0


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    return await make_world()


@pytest.fixture
async def broker(world: World) -> Broker:
    return await world.start()


@pytest.fixture
def quotas(broker: Broker) -> Quotas:
    return broker.security.quotas


def charge(quotas: Quotas, amount: float, user: str = "alice", client_id: str = "app") -> float:
    return quotas.charge(PRODUCER_BYTE_RATE, amount, user=user, client_id=client_id)


async def test_without_quotas_nobody_waits(quotas: Quotas) -> None:
    assert not quotas.is_active
    assert charge(quotas, 1e12) == 0


async def test_who_uses_more_waits_until_the_rate_is_kept(world: World, quotas: Quotas) -> None:
    await quotas.alter(QuotaEntity(user="alice"), {PRODUCER_BYTE_RATE: RATE})
    assert charge(quotas, 1000) == 0
    assert charge(quotas, 500) == pytest.approx(0.5)
    world.clock.skip(0.5)
    assert charge(quotas, 100) == pytest.approx(0.1)
    world.clock.skip(1000)  # a pause earns one second's worth
    assert charge(quotas, 1500) == pytest.approx(0.5)
    assert charge(quotas, 1e12) == 30.0
    assert quotas.charge(CONSUMER_BYTE_RATE, 1e12, user="alice", client_id="app") == 0


async def test_over_a_long_time_the_rate_is_the_limit(world: World, quotas: Quotas) -> None:
    await quotas.alter(QuotaEntity(user="alice"), {PRODUCER_BYTE_RATE: RATE})
    used, seconds = 0.0, 0.0
    while seconds < 100:
        used += 333
        wait_s = charge(quotas, 333) + 0.001
        world.clock.skip(wait_s)
        seconds += wait_s
    assert used / seconds == pytest.approx(RATE, rel=0.02)


ENTITIES = [
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", DEFAULT),
    QuotaEntity("alice"),
    QuotaEntity(DEFAULT, "app"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity(None, "app"),
    QuotaEntity(None, DEFAULT),
]


@pytest.mark.parametrize("first", range(len(ENTITIES)))
async def test_the_most_specific_entity_decides_in_kafkas_order(quotas: Quotas, first: int) -> None:
    for place, entity in enumerate(ENTITIES[first:], first):
        await quotas.alter(entity, {PRODUCER_BYTE_RATE: 100.0 * (place + 1)})
    rate = 100.0 * (first + 1)
    assert charge(quotas, 2 * rate) == pytest.approx(1.0)


async def test_a_default_is_for_each_user_by_itself(quotas: Quotas) -> None:
    await quotas.alter(QuotaEntity(user=DEFAULT), {PRODUCER_BYTE_RATE: RATE})
    assert charge(quotas, 2000, "alice") == pytest.approx(1.0)
    assert charge(quotas, 1000, "bob") == 0
    assert charge(quotas, 1000, "alice", "another client") == pytest.approx(2.0)


async def test_connections_of_an_address_have_a_rate(quotas: Quotas) -> None:
    await quotas.alter(QuotaEntity(address="10.0.0.1"), {CONNECTION_CREATION_RATE: 2.0})
    await quotas.alter(QuotaEntity(address=DEFAULT), {CONNECTION_CREATION_RATE: 5.0})
    assert [quotas.charge_connection("10.0.0.1") for _ in range(3)] == [0, 0, pytest.approx(0.5)]
    assert [quotas.charge_connection("10.0.0.2") for _ in range(6)] == [0] * 5 + [pytest.approx(0.2)]


async def test_agents_that_use_a_limit_share_it(world: World, broker: Broker, quotas: Quotas) -> None:
    await quotas.alter(QuotaEntity(user="alice"), {PRODUCER_BYTE_RATE: RATE})
    text = 'producer_byte_rate {"user": "alice"}'
    charge(quotas, 300)
    await world.sqlite.exchange_quota_usage("another", {text: 700.0}, ttl_ms=10_000)
    await quotas.exchange()
    world.clock.skip(1000)
    share = 0.8 * 0.3 + 0.2 / 2
    assert charge(quotas, 2 * RATE * share) == pytest.approx(1.0)
    world.clock.skip(10)
    await quotas.exchange()  # what the other one granted is forgotten by now
    world.clock.skip(1000)
    assert charge(quotas, 2 * RATE) == pytest.approx(1.0)


async def test_of_client_ids_only_so_much_is_tracked_as_an_entity_may_have(world: World, quotas: Quotas) -> None:
    """Clients choose their ids, of up to 32 KiB, and agents exchange the tracked ones every second."""
    await quotas.alter(QuotaEntity(client_id=DEFAULT), {PRODUCER_BYTE_RATE: RATE})
    for number in range(20):
        charge(quotas, 1, client_id=f"{number:04}" + "x" * 32_000)
    await quotas.exchange()
    (result,) = await world.sqlite.exchange_quota_usage("another", {}, ttl_ms=10_000)
    assert len(result) == 20
    assert max(map(len, result)) < MAX_NAME_CHARS + 100
    longest = "y" * MAX_NAME_CHARS
    await quotas.alter(QuotaEntity(client_id=longest), {PRODUCER_BYTE_RATE: 2 * RATE})
    assert charge(quotas, 3 * RATE, client_id=longest) == pytest.approx(0.5)


async def test_nobody_uses_up_the_limit_of_a_client_id_of_a_tenant_by_naming_it(quotas: Quotas) -> None:
    await quotas.alter(QuotaEntity(client_id="acme~app"), {PRODUCER_BYTE_RATE: RATE})
    for user in ("alice", "beta~alice"):
        assert charge(quotas, 100 * RATE, user, "acme~app") == 0
    assert charge(quotas, RATE, "acme~alice", "app") == 0
    assert charge(quotas, RATE, "acme~alice", "app") == pytest.approx(1.0)


async def test_a_limit_that_is_removed_holds_no_more(quotas: Quotas) -> None:
    alice = QuotaEntity(user="alice")
    await quotas.alter(alice, {PRODUCER_BYTE_RATE: RATE, CONSUMER_BYTE_RATE: RATE})
    assert (await quotas.alter(alice, {PRODUCER_BYTE_RATE: None})).limits == {CONSUMER_BYTE_RATE: RATE}
    assert charge(quotas, 1e6) == 0
    await quotas.alter(alice, {CONSUMER_BYTE_RATE: None})
    assert (await quotas.list(), quotas.is_active) == ([], False)


@pytest.mark.parametrize(
    ("entity", "changes"),
    [
        (QuotaEntity(), {PRODUCER_BYTE_RATE: 1.0}),
        (QuotaEntity(user="a", address="10.0.0.1"), {CONNECTION_CREATION_RATE: 1.0}),
        (QuotaEntity(user=""), {PRODUCER_BYTE_RATE: 1.0}),
        (QuotaEntity(user="a"), {"bytes": 1.0}),
        (QuotaEntity(user="a"), {"bytes": None}),
        (QuotaEntity(user="a"), {PRODUCER_BYTE_RATE: 0.0}),
        (QuotaEntity(user="a"), {PRODUCER_BYTE_RATE: float("nan")}),
        (QuotaEntity(user="a"), {CONNECTION_CREATION_RATE: 1.0}),
    ],
)
async def test_what_makes_no_sense_is_refused(
    quotas: Quotas, entity: QuotaEntity, changes: dict[str, float | None]
) -> None:
    with pytest.raises(InvalidConfig):
        await quotas.alter(entity, changes)
