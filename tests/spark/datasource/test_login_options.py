"""Options with which reads and writes log in, ours and those of Kafka's connector; they are shown nowhere."""

import pickle
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamhouse.client.credentials import Credentials
from streamhouse.client.sync import SyncClient
from streamhouse.errors import Misconfigured
from streamhouse.spark import register
from streamhouse.spark.agents.address import AgentLogin, open_http, with_login
from streamhouse.spark.agents.client import connect
from streamhouse.spark.datasource.read_options import read_options
from streamhouse.spark.datasource.write_options import write_options
from tests.support.agent import LiveAgent

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def login_of(options: dict[str, str]) -> AgentLogin:
    agents = with_login("a:8080", options)
    assert isinstance(agents, AgentLogin)
    return agents


def test_without_options_an_address_is_an_address() -> None:
    assert with_login("a:8080", {}) == "a:8080"
    assert with_login("a:8080", {"kafka.security.protocol": "PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}) == "a:8080"


def test_our_options_are_credentials() -> None:
    given = {"streamhouse.user": "alice", "streamhouse.password": "hunter22", "streamhouse.ca": "ca.pem"}
    assert login_of(given).credentials == Credentials(user="alice", password="hunter22", ca="ca.pem")
    assert login_of({"streamhouse.token": "shk_1"}).credentials.token == "shk_1"
    secure = with_login("https://a:1", {"streamhouse.token": "t"})
    assert secure == AgentLogin("https://a:1", Credentials(token="t", tls=True))


@pytest.mark.parametrize(
    "jaas",
    [
        f'{SCRAM} username="alice" password="hunt\\"er 22";',
        f"{SCRAM} password='hunt\"er 22' username=alice;",
        f'{SCRAM}\n  username = "alice"\n  password = "hunt\\"er 22" ;',
    ],
)
def test_options_of_kafkas_connector_are_credentials(jaas: str) -> None:
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": jaas,
        "kafka.ssl.truststore.location": "ca.pem",
        "kafka.ssl.truststore.type": "PEM",
    }
    expected = Credentials(user="alice", password='hunt"er 22', ca="ca.pem", tls=True)
    assert login_of(options).credentials == expected
    mixed = {**options, "streamhouse.token": "t", "streamhouse.ca": "other.pem"}
    assert login_of(mixed).credentials == Credentials(token="t", ca="other.pem")


def test_what_can_not_be_read_is_said_without_secrets() -> None:
    with pytest.raises(Misconfigured, match=r"kafka\.sasl\.jaas\.config") as raised:
        with_login("a:1", {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": "x password=hunter22"})
    assert "hunter22" not in str(raised.value)
    jks = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "trust.jks"}
    with pytest.raises(Misconfigured, match="only PEM files"):
        with_login("a:1", jks)


def test_reads_and_writes_take_them_and_never_show_them() -> None:
    given = {"topic": "orders", "agents": "a:8080", "streamhouse.user": "alice", "streamhouse.password": "hunter22"}
    for options in (read_options(given, streaming=False), write_options(given)):
        assert str(options.agents) == "a:8080"
        assert "hunter22" not in repr(options)
        assert pickle.loads(pickle.dumps(options)).agents == options.agents


def test_clients_are_cached_by_address_and_login() -> None:
    one, other = login_of({"streamhouse.token": "1"}), login_of({"streamhouse.token": "2"})
    assert connect(one) is connect(one)
    assert connect(one) is not connect(other)


async def test_a_plain_address_logs_in_with_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMHOUSE_USER", "alice")
    with pytest.raises(Misconfigured, match="user=alice"):
        open_http("a:1", timeout_s=1)
    async with open_http(login_of({"streamhouse.token": "t"}), timeout_s=1):
        pass


@pytest.mark.spark
def test_plans_and_settings_show_no_password(spark: SparkSession, agent: LiveAgent, client: SyncClient) -> None:
    client.topics.create("redacted")
    login = {"streamhouse.user": "alice", "streamhouse.password": "hunter22"}
    read = spark.read.format("streamhouse").options(agents=agent.http, topic="redacted", **login).load()
    assert read.count() == 0
    query: Any = read._jdf.queryExecution()
    assert "hunter22" not in query.toString()
    assert "hunter22" not in query.logical().prettyJson()


@pytest.mark.spark
def test_a_sessions_settings_log_in(spark: SparkSession, agent: LiveAgent, client: SyncClient) -> None:
    client.topics.create("configured")
    source = spark.read.format("streamhouse").options(agents=agent.http, topic="configured")
    spark.conf.set("spark.streamhouse.user", "alice")
    try:
        register(spark)
        with pytest.raises(Exception, match="user=alice"):  # there is no password
            source.load().count()
    finally:
        spark.conf.unset("spark.streamhouse.user")
        register(spark)
    assert source.load().count() == 0
