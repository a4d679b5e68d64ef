"""An agent whose records live in S3, with SQLite and the disk WAL beside it."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from streamhouse.clock import Ids, SystemClock
from streamhouse.stores.objects.open import open_object_store
from tests.contracts.object_store import keys_below
from tests.stores.conftest import BUCKET
from tests.stores.records import RECORDS, consume, produce, values
from tests.support.agent import LiveAgent
from tests.support.s3 import RealS3

pytestmark = pytest.mark.s3


async def test_records_go_to_the_bucket_and_come_back_from_it_after_a_restart(
    real_s3: RealS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in real_s3.environment.items():
        monkeypatch.setenv(name, value)
    url = f"s3://{BUCKET}/agent-{tmp_path.name}"
    agent = LiveAgent(tmp_path / "data", "--store", url)
    with agent:
        produce(agent.bootstrap, 0)
    store = open_object_store(url, clock=SystemClock(), ids=Ids(), registry=CollectorRegistry())
    assert len(await keys_below(store, "segments/")) >= 1
    assert await keys_below(store, "proof/") == []
    assert not (tmp_path / "data" / "objects").exists()
    with agent:
        assert consume(agent.bootstrap, RECORDS) == values(1)
    assert real_s3.secret_key not in agent.output


def test_an_agent_says_in_one_line_what_is_wrong_with_its_bucket(
    real_s3: RealS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in real_s3.environment.items():
        monkeypatch.setenv(name, value)
    agent = LiveAgent(tmp_path / "data", "--store", "s3://nobodys-bucket/x")
    with pytest.raises(AssertionError, match="did not start"), agent:
        pass
    said = [line for line in agent.output.splitlines() if "bucket" in line]
    assert len(said) == 1
    assert "the bucket does not exist (status=404 code=NoSuchBucket) do=create it" in said[0]
    assert "Traceback" not in agent.output
