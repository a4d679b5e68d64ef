"""Traces of a real agent at a real collector: from a client's traceparent to the fetch, over Kafka, HTTP and gRPC."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer

from streamhouse.agent import build_agent
from streamhouse.config import load_settings
from streamhouse.model.record import Acks, NewRecord, Receipt
from streamhouse.wire.http.routes.pipeline_types import StatusView
from streamhouse.wire.http.routes.traces import reads_of
from tests.support.agent import LiveAgent

from .collector import Collector, collecting

pytestmark = pytest.mark.timeout(120)
Spans = list[dict[str, Any]]


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def agent(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    settings = {
        "tracing.endpoint": collector.endpoint,
        "tracing.interval_s": "0.05",
        "flush.age_s": "0.2",
        "agent.log_format": "json",
        "groups.initial_rebalance_delay_s": "0",
    }
    flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    with LiveAgent(tmp_path_factory.mktemp("traces") / "data", *flags, grpc=True) as agent:
        yield agent


def context(number: int) -> tuple[str, str, str]:
    """A trace and a span of a client, and its header."""
    trace, span = f"{number:032x}", f"{number:016x}"
    return trace, span, f"00-{trace}-{span}-01"


def of_trace(spans: Spans, trace: str) -> dict[str, dict[str, Any]]:
    return {span["name"]: span for span in spans if span["traceId"] == trace}


def attributes(span: dict[str, Any]) -> dict[str, str]:
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


def consumed(agent: LiveAgent, topic: str, count: int) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": agent.bootstrap, "group.id": f"readers-of-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    messages: list[Any] = []
    while len(messages) < count:
        messages += consumer.consume(count - len(messages), timeout=1)
    consumer.close()
    return messages


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_kafka_record_is_followed_from_its_header_to_its_fetch(
    agent: LiveAgent, collector: Collector, codec: str
) -> None:
    topic = f"kafka-{codec}"
    trace, span, header = context({"none": 1, "lz4": 2, "zstd": 3}[codec])
    producer = Producer({"bootstrap.servers": agent.bootstrap, "compression.type": codec, "linger.ms": 100})
    producer.produce(topic, b"a record without a trace")
    producer.produce(topic, b"one with a trace", headers={"traceparent": header.encode()})
    producer.flush()
    messages = consumed(agent, topic, 2)
    assert messages[1].headers() == [("traceparent", header.encode())]
    names = {f"append {topic}", "write-ahead log", f"flush {topic}", f"fetch {topic}"}
    result = of_trace(collector.wait_for(lambda spans: names <= set(of_trace(spans, trace))), trace)
    append = result[f"append {topic}"]
    assert append["parentSpanId"] == span
    assert {result[name]["parentSpanId"] for name in names - {append["name"]}} == {append["spanId"]}
    assert attributes(append)["messaging.kafka.offset"] == "1"
    assert attributes(append)["messaging.destination.name"] == topic
    for each in result.values():
        assert int(each["startTimeUnixNano"]) <= int(each["endTimeUnixNano"])
    assert int(append["endTimeUnixNano"]) <= int(result[f"flush {topic}"]["endTimeUnixNano"])


def test_a_client_that_does_not_sample_gets_no_spans(agent: LiveAgent, collector: Collector) -> None:
    unsampled, _, header = context(4)
    producer = Producer({"bootstrap.servers": agent.bootstrap})
    producer.produce("sampling", b"x", headers={"traceparent": header[:-2].encode() + b"00"})
    producer.flush()
    sampled, _, header = context(5)
    producer.produce("sampling", b"x", headers={"traceparent": header.encode()})
    producer.flush()
    spans = collector.wait_for(lambda spans: "flush sampling" in of_trace(spans, sampled))
    assert of_trace(spans, unsampled) == {}


def test_an_http_request_passes_its_trace_on_to_its_records(agent: LiveAgent, collector: Collector) -> None:
    trace, span, header = context(6)
    own, _, own_header = context(7)
    records = [{"value": "x"}, {"value": "y", "headers": [{"name": "traceparent", "value": own_header}]}]
    with httpx.Client(base_url=f"http://{agent.http}", headers={"traceparent": header}) as http:
        http.post("/v1/topics", json={"name": "over-http", "partitions": 1}).raise_for_status()
        http.post("/v1/topics/over-http/records", json={"records": records}).raise_for_status()
    request = "POST /v1/topics/{topic}/records"
    names = {request, "append over-http", "write-ahead log", "flush over-http"}
    spans = collector.wait_for(
        lambda spans: names <= set(of_trace(spans, trace)) and "append over-http" in of_trace(spans, own)
    )
    result = of_trace(spans, trace)
    assert result[request]["parentSpanId"] == span
    assert attributes(result[request])["http.response.status_code"] == "200"
    assert result["append over-http"]["parentSpanId"] == result[request]["spanId"]
    first = consumed(agent, "over-http", 2)[0]
    assert first.headers() == [("traceparent", f"00-{trace}-{result[request]['spanId']}-01".encode())]


def test_a_grpc_call_passes_its_trace_on_to_its_records(agent: LiveAgent, collector: Collector) -> None:
    import grpc

    from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb

    trace, span, header = context(8)
    with grpc.insecure_channel(agent.grpc) as channel:
        produce = channel.unary_unary(
            "/streamhouse.v1.RecordsService/Produce",
            request_serializer=pb.ProduceRequest.SerializeToString,
            response_deserializer=pb.ProduceResponse.FromString,
        )
        produce(
            pb.ProduceRequest(topic="over-grpc", records=[pb.Record(value=b"x")]), metadata=[("traceparent", header)]
        )
    call = "streamhouse.v1/Produce"
    result = of_trace(
        collector.wait_for(lambda spans: {call, "append over-grpc"} <= set(of_trace(spans, trace))), trace
    )
    assert result[call]["parentSpanId"] == span
    assert result["append over-grpc"]["parentSpanId"] == result[call]["spanId"]


def test_histograms_have_exemplars_in_openmetrics(agent: LiveAgent, collector: Collector) -> None:
    trace, _, header = context(9)
    with httpx.Client(base_url=f"http://{agent.http}") as http:
        http.get("/v1/topics", headers={"traceparent": header}).raise_for_status()
        response = http.get(
            "/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
        )
        plain = http.get("/metrics")
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")
    exemplars = [line for line in response.text.splitlines() if f'trace_id="{trace}"' in line]
    assert exemplars
    assert exemplars[0].startswith("streamhouse_http_request_seconds_bucket{")
    assert "trace_id" not in plain.text
    assert "streamhouse_tracing_spans_exported_total" in plain.text


def test_an_error_has_the_id_of_its_request_and_so_has_the_log(agent: LiveAgent) -> None:
    with httpx.Client(base_url=f"http://{agent.http}") as http:
        given = http.get("/v1/topics/nothing", headers={"x-request-id": "ticket-4711"})
        made = http.get("/v1/topics/nothing", headers={"x-request-id": "no spaces, please"})
    assert given.headers["x-request-id"] == given.json()["request_id"] == "ticket-4711"
    assert made.headers["x-request-id"] == made.json()["request_id"] != "no spaces, please"


def test_a_failed_call_has_its_id_in_the_metadata(agent: LiveAgent) -> None:
    import grpc

    with grpc.insecure_channel(agent.grpc) as channel:
        describe = channel.unary_unary("/streamhouse.v1.AdminService/DescribeTopic")
        with pytest.raises(grpc.RpcError) as failed:
            describe(b"\x0a\x07nothing", metadata=[("x-request-id", "ticket-4712")])
    assert ("x-request-id", "ticket-4712") in [tuple(each) for each in failed.value.trailing_metadata()]


def test_a_collector_that_is_away_stops_nothing(tmp_path: Path) -> None:
    flags = ["--set", "tracing.endpoint=http://127.0.0.1:9/v1/traces", "--set", "tracing.interval_s=0.05"]
    with LiveAgent(tmp_path / "data", *flags, "--set", "agent.log_format=json") as agent:
        with httpx.Client(base_url=f"http://{agent.http}", headers={"traceparent": context(10)[2]}) as http:
            for _ in range(20):
                http.get("/v1/topics").raise_for_status()
            while "spans_dropped_total 0.0" in (metrics := http.get("/metrics").text):
                pass
        assert "streamhouse_tracing_spans_dropped_total" in metrics
        assert agent.stop() == 0
        lines = [json.loads(line) for line in agent.output.splitlines() if line.startswith("{")]
    assert any(line["event"] == "spans can't be exported" for line in lines)


def test_what_a_pipeline_has_read_is_in_the_traces_of_its_records(agent: LiveAgent, collector: Collector) -> None:
    traces = [context(number) for number in (12, 13, 14)]
    producer = Producer({"bootstrap.servers": agent.bootstrap})
    for _, _, header in traces:
        producer.produce("read-by-a-pipeline", b"x", headers={"traceparent": header.encode()})
        producer.flush()

    def beats(start: int, end: int) -> None:
        progress = {"generation": 1, "read": {"read-by-a-pipeline": {"0": [start, end]}}}
        running = {"name": "large", "epoch": 1, "status": {"phase": "running", "batch_ms": 5, "progress": progress}}
        body = {"host": "here", "slots": 1, "running": [running]}
        httpx.post(f"http://{agent.http}/v1/supervisors/one/heartbeat", json=body).raise_for_status()

    def read(spans: Spans) -> list[str]:
        return [span["traceId"] for span in spans if span["name"] == "pipeline large"]

    beats(1, 2)
    collector.wait_for(lambda spans: len(read(spans)) == 1)
    beats(1, 3)  # what it said before, and one more
    spans = collector.wait_for(lambda spans: len(read(spans)) == 2)
    assert read(spans) == [traces[1][0], traces[2][0]]
    result = of_trace(spans, traces[2][0])
    assert result["pipeline large"]["parentSpanId"] == result["append read-by-a-pipeline"]["spanId"]


@pytest.mark.parametrize("read", [{"orders": 5}, {"orders": {"0": [1]}}, {"orders": {"x": [1, 2]}}, [], "text"])
def test_a_status_that_says_nothing_of_offsets_is_no_error(read: object) -> None:
    assert reads_of("large", StatusView(progress={"read": read})) == []


async def test_without_a_collector_no_header_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*_: object, **__: object) -> None:
        raise AssertionError("a header was looked for")

    monkeypatch.setattr("streamhouse.broker.produce.append.find_traceparents", looked)
    listen = dict.fromkeys(("kafka.listen", "http.listen", "grpc.listen"), "127.0.0.1:0")
    async with build_agent(load_settings({"agent.data": str(tmp_path), **listen}, {})) as agent:
        assert agent.broker.tracer is None
        header = ("traceparent", context(11)[2].encode())
        record = NewRecord(b"x", None, (header,))
        (receipt,) = await agent.broker.records.publish("orders", [record], acks=Acks.WAL, timeout_s=30)
    assert isinstance(receipt, Receipt)
