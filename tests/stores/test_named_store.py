"""A bucket that somebody names: the contract, and an agent that is killed and finds its records there again.

    export STREAMHOUSE_TEST_STORE=s3://bucket/prefix AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… AWS_ENDPOINT_URL=…
    make test-store

Everything lies below `prefix/test-…` and is deleted afterwards. Without the variable nothing of this runs.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from streamhouse.clock import Ids, SystemClock
from streamhouse.config import StoreSettings
from streamhouse.errors import Misconfigured
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.open import open_object_store
from streamhouse.stores.objects.startup_check import check_store
from tests.contracts.bucket import BucketContract
from tests.contracts.object_store import keys_below
from tests.stores.records import RECORDS, consume, produce, values
from tests.support.agent import LiveAgent

VARIABLE = "STREAMHOUSE_TEST_STORE"
URL = os.environ.get(VARIABLE, "").rstrip("/")
if not URL:
    pytest.skip(f"no store is named; set {VARIABLE}", allow_module_level=True)

PATIENT = StoreSettings(request_timeout_s=30, max_retries=50, retry_total_s=60, retry_wait_s=0.05, retry_wait_max_s=0.2)
RUN = Ids().token()
PLACES = count()


def opened(url: str) -> ObjectStore:
    return open_object_store(url, clock=SystemClock(), ids=Ids(), registry=CollectorRegistry(), settings=PATIENT)


async def clear(store: ObjectStore) -> None:
    keys = await keys_below(store, "")
    for at in range(0, len(keys), 100):
        await asyncio.gather(*map(store.delete, keys[at : at + 100]))


@pytest.fixture(scope="module", autouse=True)
def proven() -> None:
    """A store that no agent would start on is told of once, in one line, instead of failing every test."""
    try:
        asyncio.run(check_store(opened(f"{URL}/test-{RUN}"), Ids()))
    except Misconfigured as error:
        pytest.exit(str(error), returncode=1)


@pytest.fixture
def url() -> str:
    return f"{URL}/test-{RUN}-{next(PLACES)}"


@pytest.fixture
async def store(url: str) -> AsyncIterator[ObjectStore]:
    store = opened(url)
    yield store
    await clear(store)
    await store.aclose()


class TestNamedStore(BucketContract):
    @pytest.fixture
    async def store(self, url: str) -> AsyncIterator[ObjectStore]:
        store = opened(url)
        yield store
        await clear(store)
        await store.aclose()


@pytest.fixture(params=["disk", "object"])
def agent(request: pytest.FixtureRequest, store: ObjectStore, url: str, tmp_path: Path) -> Iterator[LiveAgent]:
    """Its log on the disk, or in the bucket; it ends before the bucket is cleared."""
    agent = LiveAgent(tmp_path / "data", "--store", url, "--set", f"wal.kind={request.param}")
    yield agent
    if agent.is_running:
        agent.kill()


async def test_what_an_agent_acknowledged_before_it_was_killed_is_read_from_the_bucket(
    agent: LiveAgent, store: ObjectStore
) -> None:
    for round_ in range(3):
        agent.start()
        await check(agent, rounds=round_)
        await asyncio.to_thread(produce, agent.bootstrap, round_)
        agent.kill()
    agent.start()
    assert agent.stop() == 0
    assert await keys_below(store, "segments/") != []
    assert await keys_below(store, "proof/") == []
    agent.start()
    await check(agent, rounds=3)


async def check(agent: LiveAgent, *, rounds: int) -> None:
    assert await asyncio.to_thread(consume, agent.bootstrap, rounds * RECORDS) == values(rounds)
