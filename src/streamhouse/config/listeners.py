"""Settings of the listeners: Kafka, HTTP, gRPC.

Owns        limits for clients: number of connections, request rates, sizes and timeouts
Leaves      the agent's other sections to `settings`
"""

from typing import Annotated

from streamhouse.config.fields import MIB, Section, about


class KafkaSettings(Section, frozen=True, kw_only=True):
    listen: Annotated[
        str,
        about(
            "address of the Kafka listener, HOST:PORT; port 0 picks a free one. Several listeners have names, as in "
            "INTERNAL://0.0.0.0:9092,PUBLIC://0.0.0.0:9094; agents use the first one among themselves"
        ),
    ] = "127.0.0.1:9092"
    advertise: Annotated[
        str,
        about(
            "address advertised to clients, HOST:PORT, or one for each named listener; {host} and {ordinal} stand for "
            "this machine's name and the number at its end; empty: the listener's own"
        ),
    ] = ""
    protocol: Annotated[
        str,
        about(
            "PLAINTEXT, SSL (TLS), SASL_PLAINTEXT (login) or SASL_SSL (both): one for all listeners, or NAME:PROTOCOL "
            "pairs with commas"
        ),
    ] = "PLAINTEXT"
    max_request_bytes: Annotated[
        int, about("maximum size of a request; larger ones are rejected before they are read", gt=0)
    ] = 100 * MIB
    max_request_elements: Annotated[
        int,
        about(
            "maximum array elements in one request (topics, partitions, groups and so on, in total); a request "
            "with more is rejected and its connection closed",
            gt=0,
            le=1_000_000,
        ),
    ] = 100_000
    max_inflight_bytes: Annotated[
        int,
        about(
            "maximum received bytes of requests in flight, over all connections; beyond it only one request is "
            "read further",
            gt=0,
        ),
    ] = 256 * MIB
    small_request_bytes: Annotated[
        int, about("size up to which requests use the budget small_inflight_bytes", gt=0)
    ] = 64 * 1024
    small_inflight_bytes: Annotated[
        int, about("part of `max_inflight_bytes` reserved for small requests; at most half of it", gt=0)
    ] = 32 * MIB
    stalled_request_timeout_s: Annotated[
        float,
        about(
            "while other requests wait for memory, time after which a request slower than "
            "`min_request_bytes_per_s` is dropped and its connection closed",
            gt=0,
        ),
    ] = 5.0
    max_inflight_requests: Annotated[
        int, about("maximum requests in flight of one connection; at it reading pauses", gt=0)
    ] = 64
    max_connections: Annotated[int, about("maximum open connections; further ones are closed at once", gt=0)] = 10_000
    max_connections_per_ip: Annotated[
        int,
        about("maximum open connections of one client address, except loopback; further ones are closed at once", gt=0),
    ] = 2000
    max_connections_per_ip_overrides: Annotated[
        str, about("overrides of max_connections_per_ip, loopback included: ADDRESS:LIMIT, separated by commas")
    ] = ""
    connections_per_s: Annotated[
        float, about("new connections per second, except loopback; further ones wait", gt=0)
    ] = 1000.0
    connections_per_s_per_ip: Annotated[
        float, about("new connections per second of one client address; further ones wait", gt=0)
    ] = 200.0
    rate_clients: Annotated[
        int, about("client addresses whose rates are tracked; the longest inactive are dropped first", gt=0)
    ] = 10_000
    failures_per_s: Annotated[
        float,
        about("error responses per second of one connection; further ones are delayed", gt=0),
    ] = 50.0
    max_failure_delay_s: Annotated[float, about("longest delay of an error response; 0: no delay", ge=0)] = 0.25
    idle_timeout_s: Annotated[float, about("time without a request after which a connection is closed", gt=0)] = 600.0
    first_request_timeout_s: Annotated[
        float, about("time within which a new connection must send its first request", gt=0)
    ] = 10.0
    partial_request_timeout_s: Annotated[
        float, about("time within which a request must be received completely", gt=0)
    ] = 60.0
    min_request_bytes_per_s: Annotated[
        int, about("minimum rate of a request after its first 10 s; slower ones are dropped", ge=0)
    ] = 1024
    write_buffer_bytes: Annotated[
        int, about("unsent response bytes of a connection, beyond which its next request is not read", gt=0)
    ] = 4 * MIB
    slow_reader_timeout_s: Annotated[
        float, about("time without reading pending responses after which a client's connection is closed", gt=0)
    ] = 60.0
    client_metrics: Annotated[
        str,
        about(
            "prefixes of the metrics that clients are asked to push (KIP-714), separated by commas, such as "
            "org.apache.kafka.producer.; * for all; empty: none"
        ),
    ] = ""
    client_metrics_interval_s: Annotated[
        float, about("interval in which clients push their metrics", ge=0.1, le=86_400)
    ] = 60.0
    client_metrics_series: Annotated[
        int, about("client metrics kept, each of one kind of client software; further ones are left out", gt=0)
    ] = 1000


