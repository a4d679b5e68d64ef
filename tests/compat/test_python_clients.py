"""confluent-kafka, kafka-python and aiokafka, unchanged, against a live agent; each reads what the others wrote."""

import pytest

from tests.compat.clients import ALL_CODECS, CLIENTS, KafkaClient, Sent

START_MS = 1_700_000_000_000

RECORDS = [
    Sent(key=b"key", value=b"value"),
    Sent(key=None, value=b"no key"),
    Sent(key=b"no value", value=None),
    Sent(key=b"", value=b""),
    Sent(key=b"\x00\xff", value=bytes(range(256)) * 20),
    Sent(key=b"h", value=b"headers", headers=(("a", b"1"), ("a", b"2"), ("empty", b""))),
]


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, bootstrap: str) -> KafkaClient:
    return CLIENTS[request.param](bootstrap)


@pytest.fixture(params=CLIENTS)
def another(request: pytest.FixtureRequest, bootstrap: str) -> KafkaClient:
    return CLIENTS[request.param](bootstrap)


@pytest.mark.parametrize("codec", sorted(ALL_CODECS))
def test_what_one_writes_another_reads(client: KafkaClient, another: KafkaClient, topic: str, codec: str) -> None:
    if codec not in client.codecs & another.codecs:
        pytest.skip(f"one of the clients has no library for {codec}")
    client.create(topic, 1)
    offsets = client.produce(topic, RECORDS, codec=codec)
    assert offsets == list(range(len(RECORDS)))
    result = another.read(topic, len(RECORDS))
    assert [record.offset for record in result] == offsets
    assert [(record.key, record.value, record.headers) for record in result] == [
        (sent.key, sent.value, sent.headers) for sent in RECORDS
    ]
    assert {record.timestamp_ms for record in result} == {START_MS}


@pytest.mark.parametrize("idempotent", [True, False])
def test_many_records_keep_their_order(client: KafkaClient, topic: str, idempotent: bool) -> None:
    client.create(topic, 1)
    sent = [Sent(key=None, value=b"%d" % n) for n in range(3000)]
    offsets = client.produce(topic, sent, codec="lz4", idempotent=idempotent)
    assert sorted(offsets) == list(range(3000))
    assert [record.value for record in client.read(topic, 3000)] == [record.value for record in sent]


def test_reading_begins_in_the_middle(client: KafkaClient, topic: str) -> None:
    client.create(topic, 1)
    client.produce(topic, [Sent(key=None, value=b"%d" % n) for n in range(100)], codec="zstd")
    assert [record.offset for record in client.read(topic, 10, from_offset=57)] == list(range(57, 67))


def test_the_ends_and_times_are_found(client: KafkaClient, topic: str) -> None:
    client.create(topic, 1)
    assert client.ends(topic) == (0, 0)
    records = [Sent(key=None, value=b"x", timestamp_ms=START_MS + 1000 * n) for n in range(10)]
    client.produce(topic, records, codec="none")
    assert client.ends(topic) == (0, 10)
    assert client.offset_at(topic, START_MS + 4500) == 5
    assert client.offset_at(topic, 0) == 0


def test_a_time_after_the_last_record_finds_nothing_or_the_end(client: KafkaClient, topic: str) -> None:
    client.create(topic, 1)
    client.produce(topic, RECORDS[:1], codec="none")
    assert client.offset_at(topic, START_MS + 1) in (None, 1)


def test_topics_are_created_listed_and_deleted(client: KafkaClient, topic: str) -> None:
    client.create(topic, 3)
    assert topic in client.topics()
    assert client.partitions(topic) == 3
    client.delete(topic)
    assert topic not in client.topics()


def test_producing_to_a_topic_that_is_not_there_creates_it(client: KafkaClient, topic: str) -> None:
    assert client.produce(topic, RECORDS[:1], codec="none") == [0]
    assert topic in client.topics()
