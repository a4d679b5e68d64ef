"""Settings of the listeners: Kafka, HTTP, gRPC.

Owns        the limits of what clients may do to an agent: how many, how often, how much, how slowly
Leaves      the agent's other sections to `settings`
"""

from typing import Annotated

from streamhouse.config.fields import MIB, Section, about


class KafkaSettings(Section, frozen=True, kw_only=True):
    listen: Annotated[str, about("address of the Kafka listener, HOST:PORT; port 0 picks a free one")] = (
        "127.0.0.1:9092"
    )
    advertise: Annotated[str, about("address that clients are told, HOST:PORT; empty: the listener's own")] = ""
    max_request_bytes: Annotated[int, about("largest request; larger ones are refused before they are read", gt=0)] = (
        100 * MIB
    )
    max_request_elements: Annotated[
        int,
        about(
            "array elements in one request (topics, partitions, groups and the like, together); a request with more is"
            " refused, and its connection closed",
            gt=0,
            le=1_000_000,
        ),
    ] = 100_000
    max_inflight_bytes: Annotated[
        int,
        about(
            "bytes that came of requests being read or answered, over all connections; beyond it reading pauses, except"
            " of one request",
            gt=0,
        ),
    ] = 256 * MIB
    small_request_bytes: Annotated[
        int, about("requests up to this size have room that larger ones can't take", gt=0)
    ] = 64 * 1024
    small_inflight_bytes: Annotated[
        int, about("that room: what of `max_inflight_bytes` is theirs, half of it at most", gt=0)
    ] = 32 * MIB
    stalled_request_timeout_s: Annotated[
        float,
        about(
            "while other requests wait for room, a request that comes more slowly than `min_request_bytes_per_s` for so"
            " long is given up",
            gt=0,
        ),
    ] = 5.0
    max_inflight_requests: Annotated[
        int, about("requests of one connection being answered; then reading pauses", gt=0)
    ] = 64
    max_connections: Annotated[int, about("open connections; further ones are closed at once", gt=0)] = 10_000
    max_connections_per_ip: Annotated[
        int, about("open connections of one client address, loopback aside; further ones are closed at once", gt=0)
    ] = 2000
    max_connections_per_ip_overrides: Annotated[
        str, about("open connections of single addresses instead, ADDRESS:LIMIT with commas between; of loopback, too")
    ] = ""
    connections_per_s: Annotated[
        float, about("new connections in a second, loopback aside; further ones wait for their turn", gt=0)
    ] = 1000.0
    connections_per_s_per_ip: Annotated[
        float, about("new connections of one client address in a second; further ones wait, too", gt=0)
    ] = 200.0
    rate_clients: Annotated[
        int, about("client addresses whose rate is known; of more, the longest silent are forgotten", gt=0)
    ] = 10_000
    failures_per_s: Annotated[
        float,
        about("times in a second that one connection may be refused and ask again; answers to more are delayed", gt=0),
    ] = 50.0
    max_failure_delay_s: Annotated[
        float, about("longest delay of a refusal, for a connection that goes on; 0: never", ge=0)
    ] = 0.25
    idle_timeout_s: Annotated[float, about("a connection without a request for so long is closed", gt=0)] = 600.0
    first_request_timeout_s: Annotated[
        float, about("a connection whose first request is not there after this time is closed", gt=0)
    ] = 10.0
    partial_request_timeout_s: Annotated[float, about("a request must arrive whole within this time", gt=0)] = 60.0
    min_request_bytes_per_s: Annotated[
        int, about("a request that comes more slowly than this, after its first 10 s, is given up", ge=0)
    ] = 1024
    write_buffer_bytes: Annotated[
        int, about("answers waiting for a slow reader; beyond it no further request of the connection is read", gt=0)
    ] = 4 * MIB
    slow_reader_timeout_s: Annotated[
        float, about("a client that takes nothing of its waiting answers for so long is closed", gt=0)
    ] = 60.0


