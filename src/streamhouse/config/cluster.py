"""Settings of an agent, its leases, and its cluster."""

from typing import Annotated, Literal

from msgspec import Meta

from streamhouse.config.fields import MIB, Section, about


class AgentSettings(Section, frozen=True, kw_only=True):
    data: Annotated[str, about("data folder: embedded metadata and object stores, disk WAL")] = "./data"
    zone: Annotated[
        str,
        Meta(
            description="availability zone or rack of the agent, which Kafka clients see as its rack (`broker.rack`)",
            pattern=r"^[A-Za-z0-9._-]{0,255}$",
        ),
    ] = ""
    stop_timeout_s: Annotated[
        float,
        about("limit of a graceful stop for handing partitions over, and again for flushing them", gt=0),
    ] = 30.0
    close_timeout_s: Annotated[
        float,
        about("limit of each other step of a stop: closing the WAL, the listeners, the stores", gt=0),
    ] = 10.0
    log_format: Annotated[Literal["text", "json"], about("format of log lines on standard error")] = "text"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], about("lowest log level that is written")] = (
        "info"
    )
    max_metric_topics: Annotated[
        int, about("topics that have metrics of their own; further ones are counted together, as `(others)`", ge=0)
    ] = 1000

    @property
    def longest_stop_s(self) -> float:
        """Time after SIGTERM within which the process has ended: handover, flush, and three other steps (the WAL,
        notifying other agents, listeners and stores)."""
        return 2 * self.stop_timeout_s + 3 * self.close_timeout_s


class LeaseSettings(Section, frozen=True, kw_only=True):
    ttl_s: Annotated[
        float,
        about(
            "time after an agent's death within which others have taken over its partitions; includes takeover_s", gt=0
        ),
    ] = 30.0
    takeover_s: Annotated[
        float,
        about(
            "part of ttl_s reserved for taking over: a session expires ttl_s - takeover_s after its last heartbeat",
            ge=0,
        ),
    ] = 12.0
    renew_s: Annotated[float, about("time between heartbeats", gt=0)] = 3.0
    renew_timeout_s: Annotated[
        float, about("timeout of a heartbeat; shortened if two failed ones in a row would make appends fail", gt=0)
    ] = 3.0
    stall_s: Annotated[
        float,
        about(
            "how long heartbeats continue while the agent's event loop is blocked; then other agents take over", gt=0
        ),
    ] = 30.0
    margin_s: Annotated[
        float,
        about(
            "safety margin: an agent stops acting on a lease this long before the lease expires by its monotonic clock",
            ge=0,
        ),
    ] = 3.0

    @property
    def life_ms(self) -> int:
        """How long a session lives in the metadata store without a heartbeat."""
        return round((self.ttl_s - self.takeover_s) * 1000)

    @property
    def usable_s(self) -> float:
        """How long after sending a heartbeat an agent may act on its leases."""
        return self.ttl_s - self.takeover_s - self.margin_s

    @property
    def heartbeat_timeout_s(self) -> float:
        """Timeout of one heartbeat, such that after two failures in a row the third still ends while the leases are
        valid."""
        return min(self.renew_timeout_s, (self.usable_s - self.renew_s) / 4)

    @property
    def heartbeat_retry_s(self) -> float:
        """Pause after a heartbeat that failed."""
        return self.heartbeat_timeout_s / 4


class ClusterSettings(Section, frozen=True, kw_only=True):
    refresh_s: Annotated[float, about("longest time until an agent notices a change of the cluster", gt=0)] = 1.0
    moves_at_once: Annotated[int, about("partitions handed over in one step", gt=0)] = 100
    handover_wait_s: Annotated[
        float, about("how long a request waits for a partition that is moving to this agent", ge=0)
    ] = 0.5
    rescue_delay_s: Annotated[
        float,
        about(
            "how long the recovery of a dead session is left to the agent designated for it; at most a quarter "
            "of lease.takeover_s",
            ge=0,
        ),
    ] = 2.0
    cut_off_s: Annotated[
        float,
        about(
            "object WAL: an agent gives up its partitions when none of its writes reached the bucket for this "
            "time while other agents' writes did; at least four heartbeats",
            gt=0,
        ),
    ] = 30.0
    departed_listed_s: Annotated[
        float, about("how long metadata responses still list the address of an agent that died", ge=0)
    ] = 5.0
    departed_redirected_s: Annotated[
        float,
        about(
            "how long the node id of a departed agent is advertised with the address of a living one, for "
            "clients that bind calls to a node id (Java, librdkafka); at least as long as their calls, 60 s; "
            "longer if other agents depart meanwhile",
            ge=0,
        ),
    ] = 60.0
    return_wait_s: Annotated[
        float,
        about(
            "how long an agent that restarted at the same address after a crash gets no partitions: clients "
            "whose connections were refused wait up to 10 s before they reconnect",
            ge=0,
        ),
    ] = 12.0
    reserve_offsets: Annotated[
        int, about("disk WAL: offsets that a partition's leader reserves ahead; the next are requested at half", gt=1)
    ] = 1_000_000
    disk_wait_s: Annotated[
        float,
        about(
            "disk WAL: how long after a dead agent's lease expires others wait for its disk before they open the "
            "partition",
            ge=0,
        ),
    ] = 60.0
    generation_s: Annotated[
        float,
        about(
            "interval of writing a new generation to the object store while segments are added; what Spark jobs "
            "committed after a dump younger than this may be missing unnoticed when the dump is restored",
            gt=0,
        ),
    ] = 60.0
    returns_at_once: Annotated[
        int, about("disk WAL: partitions that are re-appended concurrently when the disk of a dead agent is back", gt=0)
    ] = 16


class AgentClientSettings(Section, frozen=True, kw_only=True):
    timeout_s: Annotated[
        float, about("time without a response to a forwarded request after which the other agent counts as gone", gt=0)
    ] = 30.0
    max_inflight_requests: Annotated[
        int, about("maximum requests in flight to one other agent; further ones wait", gt=0)
    ] = 64
    max_inflight_bytes: Annotated[
        int, about("maximum bytes of requests in flight to one other agent; further requests wait", gt=0)
    ] = 64 * MIB
    max_waiting: Annotated[
        int, about("requests that may wait to be forwarded to one agent; further ones are rejected", gt=0)
    ] = 10_000
    max_polls: Annotated[
        int, about("concurrent reads at one other agent, a connection each; further ones wait", gt=0)
    ] = 256
    idle_links: Annotated[int, about("idle connections kept open to one other agent", ge=0)] = 8
    reconnect_s: Annotated[float, about("wait before another attempt to connect to an unreachable agent", ge=0)] = 0.1
    retry_s: Annotated[
        float, about("first wait before a leader is looked up again; doubles up to retry_max_s, with jitter", gt=0)
    ] = 0.05
    retry_max_s: Annotated[float, about("longest wait between two attempts to reach a leader", gt=0)] = 1.0
    lanes: Annotated[
        int, about("concurrent batches forwarded to one partition, each with its own producer id", gt=0)
    ] = 32
    lane_partitions: Annotated[int, about("partitions of other agents for which producer ids are kept", gt=0)] = 10_000
    max_buffered_bytes: Annotated[
        int, about("bytes of records with acks=buffered in flight to other agents; further ones wait", gt=0)
    ] = 64 * MIB
