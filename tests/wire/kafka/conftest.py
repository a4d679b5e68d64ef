"""A broker and a server for each test, on the event loop that agents run on."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from streamhouse.broker.broker import Broker
from streamhouse.config import KafkaSettings, Settings
from tests.wire.kafka.talk import Client, Served, a_broker, a_server, quick_settings


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def kafka_settings() -> KafkaSettings:
    """Override in a module to change the server's limits."""
    return KafkaSettings()


@pytest.fixture
def settings(kafka_settings: KafkaSettings) -> Settings:
    return quick_settings(kafka_settings)


@pytest.fixture
async def broker(tmp_path: Path, settings: Settings) -> AsyncIterator[Broker]:
    async with a_broker(tmp_path, settings) as broker:
        yield broker


@pytest.fixture
async def served(broker: Broker, settings: Settings) -> AsyncIterator[Served]:
    async with a_server(broker, settings) as served:
        yield served


@pytest.fixture
async def client(served: Served) -> Client:
    return await served.client()
