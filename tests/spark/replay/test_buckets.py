"""Files and tables in a bucket go into a topic, found as agents find theirs; what a bucket refuses is told."""

import json
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from streamhouse.client.loop_thread import LoopThread
from streamhouse.client.sync import SyncClient
from streamhouse.errors import Misconfigured, Unavailable
from streamhouse.spark.lake.table_options import delta_options, file_system, iceberg_properties, parse_location
from streamhouse.spark.replay import restore_job
from streamhouse.spark.replay.restore_job import RestoreSpec
from streamhouse.spark.replay.restore_sources import Kind, Reference, find_kind, open_source
from tests.spark.conftest import BUCKET
from tests.spark.replay.kafka import named
from tests.support.agent import LiveAgent, free_port
from tests.support.s3 import RealS3

pytestmark = [pytest.mark.spark, pytest.mark.s3]

ROOT = f"s3://{BUCKET}/restored"
KINDS: tuple[Kind, ...] = ("parquet", "delta", "iceberg")


@pytest.fixture(autouse=True)
def _environment(bucket: RealS3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def places(bucket: RealS3) -> dict[Kind, str]:
    """Six rows in two files, as each kind of table has them; with each goes its address."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bucket.environment.items():
            patch.setenv(name, value)
        return {kind: MAKERS[kind]() for kind in KINDS}


def rows(country: str, *numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "country": [country] * len(numbers)})


PARTS = (rows("de", 1, 2, 3), rows("fr", 4, 5, 6))


def make_parquet() -> str:
    for number, part in enumerate(PARTS):
        folder = f"{BUCKET}/restored/files/country={part['country'][0]}"
        pq.write_table(part.drop_columns(["country"]), f"{folder}/{number}.parquet", filesystem=file_system(ROOT))
    return f"{ROOT}/files/"


def make_delta() -> str:
    location = f"{ROOT}/delta"
    for part in PARTS:
        options = delta_options(parse_location(location))
        write_deltalake(location, part, mode="append", partition_by=["country"], storage_options=options)
    return location


def make_iceberg() -> str:
    catalog = SqlCatalog("made", uri="sqlite:///:memory:", warehouse=f"{ROOT}/lake", **iceberg_properties())
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", schema=PARTS[0].schema)
    for part in PARTS:
        table.append(part)
    return table.location()


MAKERS: dict[Kind, Callable[[], str]] = {"parquet": make_parquet, "delta": make_delta, "iceberg": make_iceberg}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_in_a_bucket_is_restored(
    spark: SparkSession, agent: LiveAgent, client: SyncClient, places: dict[Kind, str], kind: Kind
) -> None:
    topic, loop = named(kind), LoopThread()
    request = RestoreSpec(source=places[kind], topic=topic, key="id")
    done = restore_job.run(request, agents=agent.http, start=lambda: spark, loop=loop, step_bytes=1)
    loop.close()
    results = sorted((record.key, json.loads(record.text())) for record in client.consume(topic, until="end"))
    assert (done.records, done.steps) == (6, 2)
    assert results == [
        (str(number).encode(), {"id": number, "country": "de" if number < 4 else "fr"}) for number in range(1, 7)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_an_address_for_s3_alone_goes_first(
    bucket: RealS3, places: dict[Kind, str], kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", bucket.endpoint)
    assert find_kind(places[kind]) == kind
    source = open_source(Reference(kind, places[kind]))
    assert sum(batch.num_rows for piece in range(len(source.sizes)) for batch in source.read(piece)) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_a_bucket_that_is_not_there_is_reported(bucket: RealS3, kind: Kind) -> None:
    result = rf"no such bucket; bucket=nonesuch endpoint={bucket.endpoint} do=correct the name"
    with pytest.raises(Misconfigured, match=result):
        find_kind("s3://nonesuch/orders")
    with pytest.raises(Misconfigured, match=result):
        open_source(Reference(kind, "s3://nonesuch/orders"))


@pytest.mark.parametrize("kind", KINDS)
def test_credentials_that_a_bucket_refuses_are_reported(
    places: dict[Kind, str], kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-somebody-else")
    result = r"the bucket refuses these credentials; source=s3://.* do=AWS_ACCESS_KEY_ID"
    with pytest.raises(Misconfigured, match=result):
        find_kind(places[kind])
    with pytest.raises(Misconfigured, match=result) as refused:
        open_source(Reference(kind, places[kind]))
    assert "of-somebody-else" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_object_store_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(Unavailable, match=r"the object store doesn't answer; source=s3://.* endpoint=http://127"):
        open_source(Reference("delta", f"{ROOT}/delta"))


def test_a_prefix_without_files_is_reported() -> None:
    with pytest.raises(Misconfigured, match=rf"no Parquet file there; source={ROOT}/none"):
        open_source(Reference(find_kind(f"{ROOT}/none"), f"{ROOT}/none"))
