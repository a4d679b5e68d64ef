"""Settings of a broker, changed while it runs by unchanged clients, on an agent of their own.

These clients can't name all brokers at once; kafka-configs can, in `tests/java`.
"""

import json
import os
import subprocess
import uuid
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.cimpl import NewTopic

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in a deprecated way
    import kafka
    import kafka.admin

from tests.compat.clients import TIMEOUT_S
from tests.support.agent import LiveAgent

api: Any = confluent_kafka.admin  # whose types are not all exported
SET, DELETE = api.AlterConfigOpType.SET, api.AlterConfigOpType.DELETE
APPEND, SUBTRACT = api.AlterConfigOpType.APPEND, api.AlterConfigOpType.SUBTRACT
BROKER, TOPIC = api.ResourceType.BROKER, api.ResourceType.TOPIC
THIS, OWN = api.ConfigSource.DYNAMIC_BROKER_CONFIG.value, api.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
DEFAULT = api.ConfigSource.DEFAULT_CONFIG.value


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path_factory.mktemp("broker-settings") / "data") as agent:
        yield agent
    assert "Traceback" not in agent.output


@pytest.fixture
def admin(agent: LiveAgent) -> Iterator[Any]:
    """An admin client; what a test changes of the broker is taken back."""
    admin = api.AdminClient({"bootstrap.servers": agent.bootstrap})
    yield admin
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        only(admin.alter_configs([api.ConfigResource(BROKER, node(admin))]))


def only(futures: "Mapping[Any, Future[Any]]") -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def node(admin: Any) -> str:
    (node,) = admin.list_topics(timeout=TIMEOUT_S).brokers
    return str(node)


def change(admin: Any, name: str, *changes: tuple[Any, str, str | None]) -> None:
    entries = [api.ConfigEntry(key, value, incremental_operation=operation) for operation, key, value in changes]
    only(admin.incremental_alter_configs([api.ConfigResource(BROKER, name, incremental_configs=entries)]))


def reported(admin: Any, kind: Any, name: str, key: str) -> tuple[str | None, int]:
    result = only(admin.describe_configs([api.ConfigResource(kind, name)]))
    return (result[key].value, result[key].source) if key in result else (None, 0)


def make_topic(admin: Any, **config: str) -> str:
    name = f"compat-{uuid.uuid4().hex}"
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, num_partitions=-1, replication_factor=1, config=settings)])[name].result(
        TIMEOUT_S
    )
    return name


def send(agent: LiveAgent, topic: str, size: int) -> "KafkaError | None":
    failed: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": agent.bootstrap})
    producer.produce(topic, b"x" * size, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return failed[0]


def test_a_setting_is_changed_shown_applied_and_removed(admin: Any) -> None:
    this = node(admin)
    assert reported(admin, BROKER, this, "num.partitions") == ("1", DEFAULT)
    change(admin, this, (SET, "num.partitions", "3"))
    assert reported(admin, BROKER, this, "num.partitions") == ("3", THIS)
    name = make_topic(admin)
    assert len(admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions) == 3
    change(admin, this, (DELETE, "num.partitions", None))
    assert reported(admin, BROKER, this, "num.partitions") == ("1", DEFAULT)


def test_a_producer_feels_the_default_of_topics_at_once(agent: LiveAgent, admin: Any) -> None:
    follower, stubborn = make_topic(admin), make_topic(admin, max_message_bytes="100000")
    assert send(agent, follower, 5000) is None
    change(admin, node(admin), (SET, "message.max.bytes", "1000"))
    refused = send(agent, follower, 5000)
    assert refused is not None
    assert refused.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert send(agent, stubborn, 5000) is None
    assert reported(admin, TOPIC, follower, "max.message.bytes") == ("1000", THIS)
    assert reported(admin, TOPIC, stubborn, "max.message.bytes") == ("100000", OWN)


def test_what_librdkafkas_own_test_changes_can_be_changed(admin: Any) -> None:
    this = node(admin)
    change(admin, this, (SET, "background.threads", "9"), (APPEND, "log.cleanup.policy", "compact"))
    assert reported(admin, BROKER, this, "background.threads") == ("9", THIS)
    assert reported(admin, BROKER, this, "log.cleanup.policy") == ("delete,compact", THIS)
    change(admin, this, (DELETE, "background.threads", ""), (SUBTRACT, "log.cleanup.policy", "compact"))
    assert reported(admin, BROKER, this, "background.threads") == ("10", DEFAULT)
    assert reported(admin, BROKER, this, "log.cleanup.policy") == ("delete", THIS)
    kerberos = {"sasl.kerberos.min.time.before.relogin": "58000"}
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        only(admin.alter_configs([api.ConfigResource(BROKER, this, set_config=kerberos)]))
    assert reported(admin, BROKER, this, "sasl.kerberos.min.time.before.relogin") == ("58000", THIS)
    assert reported(admin, BROKER, this, "log.cleanup.policy") == ("delete", DEFAULT)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("no.such", "1", KafkaError.INVALID_CONFIG),
        ("num.partitions", "none", KafkaError.INVALID_REQUEST),
        ("log.dirs", "elsewhere", KafkaError.INVALID_REQUEST),
    ],
)
def test_what_can_not_be_set_is_refused_with_a_reason(admin: Any, name: str, value: str, code: int) -> None:
    with pytest.raises(KafkaException) as refused:
        change(admin, node(admin), (SET, name, value))
    error = refused.value.args[0]
    assert error.code() == code
    assert name in error.str()