class HttpSettings(Section, frozen=True, kw_only=True):
    listen: Annotated[str, about("address of the HTTP listener, HOST:PORT; port 0 picks a free one")] = "127.0.0.1:8080"
    advertise: Annotated[str, about("address that others are told, HOST:PORT; empty: the listener's own")] = ""
    allowed_hosts: Annotated[
        str,
        about("names, with commas, by which a listener on loopback may be called besides localhost and `advertise`"),
    ] = ""
    max_connections: Annotated[int, about("open connections; further ones are closed at once", gt=0)] = 2000
    max_connections_per_ip: Annotated[
        int, about("open connections of one client address, loopback aside; further ones are closed at once", gt=0)
    ] = 500
    max_connections_per_ip_overrides: Annotated[
        str, about("open connections of single addresses instead, ADDRESS:LIMIT with commas between; of loopback, too")
    ] = ""
    connections_per_s: Annotated[
        float, about("new connections in a second, loopback aside; further ones wait for their turn", gt=0)
    ] = 1000.0
    connections_per_s_per_ip: Annotated[
        float, about("new connections of one client address in a second; further ones wait, too", gt=0)
    ] = 200.0
    max_requests: Annotated[int, about("requests being answered at once; further ones get 429", gt=0)] = 1000
    requests_per_s: Annotated[
        float, about("requests of one client address in a second; further ones get 429", gt=0)
    ] = 10_000.0
    rate_clients: Annotated[
        int, about("client addresses whose rate is known; of more, the longest silent are forgotten", gt=0)
    ] = 10_000
    failures_per_s: Annotated[
        float,
        about("times in a second that one connection may be refused and ask again; answers to more are delayed", gt=0),
    ] = 50.0
    max_failure_delay_s: Annotated[
        float, about("longest delay of a refusal, for a connection that goes on; 0: never", ge=0)
    ] = 0.25
    max_streams: Annotated[int, about("streams of records open at once; further ones get 429", gt=0)] = 500
    max_body_bytes: Annotated[int, about("largest body, except of NDJSON uploads, which have no end", gt=0)] = 8 * MIB
    max_inflight_bytes: Annotated[
        int, about("bytes of bodies being read, over all requests; further ones get 429", gt=0)
    ] = 256 * MIB
    max_line_bytes: Annotated[int, about("longest line of an NDJSON upload", gt=0)] = 2 * MIB
    upload_records: Annotated[int, about("records of an NDJSON upload that are published together", gt=0)] = 5000
    upload_bytes: Annotated[int, about("size of lines of an upload at which they are published", gt=0)] = MIB
    upload_linger_s: Annotated[
        float, about("how long records of an upload wait for more to be published with", gt=0)
    ] = 0.05
    stream_read_bytes: Annotated[int, about("bytes of batches that one stream reads at once", gt=0)] = 256 * 1024
    write_buffer_bytes: Annotated[
        int, about("bytes of an answer that wait for a slow reader before the next piece is made", gt=0)
    ] = 256 * 1024
    idle_timeout_s: Annotated[float, about("a connection without a request for so long is closed", gt=0)] = 60.0
    header_timeout_s: Annotated[float, about("a request's headers must arrive within this time", gt=0)] = 10.0
    body_timeout_s: Annotated[float, about("a body must arrive whole within this time", gt=0)] = 60.0
    body_idle_timeout_s: Annotated[float, about("an upload of which nothing comes for so long is ended", gt=0)] = 60.0
    publish_timeout_s: Annotated[float, about("how long records may take to be acknowledged", gt=0)] = 30.0
    slow_reader_timeout_s: Annotated[
        float, about("a client that takes nothing of its answer for so long is cut off", gt=0)
    ] = 30.0
    keep_alive_s: Annotated[float, about("a stream without records says after so long that it is alive", gt=0)] = 15.0
    reconnect_s: Annotated[float, about("browsers are told to come back so long after a stream ended", gt=0)] = 2.0


class GrpcSettings(Section, frozen=True, kw_only=True):
    listen: Annotated[
        str, about("address of the gRPC listener, HOST:PORT; port 0 picks a free one; empty: no gRPC here")
    ] = "127.0.0.1:9090"
    max_message_bytes: Annotated[
        int, about("largest message that is received, a larger one is refused; and the most that Fetch answers", gt=0)
    ] = 16 * MIB
    max_inflight_bytes: Annotated[
        int, about("bytes of records being appended, over all calls; beyond it calls are refused", gt=0)
    ] = 256 * MIB
    max_requests: Annotated[int, about("calls and streams at once; further ones are refused", gt=0)] = 1000
    max_requests_per_ip: Annotated[
        int, about("calls and streams of one client address at once, loopback aside; further ones are refused", gt=0)
    ] = 500
    calls_per_s: Annotated[
        float,
        about(
            "calls, and messages in streams, of one client address in a second; calls are refused, streams wait", gt=0
        ),
    ] = 10_000.0
    rate_clients: Annotated[
        int, about("client addresses whose rate is known; of more, the longest silent are forgotten", gt=0)
    ] = 10_000
    failures_per_s: Annotated[
        float,
        about("times in a second that one connection may be refused and ask again; answers to more are delayed", gt=0),
    ] = 50.0
    max_failure_delay_s: Annotated[
        float, about("longest delay of a refusal, for a connection that goes on; 0: never", ge=0)
    ] = 0.25
    max_connections: Annotated[int, about("open connections; further ones are closed at once", gt=0)] = 1000
    max_streams: Annotated[int, about("calls and streams of one connection at once; further ones wait", gt=0)] = 100
    max_positions: Annotated[int, about("partitions that one call or one stream may name", gt=0)] = 10_000
    stream_inflight: Annotated[
        int, about("messages of one produce stream being appended; then reading pauses", gt=0)
    ] = 16
    fetch_bytes: Annotated[
        int, about("bytes of batches that one message of a consume stream is made of; also Fetch's default", gt=0)
    ] = MIB
    default_timeout_s: Annotated[
        float,
        about(
            "deadline of calls whose client sets none, of a call's message to come, of each in a produce stream", gt=0
        ),
    ] = 30.0
    slow_reader_timeout_s: Annotated[
        float, about("a stream whose client takes nothing of what waits for it for so long is ended", gt=0)
    ] = 60.0
    handshake_timeout_s: Annotated[
        float, about("a connection that has not begun to speak HTTP/2 after this time is closed", gt=0)
    ] = 10.0
    idle_timeout_s: Annotated[float, about("a connection without a call for so long is closed", gt=0)] = 600.0
    keepalive_s: Annotated[float, about("a silent connection is pinged after this time", gt=0)] = 60.0
    keepalive_timeout_s: Annotated[float, about("a ping must be answered within this time", gt=0)] = 20.0
    min_ping_interval_s: Annotated[
        float, about("a client that pings more often than this, again and again, is closed", gt=0)
    ] = 10.0
