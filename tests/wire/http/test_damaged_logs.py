"""GET and DELETE /v1/damaged-logs: what a recovery could not read is told, kept, and deleted when somebody says so."""

from collections.abc import AsyncIterator

import httpx
import pytest
from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.broker.metrics import BrokerMetrics
from streamhouse.broker.wal.disk_quarantine import quarantine_root
from streamhouse.model.names import SessionId
from streamhouse.wire.http.app import make_app
from tests.broker.support import ORDERS, WAL_ROOT, World, batch, current, produce


@pytest.fixture
async def dead(world: World) -> SessionId:
    """A session whose log lost the second of three records."""
    broker = await world.start_with(ORDERS)
    for value in (b"first value", b"damaged value", b"third value"):
        await produce(broker, batch(value))
    session = current(broker).session.session_id
    (name,) = [name for name in world.files.list(WAL_ROOT / session) if name.endswith(".wal")]
    path = WAL_ROOT / session / name
    world.kill()
    world.files.overwrite(path, world.files.read(path).replace(b"damaged value", b"dam\0ged value"))
    return session


@pytest.fixture
async def broker(world: World, dead: SessionId) -> Broker:
    return await world.start()


@pytest.fixture
async def http(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(make_app(broker, CollectorRegistry()))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        yield client


async def verdict(http: httpx.AsyncClient) -> str:
    (check,) = [each for each in (await http.get("/v1/doctor")).json()["own"] if each["name"] == "damaged log files"]
    return str(check["verdict"])


async def test_a_damaged_log_is_reported_with_what_was_lost(http: httpx.AsyncClient, dead: SessionId) -> None:
    (log,) = (await http.get("/v1/damaged-logs")).json()["logs"]
    assert (log["session"], log["kind"], log["files"], log["loss"], log["losses"]) == (dead, "disk", 1, True, 1)
    assert log["where"] == str(quarantine_root(WAL_ROOT) / dead)
    (partition,) = log["partitions"]
    assert (partition["topic"], partition["gaps"], partition["skipped"]) == ("orders", [[1, 2]], [])
    assert await verdict(http) == "failure"


async def test_a_damaged_log_goes_when_someone_says_so(world: World, http: httpx.AsyncClient, dead: SessionId) -> None:
    response = await http.delete(f"/v1/damaged-logs/{dead}")
    assert (response.status_code, response.json()) == (200, {"files": 2})
    assert (await http.get("/v1/damaged-logs")).json() == {"logs": []}
    assert world.files.list(quarantine_root(WAL_ROOT)) == []
    assert await verdict(http) == "ok"
    assert (await http.delete(f"/v1/damaged-logs/{dead}")).status_code == 404


async def test_a_log_that_nobody_reported_as_damaged_is_never_discarded(
    world: World, broker: Broker, http: httpx.AsyncClient
) -> None:
    own = current(broker).session.session_id
    await produce(broker, batch(b"a"))
    assert (await http.delete(f"/v1/damaged-logs/{own}")).status_code == 404
    assert own in world.wal_sessions()


async def test_what_was_lost_is_counted(broker: Broker) -> None:
    samples = {sample.name: sample.value for family in BrokerMetrics(broker).collect() for sample in family.samples}
    assert samples["streamhouse_damaged_logs_total"] == 1
    assert samples["streamhouse_wal_losses_total"] == 1
