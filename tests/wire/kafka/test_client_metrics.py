"""Client metrics (KIP-714): what clients are asked for, what they push, and what is refused."""

from uuid import UUID, uuid4

import pytest
from prometheus_client.core import Metric, Sample

from streamhouse.broker.broker import Broker
from streamhouse.clock import Ids
from streamhouse.config import KafkaSettings
from streamhouse.format.compression import Codec, compress
from streamhouse.wire.kafka.client_metrics import MAX_CLIENTS, ClientMetrics
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.handlers.get_telemetry_subscriptions import NO_ID
from streamhouse.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from streamhouse.wire.kafka.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from streamhouse.wire.kafka.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from streamhouse.wire.kafka.otlp_metrics import MAX_BYTES, MAX_FIELDS, Point
from tests.broker.support import StepClock
from tests.wire.kafka.otlp import CUMULATIVE, counter, field, gauge, metrics_data, pushed_metrics, varint
from tests.wire.kafka.talk import Client, Served, a_server, quick_settings

DAMAGED = {
    "a field beyond the end": b"\x0a\x7f",
    "a number without an end": b"\xff" * 10,
    "an unknown wire type": b"\x0b",
    "a number in place of a message": b"\x08\x01",
    "a name that is no text": metrics_data(field(1, b"\xff")),
    "a value of one byte": metrics_data(field(5, field(1, varint(4 << 3) + b"\x01"))),
    "too many fields": b"\x10\x01" * (MAX_FIELDS + 1),
}


@pytest.fixture
def kafka_settings() -> KafkaSettings:
    return KafkaSettings(client_metrics="latency., records.", client_metrics_series=3)


@pytest.fixture
async def named(client: Client) -> Client:
    request = ApiVersionsRequest(client_software_name="test-client", client_software_version="1")
    await client.call(request, ApiVersionsResponse, 3)
    return client


def pushed(served: Served, name: str, metric: str) -> float | None:
    labels = {"metric": metric, "software": "test-client"}
    return served.registry.get_sample_value(f"streamhouse_client_{name}", labels)


async def ask(client: Client, client_id: UUID = NO_ID) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=client_id)
    return await client.call(request, GetTelemetrySubscriptionsResponse, 0)


async def push(
    client: Client,
    metrics: bytes = b"",
    *,
    codec: int = Codec.NONE,
    client_id: UUID | None = None,
    subscription_id: int | None = None,
    is_last: bool = False,
) -> int:
    """As a new client, unless told otherwise."""
    requested = await ask(client, client_id or uuid4())
    pushed_id = requested.client_instance_id if client_id is None else client_id
    request = PushTelemetryRequest(
        client_instance_id=pushed_id,
        subscription_id=requested.subscription_id if subscription_id is None else subscription_id,
        terminating=is_last,
        compression_type=codec,
        metrics=metrics,
    )
    return (await client.call(request, PushTelemetryResponse, 0)).error_code


async def test_a_client_gets_an_id_and_what_to_push(named: Client) -> None:
    requested = await ask(named)
    assert requested.error_code == ErrorCode.NONE
    assert requested.client_instance_id != NO_ID
    assert requested.requested_metrics == ["latency.", "records."]
    assert (requested.push_interval_ms, requested.telemetry_max_bytes, requested.delta_temporality) == (
        60_000,
        MAX_BYTES,
        True,
    )
    assert requested.accepted_compression_types == [4, 3, 1, 2]
    offered = await named.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    assert {71, 72} <= {api.api_key for api in offered.api_keys}


@pytest.mark.parametrize("codec", Codec)
async def test_pushes_are_added_up_over_clients(named: Client, served: Served, codec: Codec) -> None:
    for latency, records in ((1.5, 7), (2.5, 3)):
        data = pushed_metrics({"latency.avg": latency}, {"records.total": records})
        assert await push(named, compress(codec, data), codec=codec) == ErrorCode.NONE
    assert pushed(served, "gauge_sum", "latency.avg") == 4.0
    assert pushed(served, "gauge_count", "latency.avg") == 2
    assert pushed(served, "counter_total", "records.total") == 10
    assert served.counted("streamhouse_client_pushes_total") == served.counted("streamhouse_client_instances") == 2


