"""With very many runs, no call reads more than it returns: plans use indexes, and few rows are touched."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import asyncpg
import pytest

from streamhouse.model.cluster import PartitionState
from streamhouse.model.names import Epoch, NodeId
from streamhouse.stores.metadata.postgres import PostgresMetadataStore
from streamhouse.stores.metadata.postgres.connection import Bound, bind, postgres_statements
from streamhouse.stores.metadata.postgres.transaction import PostgresTransaction
from streamhouse.stores.metadata.rows import (
    number_list,
    offset_list,
    partition_list,
    partition_params,
    run_params,
    text_list,
)
from tests.contracts.metadata_scene import ALICE, ORDERS, commit_of, new_session, part, run_of, topic
from tests.support.depth import scaled
from tests.support.postgres import Databases

pytestmark = pytest.mark.postgres

RUNS: Final = scaled(quick=200_000, nightly=1_000_000)
PER_OBJECT: Final = scaled(quick=2, nightly=10)
PRODUCERS: Final = 100_000
FILL: Final = f"""
SET session_replication_role = replica; -- foreign keys hold by construction, and would be checked for every run
ALTER TABLE runs DROP CONSTRAINT runs_pkey;
DROP INDEX runs_by_object;
INSERT INTO segment_objects (key, size_bytes, created_at_ms) SELECT 'segments/' || n, 0, 0
FROM generate_series(1, {RUNS // PER_OBJECT}) AS n;
INSERT INTO runs
SELECT '{ORDERS}', n % 2, n / 2, n / 2 + 1, 0, 1, 1 + n / {PER_OBJECT}, 0, 100, 0, 0, 1, n / 2, n / 2
FROM generate_series(0, {RUNS - 1}) AS n;
ALTER TABLE runs ADD PRIMARY KEY (topic_id, partition, base_offset);
CREATE INDEX runs_by_object ON runs (object_id);
INSERT INTO transactions
SELECT 't' || n, n, 0, NULL, NULL, n, 0, 60000, CASE WHEN n % 50 = 0 THEN 'Ongoing' ELSE 'CompleteCommit' END, 1, n, n,
       CASE WHEN n % 50 = 0 THEN n + 60000 END, '{{}}'
FROM generate_series(1, {PRODUCERS}) AS n;
INSERT INTO pending_offsets
SELECT 't' || n, 'g' || n % 5000, '{ORDERS}', n % 2, '{ORDERS}', 0, n, 0, '', 0, NULL
FROM generate_series(50, {PRODUCERS}, 50) AS n;
INSERT INTO aborted_transactions SELECT '{ORDERS}', n % 2, n, n - 1, n FROM generate_series(0, {PRODUCERS}) AS n;
UPDATE partitions SET flushed_end = {RUNS // 2}, log_start = 3, size_bytes = {RUNS // 2} * 100 WHERE partition < 2;
ANALYZE;
"""


@pytest.fixture(scope="module")
def crowded(databases: Databases) -> Iterator[str]:
    dsn = asyncio.run(_crowd(databases))
    yield dsn
    asyncio.run(databases.drop(dsn))


async def _crowd(databases: Databases) -> str:
    dsn = await databases.create()
    store = await PostgresMetadataStore(dsn).open()
    await store.create_topic(topic())
    await store.open_session(new_session(ALICE))
    await store.acquire(ALICE, [part(0), part(1)])
    await store.aclose()
    await databases.run(FILL, dsn=dsn)
    return dsn


STATE: Final = PartitionState(partition=part(0), epoch=Epoch(1), holder=ALICE, log_start=3, flushed_end=RUNS // 2)
PLACE: Final[Mapping[str, Any]] = {**partition_params(part(0)), "from_offset": RUNS // 4, "limit": 5}
NEW: Final = run_of(STATE, RUNS // 2, RUNS // 2 + 1, "segments/7")
ADVANCE: Final = {
    "holder": ALICE,
    "epoch": 1,
    "expected_end": RUNS // 2,
    "flushed_end": RUNS // 2 + 1,
    "added_bytes": 1,
}

CALLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "runs_from": PLACE,
    "last_runs": {"partitions": partition_list([part(0), part(1)])},
    "runs_of": {"from_offsets": offset_list({part(0): RUNS // 4, part(1): 0}), "limit": 5},
    "run_at_time": {**PLACE, "timestamp_ms": RUNS // 3},
    "latest_so_far": PLACE,
    "epoch_end": {**PLACE, "epoch": 7},
    "find_partitions": {"partitions": partition_list([part(0), part(1)])},
    "partitions_held_by": {"holder": ALICE},
    "find_session": {"session_id": ALICE},
    "renew_session": {
        "session_id": ALICE,
        "expires_at_ms": 1,
        "wal_start": 0,
        "wal_durable": 0,
        "put_at_ms": 0,
        "put_failing": 0,
    },
    "claim_session": {"session_id": ALICE, "claimed_by": ALICE, "now_ms": 1, "proven_dead": 0},
    "forget_sessions": {"before_ms": 1, "limit": 5},
    "known_among": {"keys": text_list(["segments/7", "segments/8", "none"])},
    "runs_of_object": {"key": ["segments/7", "segments/8"]},
    "insert_run": {name: [value] for name, value in run_params(NEW).items()},
    "advance_flushed_end": {name: [value] for name, value in {**partition_params(part(0)), **ADVANCE}.items()},
    "drop_runs_below": {"topic_id": [str(ORDERS)] * 2, "partition": [0, 1], "limit": [5, 5]},
    "count_runs": {"topic_id": str(ORDERS), "limit": 100},
    "doom_object": {"object_id": [1, 2], "now_ms": [0, 0]},
    "drop_object": {"object_id": [1, 2]},
    "carry_producers": {
        "topic_id": [str(ORDERS)] * 2,
        "partition": [0, 1],
        "first_base": [RUNS // 4, RUNS // 3],
        "last_base": [RUNS // 4, RUNS // 3],
    },
    "hold_transaction": {"transactional_id": "t7"},
    "transaction_of_producer": {"producer_id": 7},
    "due_transactions": {"now_ms": 61_000, "decided_ms": 60_000, "limit": 5, "after_ms": -1, "after": ""},
    "list_transactions": {"after": "t7", "limit": 5},
    "forget_transactions": {"before_ms": 100, "limit": 5},
    "commit_pending_offsets": {"transactional_id": "t50"},
    "drop_pending_offsets": {"transactional_id": "t50"},
    "find_pending": {"group_id": "g50", "partitions": partition_list([part(0), part(1)])},
    "pending_of_group": {"group_id": "g50"},
    "aborted_of": {"from_offsets": offset_list({part(0): PRODUCERS // 2, part(1): 0}), "limit": 5},
    "drop_aborted_below": {"topic_id": [str(ORDERS)] * 2, "partition": [0, 1], "limit": [5, 5]},
    "forget_aborted": {**partition_params(part(0)), "last_offsets": number_list([2, 4])},
}
SMALL: Final = {
    "partitions",
    "sessions",
    "topics",
    "doomed_objects",
    "abandoned_ranges",
    "consumer_groups",
}  # so few rows here that scanning them is as good


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", CALLS)
async def test_a_statement_touches_few_rows_however_many_there_are(crowded: str, name: str, plans: str) -> None:
    bound = bind(getattr(postgres_statements(), name))
    connection = await asyncpg.connect(crowded, server_settings={"plan_cache_mode": plans, "jit": "off"})
    await connection.execute(f"PREPARE call AS {bound.text}")
    given = ", ".join(_literal(CALLS[name][each]) for each in bound.names)
    trial = connection.transaction()
    await trial.start()
    plan = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE call ({given})")
    await trial.rollback()
    await connection.close()
    nodes = list(_nodes(json.loads(plan)[0]["Plan"]))
    scans = [node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"]
    assert set(scans) <= SMALL, plan
    assert sum(map(_touched, nodes)) < 2000, plan


def _literal(value: object) -> str:
    if isinstance(value, list):
        return "'{" + ",".join(f'"{each}"' for each in value) + "}'"
    return f"'{value}'"


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def _touched(node: Mapping[str, Any]) -> float:
    rows: float = (
        node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    )
    return rows * float(node["Actual Loops"])


async def test_a_thousand_partitions_cost_as_many_statements_as_one(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await PostgresMetadataStore(database).open()
    await store.create_topic(topic(partitions=1001))
    await store.open_session(new_session(ALICE))
    seen: list[str] = []
    _count_statements(monkeypatch, seen)
    costs = []
    for partitions in ([part(1000)], [part(n) for n in range(1000)]):
        key = f"of {len(partitions)}"
        states = await store.acquire(ALICE, partitions)
        await store.commit_segments(ALICE, [commit_of(key, *(run_of(state, 0, 3, key) for state in states))])
        await store.reserve_offsets(ALICE, dict.fromkeys(partitions, 10))
        await store.pin_partitions(dict.fromkeys(partitions, NodeId(1)))
        await store.release(ALICE, partitions)
        costs.append(len(seen))
        seen.clear()
    assert costs[0] == costs[1]
    await store.aclose()


def _count_statements(monkeypatch: pytest.MonkeyPatch, seen: list[str]) -> None:
    for name in ("_fetch", "_execute"):
        run = getattr(PostgresTransaction, name)

        async def counted(self: PostgresTransaction, bound: Bound, params: Mapping[str, Any], run: Any = run) -> Any:
            seen.append(bound.text)
            return await run(self, bound, params)

        monkeypatch.setattr(PostgresTransaction, name, counted)
