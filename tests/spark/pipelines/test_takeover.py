"""JVMs, agent and a supervisor are killed while windows, sessions, a join and a view run: rows equal a batch's."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streamhouse.client.sync import SyncClient
from tests.spark.pipelines.live import LiveSupervisor, Pipelines, owner_of, until
from tests.support.agent import LiveAgent

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

SQL = """
CREATE TABLE orders (id BIGINT, customer STRING, amount BIGINT, at TIMESTAMP)
WITH (connector = 'topic', format = 'json');
CREATE TABLE payments (order_id BIGINT, method STRING, at TIMESTAMP) WITH (connector = 'topic', format = 'json');

CREATE PIPELINE per_minute WITH (trigger = '500 milliseconds', watermark = 'at 10 seconds', dead_letters = 'none')
AS INSERT INTO per_minute
SELECT date_format(window.start, 'HH:mm') AS minute, customer, sum(amount) AS total, count(*) AS orders
FROM STREAM(orders) GROUP BY window(at, '1 minute'), customer;

CREATE PIPELINE paid WITH (trigger = '500 milliseconds', watermark = 'at 1 hour', dead_letters = 'none')
AS INSERT INTO paid
SELECT o.id, o.amount, p.method FROM STREAM(orders) o JOIN STREAM(payments) p
ON o.id = p.order_id AND p.at BETWEEN o.at AND o.at + INTERVAL 2 MINUTES;

CREATE PIPELINE visits WITH (trigger = '500 milliseconds', watermark = 'at 1 minute', dead_letters = 'none')
AS INSERT INTO visits
SELECT customer, date_format(session_window.start, 'HH:mm:ss') AS begins,
  date_format(session_window.end, 'HH:mm:ss') AS ends, sum(amount) AS total, count(*) AS orders
FROM STREAM(orders)
GROUP BY session_window(at, CASE WHEN customer = 'c0' THEN '30 seconds' ELSE '20 seconds' END), customer;

CREATE MATERIALIZED VIEW spent WITH (trigger = '500 milliseconds', dead_letters = 'none')
AS SELECT customer, sum(amount) AS total, count(*) AS orders FROM STREAM(orders) GROUP BY customer;
"""
NAMES = ("per_minute", "paid", "visits", "spent")
START = datetime(2026, 11, 15, 10, 0, tzinfo=UTC)
ROUNDS, ROWS = 4, 12
END = timedelta(minutes=ROUNDS + 30)
LAST = 4


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
    results: Counter[tuple[str, str]] = Counter()
    numbers: Counter[tuple[str, str]] = Counter()
    for number in range(ROUNDS):
        for each in orders_of(number):
            key = each["at"][11:16], each["customer"]
            results[key] += each["amount"]
            numbers[key] += 1
    return [
        {"minute": minute, "customer": customer, "total": total, "orders": numbers[minute, customer]}
        for (minute, customer), total in results.items()
    ]


def paid() -> list[dict[str, Any]]:
    amounts = {each["id"]: each["amount"] for number in range(ROUNDS) for each in orders_of(number)}
    return [
        {"id": each["order_id"], "amount": amounts[each["order_id"]], "method": "card"}
        for number in range(1, ROUNDS)
        for each in payments_of(number)
    ]


def visits() -> list[dict[str, Any]]:
    """Orders of a customer between which there is no gap: one visit of c0 through all rounds, one a round of others."""
    results: list[dict[str, Any]] = []
    for customer, gap_s in (("c0", 30), ("c1", 20), ("c2", 20)):
        last: datetime | None = None
        for each in (each for number in range(ROUNDS) for each in orders_of(number) if each["customer"] == customer):
            moment = datetime.fromisoformat(each["at"])
            if last is None or moment >= last:
                results.append({"customer": customer, "begins": each["at"][11:19], "total": 0, "orders": 0})
            last = moment + timedelta(seconds=gap_s)
            results[-1] |= {"total": results[-1]["total"] + each["amount"], "orders": results[-1]["orders"] + 1}
            results[-1]["ends"] = at(last)[11:19]
    return results


def spent() -> list[dict[str, Any]]:
    """Of everything, the last orders as well."""
    rows = [each for number in range(ROUNDS) for each in orders_of(number)]
    results = [
        {
            "customer": customer,
            "total": sum(each["amount"] for each in rows if each["customer"] == customer),
            "orders": ROUNDS * ROWS // 3,
        }
        for customer in ("c0", "c1", "c2")
    ]
    return [*results, {"customer": "end", "total": 0, "orders": LAST}]


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
        until(lambda: _owned(agent) == {"first": 2, "second": 2}, "each has two of the four")
        pipelines.reach("running", *NAMES)
        until(lambda: all(pipelines.of(name)["status"]["rows_in"] >= ROWS for name in NAMES), "a round is read")

        pipelines.send("orders", orders_of(1))
        pipelines.send("payments", payments_of(1))
        first.kill_jvm()
        second.kill_jvm()
        pipelines.send("orders", orders_of(2))
        until(lambda: all(pipelines.of(name)["status"]["restarts"] > 0 for name in NAMES), "both JVMs were missed")
        pipelines.reach("running", *NAMES)

        agent.kill()
        agent.start()
        pipelines.send("payments", payments_of(2))
        pipelines.send("orders", orders_of(3))

        first.kill()
        pipelines.send("payments", payments_of(3))
        until(lambda: _owned(agent) == {"second": 4}, "the other one takes over")
        # Far behind everything: the watermark passes what there is, in every partition of every stream.
        far = at(START + END)
        pipelines.send("orders", [{"id": -1, "customer": "end", "amount": 0, "at": far}] * LAST)
        pipelines.reads("paid", paid())
        pipelines.reads("per_minute", totals())
        pipelines.reads("visits", visits())
        pipelines.shows("spent", spent())


def _owned(agent: LiveAgent) -> dict[str, int]:
    """How many pipelines each supervisor has."""
    return dict(Counter((owner_of(agent, name) or "").rpartition("-")[0] for name in NAMES))


def test_what_is_expected_is_what_it_says() -> None:
    assert sum(each["orders"] for each in totals()) == ROUNDS * ROWS
    assert len({json.dumps(each) for each in paid()}) == (ROUNDS - 1) * ROWS // 2
    assert Counter(each["customer"] for each in visits()) == {"c0": 1, "c1": ROUNDS, "c2": ROUNDS}
    assert sum(each["orders"] for each in spent()) == ROUNDS * ROWS + LAST
