"""Kafka's command-line tools: each prints what people and scripts look for."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer

from tests.java.conftest import TIMEOUT_S, Java
from tests.support.agent import LiveAgent

CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "consumer.group.ConsumerGroupCommand"
TRANSACTIONS = "TransactionsCommand"


def create(kafka: Java, topic: str, partitions: int = 2, *more: str) -> str:
    kafka.tool("TopicCommand", "--create", "--topic", topic, "--partitions", str(partitions), *more)
    return topic


def fill(kafka: Java, topic: str, lines: int) -> None:
    text = "".join(f"k{n}:v{n}\n" for n in range(lines))
    keys = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    kafka.tool("ConsoleProducer", "--topic", topic, *keys, stdin=text)


def consume(kafka: Java, topic: str, count: int, *more: str) -> list[str]:
    expected = ("--topic", topic, "--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000")
    return kafka.tool("consumer.ConsoleConsumer", *expected, *more).splitlines()


def columns(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines() if line.strip()]


def test_kafka_topics_creates_describes_grows_and_deletes(kafka: Java) -> None:
    create(kafka, "made", 2, "--config", "retention.ms=5000")
    assert "made" in kafka.tool("TopicCommand", "--list").splitlines()
    kafka.tool("TopicCommand", "--alter", "--topic", "made", "--partitions", "3")
    described = kafka.tool("TopicCommand", "--describe", "--topic", "made")
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: retention.ms=5000", described)
    assert described.count("Leader: 1") == 3
    assert kafka.tool("TopicCommand", "--describe", "--under-replicated-partitions") == ""
    kafka.tool("TopicCommand", "--delete", "--topic", "made")
    assert "does not exist" in kafka.tool("TopicCommand", "--describe", "--topic", "made", fails=True)


def test_kafka_configs_changes_and_describes(kafka: Java) -> None:
    topic = ("--entity-type", "topics", "--entity-name", create(kafka, "configured"))
    kafka.tool(CONFIGS, "--alter", *topic, "--add-config", "max.message.bytes=2000000,flush.ms=9")
    kafka.tool(CONFIGS, "--alter", *topic, "--delete-config", "flush.ms")
    _, *own = kafka.tool(CONFIGS, "--describe", *topic).splitlines()
    assert [line.split()[0] for line in own] == ["max.message.bytes=2000000"]
    refused = kafka.tool(CONFIGS, "--alter", *topic, "--add-config", "no.such=1", fails=True)
    assert "InvalidConfigurationException" in refused
    assert "auto.create.topics.enable=true" in kafka.tool(
        CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"
    )


def test_kafka_configs_changes_one_broker_and_all_of_them_while_they_run(kafka: Java) -> None:
    this, every = ("--entity-type", "brokers", "--entity-name", "1"), ("--entity-type", "brokers", "--entity-default")
    kafka.tool(
        CONFIGS, "--alter", *every, "--add-config", "log.retention.ms=86400000,log.cleanup.policy=[delete,compact]"
    )
    kafka.tool(CONFIGS, "--alter", *this, "--add-config", "log.retention.ms=43200000")
    result = kafka.tool(CONFIGS, "--describe", *every)
    assert "log.retention.ms=86400000" in result
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleanup.policy=delete,compact" in result
    both = "DYNAMIC_BROKER_CONFIG:log.retention.ms=43200000, DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=86400000"
    assert both in kafka.tool(CONFIGS, "--describe", *this)
    topic = ("--entity-type", "topics", "--entity-name", create(kafka, "follower"))
    assert f"retention.ms=43200000 sensitive=false synonyms={{{both}" in kafka.tool(
        CONFIGS, "--describe", *topic, "--all"
    )
    for where, names in ((this, "log.retention.ms"), (every, "log.retention.ms,log.cleanup.policy")):
        kafka.tool(CONFIGS, "--alter", *where, "--delete-config", names)
        assert "=" not in kafka.tool(CONFIGS, "--describe", *where)
    refused = kafka.tool(CONFIGS, "--alter", *every, "--add-config", "no.such=1", fails=True)
    assert "InvalidConfigurationException" in refused
    fixed = kafka.tool(CONFIGS, "--alter", *this, "--add-config", "log.dirs=/elsewhere", fails=True)
    assert "InvalidRequestException" in fixed


def test_kafka_configs_finds_that_groups_users_and_clients_have_none(kafka: Java) -> None:
    fill(kafka, create(kafka, "unconfigured", 1), 1)
    consume(kafka, "unconfigured", 1, "--group", "unconfigured")
    for kind in ("groups", "users", "clients", "client-metrics"):
        assert "=" not in kafka.tool(CONFIGS, "--describe", "--entity-type", kind)


def test_what_the_console_writes_the_console_reads(kafka: Java) -> None:
    fill(kafka, create(kafka, "console", 3), 20)
    result = consume(kafka, "console", 20, "--formatter-property", "print.key=true")
    assert sorted(result) == sorted(f"k{n}\tv{n}" for n in range(20))
    ends = [line.split(":") for line in kafka.tool("GetOffsetShell", "--topic", "console").splitlines()]
    assert sum(int(offset) for _, _, offset in ends) == 20


def test_kafka_consumer_groups_shows_lag_and_moves_offsets(kafka: Java) -> None:
    fill(kafka, create(kafka, "lagging", 1), 10)
    consume(kafka, "lagging", 10, "--group", "readers")
    fill(kafka, "lagging", 5)
    assert "readers" in kafka.tool(GROUPS, "--list").splitlines()
    described = columns(kafka.tool(GROUPS, "--describe", "--group", "readers"))
    assert described[-1][:6] == ["readers", "lagging", "0", "10", "15", "5"]
    assert columns(kafka.tool(GROUPS, "--describe", "--group", "readers", "--state"))[-1][-2:] == ["Empty", "0"]
    chosen = ("--reset-offsets", "--group", "readers", "--topic", "lagging", "--execute")
    assert columns(kafka.tool(GROUPS, *chosen, "--to-earliest"))[-1] == ["readers", "lagging", "0", "0"]
    assert columns(kafka.tool(GROUPS, *chosen, "--shift-by", "4"))[-1] == ["readers", "lagging", "0", "4"]
    assert "Successful" in kafka.tool(GROUPS, "--delete-offsets", "--group", "readers", "--topic", "lagging")
    assert "was successful" in kafka.tool(GROUPS, "--delete", "--group", "readers")


def test_the_performance_tools_come_to_their_end(kafka: Java) -> None:
    create(kafka, "fast", 2)
    count = ("--topic", "fast", "--num-records", "5000")
    sent = kafka.tool("ProducerPerformance", *count, "--record-size", "100", "--throughput", "-1")
    assert "5000 records sent" in sent
    read = kafka.tool("ConsumerPerformance", *count, "--group", "fast").splitlines()
    assert read[-1].split(", ")[4] == "5000"


def test_records_are_deleted_and_sizes_reported(kafka: Java, tmp_path: Path) -> None:
    fill(kafka, create(kafka, "shortened", 1), 10)
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({"version": 1, "partitions": [{"topic": "shortened", "partition": 0, "offset": 4}]}))
    deleted = kafka.tool("DeleteRecordsCommand", "--offset-json-file", str(offsets))
    assert re.search(r"partition: shortened-0\s+low_watermark: 4", deleted)
    result = kafka.tool("LogDirsCommand", "--describe", "--topic-list", "shortened").splitlines()[-1]
    (folder,) = json.loads(result)["brokers"][0]["logDirs"]
    (partition,) = folder["partitions"]
    assert (partition["partition"], partition["size"] > 0) == ("shortened-0", True)


def test_the_tools_for_clusters_find_one_agent_at_rest(kafka: Java, agent: LiveAgent) -> None:
    create(kafka, "resting", 1)
    assert "Produce(0): 0 to 13" in kafka.tool("BrokerApiVersionsCommand")
    elected = kafka.tool(
        "LeaderElectionCommand", "--election-type", "preferred", "--topic", "resting", "--partition", "0"
    )
    assert "Valid replica already elected" in elected
    reassignments = kafka.tool("reassign.ReassignPartitionsCommand", "--list")
    assert "No partition reassignments found" in reassignments
    assert "SecurityDisabledException" in kafka.tool("AclCommand", "--list", fails=True)


def test_kafka_transactions_shows_what_is_under_way_and_ends_what_hangs(kafka: Java) -> None:
    """A transaction hangs where its marker never came: here, because its producer is alive and doesn't end it."""
    topic = create(kafka, "hanging", 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "hangs"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0)
    producer.flush(30)
    listed = columns(kafka.tool(TRANSACTIONS, "list"))
    (result,) = [row for row in listed if row[0] == "hangs"]
    assert (result[1], result[3]) == ("1", "Ongoing")
    described = kafka.tool(TRANSACTIONS, "describe", "--transactional-id", "hangs")
    assert "hanging-0" in described
    place = ("--topic", topic, "--partition", "0")
    assert columns(kafka.tool(TRANSACTIONS, "describe-producers", *place))[1][-1] == "0"
    kafka.tool(TRANSACTIONS, "abort", *place, "--start-offset", "0")
    assert columns(kafka.tool(TRANSACTIONS, "describe-producers", *place))[1][-1] == "None"
    nobody = kafka.tool(TRANSACTIONS, "describe", "--transactional-id", "nobody", fails=True)
    assert "could not be found" in nobody
    producer.abort_transaction(30)


def test_the_java_consumer_says_that_records_are_missing_and_goes_on_behind_them(kafka: Java, tmp_path: Path) -> None:
    """It throws at the range, instead of waiting for it for ever."""
    with LiveAgent(tmp_path / "data") as own:
        before: set[Path] = set()
        written: list[set[Path]] = []
        for value in ("a", "b", "c"):
            producer = Producer({"bootstrap.servers": own.bootstrap})
            producer.produce("orders", value, partition=0)
            assert producer.flush(30) == 0
            own.stop()
            own.start()
            files = {path for path in own.data.rglob("*") if path.is_file() and "segments" in path.parts}
            written.append(files - before)
            before = files
        for path in written[1]:
            path.unlink()
        tool = replace(kafka, bootstrap=own.bootstrap)
        reading = ("--topic", "orders", "--partition", "0", "--timeout-ms", "30000")
        console = ("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", own.bootstrap, *reading)
        command = [*tool.command, *console, "--offset", "0", "--max-messages", "2"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert said.stdout == "a\n"
        assert "Encountered corrupt message when fetching offset 1 for topic-partition orders-0" in said.stderr
        assert tool.tool("consumer.ConsoleConsumer", *reading, "--offset", "2", "--max-messages", "1") == "c\n"