def test_changes_outlive_a_restart(agent: LiveAgent, admin: Any) -> None:
    change(admin, node(admin), (SET, "log.retention.ms", "123456789"))
    agent.stop()
    agent.start()
    assert reported(admin, BROKER, node(admin), "log.retention.ms") == ("123456789", THIS)
    assert reported(admin, TOPIC, make_topic(admin), "retention.ms") == ("123456789", THIS)


def test_kafka_python_changes_and_resets_a_brokers_settings(agent: LiveAgent, admin: Any) -> None:
    this = node(admin)

    def resource(configs: Any = None) -> Any:
        return kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.BROKER, this, configs=configs)

    with closing(kafka.KafkaAdminClient(bootstrap_servers=agent.bootstrap)) as client:
        assert client.alter_configs([resource({"log.retention.ms": "7000"})]) == {"broker": {this: "OK"}}
        entry = client.describe_configs([resource()], config_filter="all")["broker"][this]["log.retention.ms"]
        assert (entry["value"], entry["config_source"]) == ("7000", "DYNAMIC_BROKER_CONFIG")
        assert entry["read_only"] is False
        client.reset_configs([resource(["log.retention.ms"])])
        entry = client.describe_configs([resource()], config_filter="all")["broker"][this]["log.retention.ms"]
        assert (entry["value"], entry["config_source"]) == ("604800000", "DEFAULT_CONFIG")


KAFKAJS = """
const { Kafka, logLevel, ConfigResourceTypes } = require('kafkajs')
const [bootstrap, topic, node] = process.argv.slice(1)
const admin = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING }).admin()
const entry = async (name) => {
  const asked = { type: ConfigResourceTypes.BROKER, name: node, configNames: [name] }
  const found = await admin.describeConfigs({ resources: [asked] })
  const { configValue, configSource } = found.resources[0].configEntries[0]
  return [configValue, configSource]
}
const run = async () => {
  await admin.connect()
  const set = (name, value) => ({ resources: [
    { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: 'cleanup.policy', value: 'compact' }] },
    { type: ConfigResourceTypes.BROKER, name: node, configEntries: [{ name, value }] },
  ] })
  const answer = await admin.alterConfigs(set('cleanup.policy', 'delete'))
  const kept = await entry('cleanup.policy')
  await admin.alterConfigs(set('log.retention.ms', '4711'))
  console.log(JSON.stringify({ resources: answer.resources.length, kept, changed: await entry('log.retention.ms') }))
  await admin.disconnect()
}
run().catch((error) => { console.error(error); process.exit(1) })
"""


def test_kafkajs_changes_a_topic_and_a_broker_in_one_request(agent: LiveAgent, admin: Any, kafkajs: Path) -> None:
    command = ["node", "-e", KAFKAJS, "--", agent.bootstrap, make_topic(admin), node(admin)]
    environment = {**os.environ, "NODE_PATH": str(kafkajs)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"resources": 2, "kept": ["delete", THIS], "changed": ["4711", THIS]}