async def test_what_was_not_requested_and_what_can_not_be_added_is_left_out(named: Client, served: Served) -> None:
    odd = metrics_data(
        gauge("other.avg", 1.0),
        gauge("latency.\n", 1.0),
        gauge("latency.nan", float("nan")),
        gauge("latency.inf", float("inf")),
        counter("records.back", -1),
        counter("records.cumulative", 5, temporality=CUMULATIVE),
        *(gauge(f"latency.{number}", 1.0) for number in range(5)),
    )
    assert await push(named, odd) == ErrorCode.NONE
    names = [sample.labels["metric"] for metric in served.registry.collect() for sample in samples(metric)]
    assert sorted(set(names)) == ["latency.0", "latency.1", "latency.2"]
    assert served.counted("streamhouse_client_dropped_points_total") == 2


def samples(metric: Metric) -> list[Sample]:
    return metric.samples if metric.name in ("streamhouse_client_gauge", "streamhouse_client_counter") else []


@pytest.mark.parametrize("why", DAMAGED)
async def test_damaged_metrics_are_refused(named: Client, served: Served, why: str) -> None:
    assert await push(named, DAMAGED[why]) == ErrorCode.INVALID_RECORD
    assert served.counted("streamhouse_client_pushes_total") == 0


async def test_requests_that_kafka_refuses_are_refused_with_its_codes(named: Client) -> None:
    assert await push(named, codec=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert await push(named, b"no gzip", codec=Codec.GZIP) == ErrorCode.INVALID_RECORD
    assert await push(named, bytes(MAX_BYTES + 1)) == ErrorCode.TELEMETRY_TOO_LARGE
    bomb = compress(Codec.ZSTD, bytes(64 * MAX_BYTES))
    assert await push(named, bomb, codec=Codec.ZSTD) == ErrorCode.TELEMETRY_TOO_LARGE
    assert await push(named, subscription_id=1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert await push(named, client_id=NO_ID) == ErrorCode.INVALID_REQUEST
    client_id = uuid4()
    assert await push(named, client_id=client_id) == ErrorCode.NONE
    assert (await ask(named, client_id)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


class TestTimes:
    def setup_method(self) -> None:
        self.clock = StepClock()
        settings = KafkaSettings(client_metrics="*", client_metrics_interval_s=60.0)
        self.clients = ClientMetrics(settings, self.clock, Ids())
        self.client = uuid4()

    def push(self, *, subscription_id: int | None = None, is_last: bool = False) -> ErrorCode:
        known = self.clients.subscription_id if subscription_id is None else subscription_id
        return self.clients.admit(self.client, subscription_id=known, is_last=is_last)

    def test_a_client_pushes_once_in_an_interval_and_once_more_at_its_end(self) -> None:
        assert self.clients.ask(self.client) == ErrorCode.NONE
        assert self.push() == ErrorCode.NONE
        self.clock.skip(59.0)
        assert self.push() == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        self.clock.skip(1.0)
        assert self.push() == ErrorCode.NONE
        assert self.push(is_last=True) == ErrorCode.NONE
        assert self.push(is_last=True) == ErrorCode.INVALID_REQUEST

    def test_a_client_retries_at_once_when_its_subscription_is_unknown(self) -> None:
        assert self.clients.ask(self.client) == ErrorCode.NONE
        assert self.push(subscription_id=1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        assert self.clients.ask(self.client) == ErrorCode.NONE
        assert self.clients.ask(self.client) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert self.push() == ErrorCode.NONE

    def test_clients_beyond_the_limit_are_forgotten_and_not_refused(self) -> None:
        assert self.push() == ErrorCode.NONE
        for _ in range(MAX_CLIENTS):
            assert self.clients.ask(uuid4()) == ErrorCode.NONE
        assert repr(self.clients) == f"<ClientMetrics clients={MAX_CLIENTS} series=0>"
        assert self.push() == ErrorCode.NONE

    def test_all_metrics_are_requested_by_an_empty_prefix(self) -> None:
        assert self.clients.prefixes == ("",)
        points = [Point("any.metric", True, 1.0), Point("any.metric", True, 2.0)]
        self.clients.add(self.clients.summarize(points), software="")
        [counter, *_] = self.clients.collect()
        [sample] = counter.samples
        assert (sample.labels, sample.value) == ({"metric": "any.metric", "software": "unknown"}, 3.0)


async def test_agents_that_want_no_metrics_offer_no_such_api_and_refuse_it(broker: Broker) -> None:
    async with a_server(broker, quick_settings(KafkaSettings())) as served:
        client = await served.client()
        offered = await client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
        assert {api.api_key for api in offered.api_keys}.isdisjoint({71, 72})
        assert (await ask(client)).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert await push(client) == ErrorCode.UNSUPPORTED_VERSION
