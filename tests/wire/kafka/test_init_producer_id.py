"""InitProducerId: identities that nobody had before."""

import pytest

from streamhouse.broker.broker import Broker
from streamhouse.config import Settings
from streamhouse.errors import Unavailable
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.wire.kafka.talk import Client, a_server


async def ask(client: Client, version: int = 5, **fields: object) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000, **fields)  # type: ignore[arg-type]
    return await client.call(request, InitProducerIdResponse, version)


@pytest.mark.parametrize("version", range(6))
async def test_every_version_gives_a_new_id_each_time(client: Client, version: int) -> None:
    responses = [await ask(client, version) for _ in range(3)]
    assert {(response.error_code, response.producer_epoch) for response in responses} == {(ErrorCode.NONE, 0)}
    assert len({response.producer_id for response in responses}) == 3
    assert min(response.producer_id for response in responses) >= 0


async def test_a_producer_that_retries_gets_a_new_id(client: Client) -> None:
    first = await ask(client)
    second = await ask(client, producer_id=first.producer_id, producer_epoch=first.producer_epoch)
    assert (second.error_code, second.producer_epoch) == (ErrorCode.NONE, 0)
    assert second.producer_id != first.producer_id


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
async def test_half_an_identity_is_none(client: Client, producer_id: int, epoch: int) -> None:
    response = await ask(client, producer_id=producer_id, producer_epoch=epoch)
    assert (response.error_code, response.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


@pytest.mark.parametrize("version", range(6))
async def test_a_transactional_id_keeps_its_producer_id_and_gets_the_next_epoch(client: Client, version: int) -> None:
    request = InitProducerIdRequest(transactional_id="payments", transaction_timeout_ms=60_000)
    first, second = [await client.call(request, InitProducerIdResponse, version) for _ in range(2)]
    assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)


class NoIds:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __getattr__(self, name: str) -> object:
        return getattr(self._broker, name)

    async def allocate_producer_id(self) -> int:
        raise Unavailable("metadata store is away")


async def test_while_there_are_no_ids_the_client_is_told_to_come_back(broker: Broker, settings: Settings) -> None:
    without: Broker = NoIds(broker)  # type: ignore[assignment]
    async with a_server(without, settings) as served:
        response = await ask(await served.client())
        assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
