"""What tasks do on a store whose records are encrypted: with the keys in their environment, and without."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from streamhouse.errors import Misconfigured
from streamhouse.spark.columns.record_columns import RecordBatchBuilder
from streamhouse.spark.datasource.pushed_filters import NO_FILTERS
from streamhouse.spark.datasource.read_options import read_options
from streamhouse.spark.datasource.split_planner import InputSplit, plan_batch
from streamhouse.spark.datasource.split_reader import ReadTask, read_split
from streamhouse.spark.maintenance import merge_job
from streamhouse.spark.runtime.object_store import encryption_settings, open_store
from tests.cli.test_recover import files_below
from tests.spark.maintenance.support import QUICK, HereTasks, consumed, create, trickle
from tests.support.agent import LiveAgent
from tests.support.at_rest import decrypt_object, key_file, keys_of

pytestmark = pytest.mark.spark


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[LiveAgent]:
    """Its environment is not that of tasks."""
    keys = key_file(tmp_path / "keys", "k1")
    flags = ("--set", "encryption.kms=file", "--set", f"encryption.key={keys}")
    with LiveAgent(tmp_path / "data", *QUICK, *flags) as running:
        create(running, "orders")
        trickle(running, "orders", 20)
        yield running


@pytest.fixture
def with_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("STREAMHOUSE_ENCRYPTION_KMS", "file")
    monkeypatch.setenv("STREAMHOUSE_ENCRYPTION_KEY", str(tmp_path / "keys"))
    open_store.cache_clear()
    yield
    open_store.cache_clear()


def splits(agent: LiveAgent) -> list[InputSplit]:
    given = {"topic": "orders", "agents": agent.http}
    return asyncio.run(plan_batch(read_options(given, streaming=False), NO_FILTERS))


def values(agent: LiveAgent) -> list[bytes]:
    shape, task = RecordBatchBuilder.of(StructType().add("value", "binary")), ReadTask(agents=agent.http)
    return [
        value
        for split in splits(agent)
        for batch in read_split(split, task, shape)
        for value in batch.column(0).to_pylist()
    ]


def test_tasks_with_keys_read_and_rewrite_encrypted_segments(agent: LiveAgent, with_keys: None) -> None:
    expected = [f'"0-{number}"'.encode() for number in range(20)]
    assert values(agent) == expected
    done = merge_job.run("orders", agents=agent.http, tasks=HereTasks())
    assert (done.runs_before, done.runs_after) == (20, 1)
    assert values(agent) == expected
    assert [value for *_, value in asyncio.run(consumed(agent, "orders", 20))] == expected
    pending = {key: body for key, body in files_below(agent.data / "objects").items() if key.startswith("placed/")}
    assert pending
    for key, body in pending.items():
        key_id, plain = decrypt_object(body, key, keys_of("k1"))
        assert key_id == "k1"
        assert plain.startswith(b"STRMHSEG")


def test_tasks_without_keys_say_which_key_is_missing(agent: LiveAgent) -> None:
    open_store.cache_clear()
    with pytest.raises(Misconfigured, match="encrypted with a key that isn't here; key_id=k1"):
        values(agent)
    with pytest.raises(Misconfigured, match="key_id=k1"):
        merge_job.run("orders", agents=agent.http, tasks=HereTasks())


def test_executors_take_only_what_concerns_encryption_from_their_environment() -> None:
    environ = {
        **os.environ,
        "STREAMHOUSE_ENCRYPTION_KMS": "aws",
        "STREAMHOUSE_ENCRYPTION_KEY": "k",
        "STREAMHOUSE_X": "1",
    }
    settings = encryption_settings(environ)
    assert (settings.kms, settings.key) == ("aws", "k")
    assert encryption_settings({}).kms == "none"
    with pytest.raises(Misconfigured, match="STREAMHOUSE_ENCRYPTION_KSM"):
        encryption_settings({"STREAMHOUSE_ENCRYPTION_KSM": "aws"})