class HttpSettings(Section, frozen=True, kw_only=True):
    listen: Annotated[
        str,
        about("address of the HTTP listener, HOST:PORT; port 0 picks a free one; several listeners as in kafka.listen"),
    ] = "127.0.0.1:8080"
    advertise: Annotated[
        str,
        about("address advertised to clients and other agents, as in kafka.advertise; empty: the listener's own"),
    ] = ""
    protocol: Annotated[
        str,
        about(
            "PLAINTEXT, SSL (TLS), SASL_PLAINTEXT (login) or SASL_SSL (both): one for all listeners, or NAME:PROTOCOL "
            "pairs with commas"
        ),
    ] = "PLAINTEXT"
    allowed_hosts: Annotated[
        str,
        about("host names, separated by commas, that a listener on loopback accepts besides localhost and `advertise`"),
    ] = ""
    console_read_only: Annotated[
        bool, about("the console is read-only; this is no access control, which access rules are for")
    ] = False
    console_tail_records: Annotated[
        int, about("records after which the console's live tail pauses until the user resumes it", gt=0)
    ] = 20_000
    max_connections: Annotated[int, about("maximum open connections; further ones are closed at once", gt=0)] = 2000
    max_connections_per_ip: Annotated[
        int,
        about("maximum open connections of one client address, except loopback; further ones are closed at once", gt=0),
    ] = 500
    max_connections_per_ip_overrides: Annotated[
        str, about("overrides of max_connections_per_ip, loopback included: ADDRESS:LIMIT, separated by commas")
    ] = ""
    connections_per_s: Annotated[
        float, about("new connections per second, except loopback; further ones wait", gt=0)
    ] = 1000.0
    connections_per_s_per_ip: Annotated[
        float, about("new connections per second of one client address; further ones wait", gt=0)
    ] = 200.0
    max_requests: Annotated[int, about("maximum concurrent requests; further ones get 429", gt=0)] = 1000
    requests_per_s: Annotated[float, about("requests per second of one client address; further ones get 429", gt=0)] = (
        10_000.0
    )
    rate_clients: Annotated[
        int, about("client addresses whose rates are tracked; the longest inactive are dropped first", gt=0)
    ] = 10_000
    failures_per_s: Annotated[
        float,
        about("error responses per second of one connection; further ones are delayed", gt=0),
    ] = 50.0
    max_failure_delay_s: Annotated[float, about("longest delay of an error response; 0: no delay", ge=0)] = 0.25
    max_streams: Annotated[int, about("maximum open record streams; further ones get 429", gt=0)] = 500
    max_searches: Annotated[int, about("maximum searches at the same time; further ones get 429", gt=0)] = 4
    search_time_s: Annotated[
        float, about("time after which a search is answered; the next request continues with its cursor", gt=0)
    ] = 10.0
    max_body_bytes: Annotated[
        int, about("maximum size of a body, except of NDJSON uploads, which are unlimited", gt=0)
    ] = 8 * MIB
    max_inflight_bytes: Annotated[
        int, about("maximum bytes of bodies being read, over all requests; further ones get 429", gt=0)
    ] = 256 * MIB
    max_line_bytes: Annotated[int, about("maximum length of a line of an NDJSON upload", gt=0)] = 2 * MIB
    upload_records: Annotated[int, about("records of an NDJSON upload published together", gt=0)] = 5000
    upload_bytes: Annotated[int, about("size of the lines of an upload published together", gt=0)] = MIB
    upload_linger_s: Annotated[
        float, about("how long records of an upload wait for others to be published together", gt=0)
    ] = 0.05
    stream_read_bytes: Annotated[int, about("bytes of batches that a record stream reads at once", gt=0)] = 256 * 1024
    max_record_bytes: Annotated[
        int, about("largest record that is written as JSON; for larger ones, requests get an error", gt=0)
    ] = 16 * MIB
    max_json_bytes: Annotated[
        int, about("memory for records that are written as JSON, over all requests; further ones wait", gt=0)
    ] = 512 * MIB
    write_buffer_bytes: Annotated[
        int, about("unsent bytes of a response, beyond which the next part is not produced", gt=0)
    ] = 256 * 1024
    idle_timeout_s: Annotated[float, about("time without a request after which a connection is closed", gt=0)] = 60.0
    header_timeout_s: Annotated[float, about("time within which a request's headers must be received", gt=0)] = 10.0
    max_header_bytes: Annotated[
        int, about("largest size of a request line with its headers; cursors of large topics are long", gt=0)
    ] = 64 * 1024
    body_timeout_s: Annotated[float, about("time within which a body must be received completely", gt=0)] = 60.0
    body_idle_timeout_s: Annotated[float, about("time without data after which an upload is ended", gt=0)] = 60.0
    publish_timeout_s: Annotated[float, about("timeout of publishing records", gt=0)] = 30.0
    slow_reader_timeout_s: Annotated[
        float, about("time without reading its response after which a client's connection is closed", gt=0)
    ] = 30.0
    keep_alive_s: Annotated[
        float, about("interval of keep-alive messages on a record stream without records", gt=0)
    ] = 15.0
    reconnect_s: Annotated[float, about("reconnection delay that event streams give to browsers", gt=0)] = 2.0


