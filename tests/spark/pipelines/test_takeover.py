"""JVMs, agent and a supervisor are killed while windows and a join run: rows equal a batch's, each once."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streamhouse.client.sync import SyncClient
from tests.live import LiveAgent
from tests.spark.pipelines.live import LiveSupervisor, Pipelines, owner_of, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SQL = """
CREATE TABLE orders (id BIGINT, customer STRING, amount BIGINT, at TIMESTAMP)
WITH (connector = 'topic', format = 'json');
CREATE TABLE payments (order_id BIGINT, method STRING, at TIMESTAMP) WITH (connector = 'topic', format = 'json');

CREATE PIPELINE per_minute WITH (trigger = '200 milliseconds', watermark = 'at 10 seconds', dead_letters = 'none')
AS INSERT INTO per_minute
SELECT date_format(window.start, 'HH:mm') AS minute, customer, sum(amount) AS total, count(*) AS orders
FROM STREAM(orders) GROUP BY window(at, '1 minute'), customer;

CREATE PIPELINE paid WITH (trigger = '200 milliseconds', watermark = 'at 1 hour', dead_letters = 'none')
AS INSERT INTO paid
SELECT o.id, o.amount, p.method FROM STREAM(orders) o JOIN STREAM(payments) p
ON o.id = p.order_id AND p.at BETWEEN o.at AND o.at + INTERVAL 2 MINUTES;
"""
START = datetime(2026, 11, 15, 10, 0, tzinfo=UTC)
ROUNDS, ROWS = 4, 12
END = timedelta(minutes=ROUNDS + 30)


def at(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def orders_of(number: int) -> list[dict[str, Any]]:
    """A minute's orders, in time: none is late."""
    return [
        {
            "id": number * ROWS + row,
            "customer": f"c{row % 3}",
            "amount": number * 100 + row,
            "at": at(START + timedelta(minutes=number, seconds=4 * row)),
        }
        for row in range(ROWS)
    ]


def payments_of(number: int) -> list[dict[str, Any]]:
    """Every other order of the round before is paid a minute later, so a join needs what it kept."""
    return [
        {"order_id": each["id"], "method": "card", "at": at(datetime.fromisoformat(each["at"]) + timedelta(minutes=1))}
        for each in orders_of(number - 1)[::2]
    ]


def totals() -> list[dict[str, Any]]:
    """What a batch over all orders gives."""
    found: Counter[tuple[str, str]] = Counter()
    numbers: Counter[tuple[str, str]] = Counter()
    for number in range(ROUNDS):
        for each in orders_of(number):
            key = each["at"][11:16], each["customer"]
            found[key] += each["amount"]
            numbers[key] += 1
    return [
        {"minute": minute, "customer": customer, "total": total, "orders": numbers[minute, customer]}
        for (minute, customer), total in found.items()
    ]


def paid() -> list[dict[str, Any]]:
    amounts = {each["id"]: each["amount"] for number in range(ROUNDS) for each in orders_of(number)}
    return [
        {"id": each["order_id"], "amount": amounts[each["order_id"]], "method": "card"}
        for number in range(1, ROUNDS)
        for each in payments_of(number)
    ]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[LiveAgent]:
    if shutil.which("java") is None:
        pytest.skip("no Java here")
    with LiveAgent(tmp_path / "data", "--set", "pipelines.ttl_s=8s") as running:
        yield running


def test_rows_equal_a_batchs_whatever_is_killed(agent: LiveAgent, tmp_path: Path) -> None:
    first, second = (LiveSupervisor(agent, tmp_path, name) for name in ("first", "second"))
    with first, second, SyncClient(agent.http) as client:
        client.topics.create("orders", partitions=2)
        client.topics.create("payments", partitions=2)
        pipelines = Pipelines(agent, client, tmp_path)
        pipelines.send("orders", orders_of(0))
        pipelines.apply(SQL)
        names = ("per_minute", "paid")
        until(lambda: {_short(agent, name) for name in names} == {"first", "second"}, "each has one of the two")
        pipelines.reach("running", *names)
        until(lambda: all(pipelines.of(name)["status"]["rows_in"] >= ROWS for name in names), "a round is read")

        pipelines.send("orders", orders_of(1))
        pipelines.send("payments", payments_of(1))
        first.kill_jvm()
        second.kill_jvm()
        pipelines.send("orders", orders_of(2))
        until(lambda: all(pipelines.of(name)["status"]["restarts"] > 0 for name in names), "both JVMs were missed")
        pipelines.reach("running", *names)

        agent.kill()
        agent.start()
        pipelines.send("payments", payments_of(2))
        pipelines.send("orders", orders_of(3))

        first.kill()
        pipelines.send("payments", payments_of(3))
        until(lambda: {_short(agent, name) for name in names} == {"second"}, "the other one takes over")
        # Far behind everything: the watermark passes what there is, in every partition of every stream.
        far = at(START + END)
        pipelines.send("orders", [{"id": -1, "customer": "end", "amount": 0, "at": far}] * 4)
        pipelines.reads("paid", paid())
        pipelines.reads("per_minute", totals())


def _short(agent: LiveAgent, name: str) -> str:
    return (owner_of(agent, name) or "").rpartition("-")[0]


def test_what_is_expected_is_what_it_says() -> None:
    assert sum(each["orders"] for each in totals()) == ROUNDS * ROWS
    assert len({json.dumps(each) for each in paid()}) == (ROUNDS - 1) * ROWS // 2