class GrpcSettings(Section, frozen=True, kw_only=True):
    listen: Annotated[
        str,
        about(
            "address of the gRPC listener, HOST:PORT; port 0 picks a free one; several listeners as in kafka.listen; "
            "empty: no gRPC here"
        ),
    ] = "127.0.0.1:9090"
    protocol: Annotated[
        str,
        about(
            "PLAINTEXT, SSL (TLS), SASL_PLAINTEXT (login) or SASL_SSL (both): one for all listeners, or NAME:PROTOCOL "
            "pairs with commas"
        ),
    ] = "PLAINTEXT"
    max_message_bytes: Annotated[int, about("maximum size of a received message; also of a Fetch response", gt=0)] = (
        16 * MIB
    )
    max_inflight_bytes: Annotated[
        int, about("maximum bytes of records being appended, over all calls; further calls are rejected", gt=0)
    ] = 256 * MIB
    max_requests: Annotated[int, about("maximum concurrent calls and streams; further ones are rejected", gt=0)] = 1000
    max_requests_per_ip: Annotated[
        int,
        about(
            "maximum concurrent calls and streams of one client address, except loopback; further ones are rejected",
            gt=0,
        ),
    ] = 500
    calls_per_s: Annotated[
        float,
        about(
            "calls and stream messages per second of one client address; further calls are rejected, streams wait", gt=0
        ),
    ] = 10_000.0
    rate_clients: Annotated[
        int, about("client addresses whose rates are tracked; the longest inactive are dropped first", gt=0)
    ] = 10_000
    failures_per_s: Annotated[
        float,
        about("error responses per second of one connection; further ones are delayed", gt=0),
    ] = 50.0
    max_failure_delay_s: Annotated[float, about("longest delay of an error response; 0: no delay", ge=0)] = 0.25
    max_connections: Annotated[int, about("maximum open connections; further ones are closed at once", gt=0)] = 1000
    max_streams: Annotated[
        int, about("maximum concurrent calls and streams of one connection; further ones wait", gt=0)
    ] = 100
    max_positions: Annotated[int, about("maximum partitions of one call or stream", gt=0)] = 10_000
    stream_inflight: Annotated[
        int, about("maximum messages in flight of one produce stream; at it reading pauses", gt=0)
    ] = 16
    fetch_bytes: Annotated[
        int, about("bytes of batches in one message of a consume stream; also the default of Fetch", gt=0)
    ] = MIB
    default_timeout_s: Annotated[
        float,
        about(
            "deadline of calls for which the client sets none, of receiving a call's message, and of each "
            "message of a produce stream",
            gt=0,
        ),
    ] = 30.0
    slow_reader_timeout_s: Annotated[
        float, about("time without reading pending messages after which a stream is ended", gt=0)
    ] = 60.0
    handshake_timeout_s: Annotated[float, about("time within which a new connection must begin HTTP/2", gt=0)] = 10.0
    idle_timeout_s: Annotated[float, about("time without a call after which a connection is closed", gt=0)] = 600.0
    keepalive_s: Annotated[float, about("time without traffic after which a connection is pinged", gt=0)] = 60.0
    keepalive_timeout_s: Annotated[float, about("timeout of a ping's response", gt=0)] = 20.0
    min_ping_interval_s: Annotated[
        float,
        about("minimum interval of a client's pings; connections that repeatedly ping more often are closed", gt=0),
    ] = 10.0
