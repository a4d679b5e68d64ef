"""The settings: values with names, units, defaults and a description each.

Owns        limits, defaults and their descriptions (`streamhouse config show` prints them)
Leaves      where values come from to `load`; turning settings into components to `agent`
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from streamhouse.config.coordination import TransactionSettings
from streamhouse.config.encryption import EncryptionSettings
from streamhouse.config.fields import MIB, Section, about
from streamhouse.config.listeners import GrpcSettings, HttpSettings, KafkaSettings
from streamhouse.config.pipelines import (
    ExternalCommitSettings,
    MaintenanceSettings,
    PipelineSettings,
    PlanSettings,
    SqlSettings,
    TableSettings,
    ViewSettings,
)
from streamhouse.config.quotas import QuotaSettings
from streamhouse.config.security import SecuritySettings
from streamhouse.config.tracing import TracingSettings


class AgentSettings(Section, frozen=True, kw_only=True):
    data: Annotated[str, about("data folder: embedded metadata and object stores, disk WAL")] = "./data"
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

    @property
    def longest_stop_s(self) -> float:
        """Time after SIGTERM within which the process has ended: handover, flush, and three other steps (the WAL,
        notifying other agents, listeners and stores)."""
        return 2 * self.stop_timeout_s + 3 * self.close_timeout_s


class MetadataSettings(Section, frozen=True, kw_only=True):
    url: Annotated[str, about("metadata store: sqlite:///… or postgresql://…; empty: SQLite in the data folder")] = ""
    timeout_s: Annotated[float, about("deadline of one metadata call", gt=0)] = 5.0
    connect_timeout_s: Annotated[
        float, about("timeout of connecting to a PostgreSQL host; then the next host is tried", gt=0)
    ] = 2.0
    start_wait_s: Annotated[
        float, about("how long a starting agent retries while the metadata store does not respond", ge=0)
    ] = 30.0
    min_connections: Annotated[int, about("PostgreSQL connections kept open while idle", ge=0)] = 1
    max_connections: Annotated[int, about("maximum PostgreSQL connections of an agent", gt=0)] = 8
    failures_until_not_ready: Annotated[
        int, about("consecutive failed metadata calls after which the agent reports not ready", gt=0)
    ] = 3


class StoreSettings(Section, frozen=True, kw_only=True):
    url: Annotated[
        str,
        about(
            "object store of the records: file:///path, s3://, gs:// or az://bucket/prefix; empty: in the data folder"
        ),
    ] = ""
    sse: Annotated[
        Literal["", "AES256", "aws:kms", "aws:kms:dsse"],
        about("encryption that S3 is asked for (SSE-S3, SSE-KMS); empty: what the environment or the bucket says"),
    ] = ""
    sse_kms_key_id: Annotated[str, about("key of AWS KMS for sse=aws:kms; empty: the account's own")] = ""
    sse_bucket_key: Annotated[bool, about("use S3 bucket keys, which save requests to KMS")] = False
    request_timeout_s: Annotated[
        float, about("timeout of one request, plus the transfer time allowed by min_bytes_per_s", gt=0)
    ] = 15.0
    connect_timeout_s: Annotated[float, about("timeout of connecting to a bucket", gt=0)] = 5.0
    idle_timeout_s: Annotated[float, about("idle time after which a connection to a bucket is closed", gt=0)] = 20.0
    min_bytes_per_s: Annotated[
        int, about("slowest accepted transfer; extends the timeout of a request by its size divided by this", gt=0)
    ] = MIB
    max_retries: Annotated[int, about("retries of a failed request before the error is returned", ge=0)] = 4
    retry_total_s: Annotated[float, about("time after which no further retry begins", gt=0)] = 20.0
    retry_wait_s: Annotated[float, about("wait before the first retry; doubles, with jitter", gt=0)] = 0.1
    retry_wait_max_s: Annotated[float, about("longest wait between two retries", gt=0)] = 3.0
    max_concurrent: Annotated[
        int,
        about(
            "concurrent requests to a bucket, for each of: reads, WAL writes, other writes, deletes and "
            "listings; fewer while it is slow",
            gt=0,
        ),
    ] = 64
    max_waiting: Annotated[int, about("calls that may wait for one of max_concurrent; further calls fail", gt=0)] = 1024
    max_wait_s: Annotated[float, about("longest wait of such a call", gt=0)] = 30.0
    pause_s: Annotated[
        float, about("pause after a bucket's slow-down response; doubles up to pause_max_s, with jitter", gt=0)
    ] = 0.1
    pause_max_s: Annotated[float, about("longest pause after slow-down responses of a bucket", gt=0)] = 5.0


class TopicSettings(Section, frozen=True, kw_only=True):
    auto_create: Annotated[bool, about("create a topic when a client requests one that does not exist")] = True
    default_partitions: Annotated[
        int, about("partitions of a topic that is created without a number of partitions", gt=0)
    ] = 1
    max_partitions: Annotated[int, about("maximum partitions of one topic", gt=0)] = 10_000
    max_topics: Annotated[int, about("maximum topics of the cluster", gt=0)] = 10_000


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
            "clients that bind calls to a node id (Java, librdkafka); at least as long as their calls, 60 s",
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


class WalSettings(Section, frozen=True, kw_only=True):
    kind: Annotated[
        Literal["auto", "disk", "object"],
        about("where appends become durable before their ack; auto: object with PostgreSQL and a bucket, else disk"),
    ] = "auto"
    fsync: Annotated[
        Literal["always", "interval", "never"],
        about("disk WAL: fsync before each ack, every fsync_interval_ms, or never (left to the operating system)"),
    ] = "interval"
    fsync_interval_ms: Annotated[int, about("disk WAL: time between fsyncs with fsync=interval", gt=0)] = 100
    file_bytes: Annotated[int, about("disk WAL: size at which the next file is begun", gt=0)] = 64 * MIB
    max_pending_bytes: Annotated[int, about("maximum bytes not yet durable; further appends are rejected", gt=0)] = (
        256 * MIB
    )
    inline_bytes: Annotated[
        int,
        about(
            "disk WAL: largest write of an idle log that the event loop does itself, without waking a thread; not with "
            "fsync=always or encryption; 0: never",
            ge=0,
        ),
    ] = 64 * 1024
    window_ms: Annotated[
        int,
        about(
            "object WAL: shortest time between two objects, except full ones; appends of this time share an object",
            ge=0,
        ),
    ] = 50
    window_bytes: Annotated[int, about("object WAL: size at which an object is uploaded at once", gt=0)] = 4 * MIB
    uploads: Annotated[int, about("object WAL: concurrent PUTs", gt=0)] = 4
    retry_s: Annotated[
        float, about("object WAL: first wait after a failed PUT; doubles up to retry_max_s, with jitter", gt=0)
    ] = 0.1
    retry_max_s: Annotated[float, about("object WAL: longest wait between retries of a PUT", gt=0)] = 3.0
    close_s: Annotated[
        float, about("object WAL: how long a closing log waits for pending appends before it fails them", ge=0)
    ] = 5.0
    read_ahead: Annotated[int, about("object WAL: objects that recovery reads ahead", ge=0)] = 16
    recovery_per_s: Annotated[
        int,
        about(
            "object WAL: objects per second that recovery can read; flushes keep the log short enough for "
            "lease.takeover_s",
            gt=0,
        ),
    ] = 150
    deletes: Annotated[int, about("object WAL: concurrent deletions", gt=0)] = 8
    seal_retention_s: Annotated[
        float, about("object WAL: how long seals and other remains of ended sessions are kept", gt=0)
    ] = 7 * 86_400.0


class BufferSettings(Section, frozen=True, kw_only=True):
    memory_bytes: Annotated[
        int, about("memory budget for records not yet in a segment; when it is used up, appends are rejected", gt=0)
    ] = 512 * MIB
    throttle_at: Annotated[float, about("share of the budget from which producers are throttled", gt=0, le=1)] = 0.75
    max_throttle_s: Annotated[float, about("longest throttling of a produce request before it is rejected", ge=0)] = 5.0


class FlushSettings(Section, frozen=True, kw_only=True):
    segment_bytes: Annotated[
        int,
        about("unflushed bytes from which a partition gets a segment of its own; smaller partitions share one", gt=0),
    ] = 64 * MIB
    age_s: Annotated[float, about("longest time until a record is flushed to a segment", gt=0)] = 30.0
    check_s: Annotated[float, about("interval of checking which partitions are due", gt=0)] = 0.25
    retry_s: Annotated[float, about("first wait after a failed flush; doubles up to retry_max_s", gt=0)] = 0.2
    retry_max_s: Annotated[float, about("longest wait between retries of a failed flush", gt=0)] = 10.0
    parallel: Annotated[int, about("concurrent flushes", gt=0)] = 4
    block_bytes: Annotated[int, about("block size of a segment, the unit of ranged reads", gt=0)] = MIB
    key_filters: Annotated[
        Literal["none", "uncompressed", "all"],
        about(
            "blocks that get a filter by which a search for a key leaves others out; `all` decompresses what producers "
            "compressed once more. Merged segments have filters of all blocks"
        ),
    ] = "uncompressed"


class FetchSettings(Section, frozen=True, kw_only=True):
    max_bytes: Annotated[int, about("maximum bytes of a fetch response, whatever the client requests", gt=0)] = 55 * MIB
    answers_bytes: Annotated[
        int,
        about(
            "memory for fetch responses that clients have not received yet; one response gets a quarter of what "
            "is left",
            gt=0,
        ),
    ] = 512 * MIB
    max_wait_s: Annotated[float, about("longest long poll, whatever the client requests", gt=0)] = 300.0
    cache_bytes: Annotated[int, about("memory for blocks read from segments", gt=0)] = 512 * MIB
    keep_flushed_s: Annotated[
        float,
        about(
            "blocks of partitions that were fetched in this time stay in memory when they are flushed, within "
            "`cache_bytes`; 0: none",
            ge=0,
        ),
    ] = 60.0
    index_cache_entries: Annotated[int, about("block indexes of runs kept in memory", gt=0)] = 4096
    key_filter_cache_bytes: Annotated[int, about("memory for key filters of runs, for searches", gt=0)] = 64 * MIB
    run_cache_entries: Annotated[int, about("runs kept in memory to find segments by offset", gt=0)] = 100_000
    decode_threads: Annotated[int, about("threads that decompress blocks for cold readers", gt=0)] = 2
    readahead_blocks: Annotated[int, about("blocks fetched ahead of a sequential reader; 0: none", ge=0)] = 4
    concurrent_reads: Annotated[
        int, about("concurrent ranged reads; further reads queue, partitions in turn", gt=0)
    ] = 16
    missing_recheck_s: Annotated[float, about("how long readers do not request a missing object again", ge=0)] = 5.0
    damage_pause_s: Annotated[
        float,
        about(
            "delay of a response that consists of missing or damaged ranges only, within the client's own wait "
            "time; some clients retry without a pause",
            ge=0,
        ),
    ] = 0.25
    damage_remembered: Annotated[int, about("missing or damaged ranges that an agent remembers and reports", gt=0)] = (
        1000
    )
    disk_cache_path: Annotated[
        str, about("folder of this agent's disk cache for blocks evicted from memory; empty: none")
    ] = ""
    disk_cache_bytes: Annotated[int, about("size of the disk cache", gt=0)] = 10 * 1024 * MIB
    disk_cache_blocks: Annotated[
        int, about("maximum blocks in the disk cache; each takes about 300 bytes of memory", gt=0)
    ] = 100_000
    disk_cache_threads: Annotated[int, about("threads that read from the disk cache", gt=0)] = 2
    disk_cache_waiting_writes: Annotated[
        int, about("blocks queued to be written to the disk cache; further ones are not cached", gt=0)
    ] = 32
    disk_cache_timeout_s: Annotated[
        float, about("read time of a block after which the disk cache is turned off", gt=0)
    ] = 5.0


class RetentionSettings(Section, frozen=True, kw_only=True):
    check_s: Annotated[float, about("interval of applying retention", gt=0)] = 60.0
    grace_s: Annotated[
        float, about("time between the removal of the last reference to an object and its deletion", ge=0)
    ] = 900.0
    orphan_age_s: Annotated[
        float, about("age from which an object that the metadata store does not reference is deleted", ge=0)
    ] = 86_400.0
    sweep_s: Annotated[float, about("interval of searching for unreferenced objects", gt=0)] = 3600.0


class IntegritySettings(Section, frozen=True, kw_only=True):
    check_s: Annotated[float, about("interval of checking that referenced objects exist and have their size", gt=0)] = (
        60.0
    )
    objects: Annotated[
        int, about("objects per check, one HEAD request each; all objects are checked in turn; 0: no checks", ge=0)
    ] = 100
    requests_at_once: Annotated[int, about("concurrent requests of a check", gt=0)] = 8
    remembered: Annotated[int, about("missing or truncated objects that an agent remembers and reports", gt=0)] = 1000
    doctor_objects: Annotated[
        int, about("objects that `streamhouse doctor` checks: the newest, and a random sample", gt=0)
    ] = 1000
    doctor_requests_at_once: Annotated[int, about("concurrent requests of `streamhouse doctor`", gt=0)] = 32


class CompactionSettings(Section, frozen=True, kw_only=True):
    interval_s: Annotated[float, about("interval of checking what to compact or merge", gt=0)] = 15.0
    max_keys: Annotated[
        int, about("keys that one pass over a partition holds in memory, 140 bytes each; the next pass continues", gt=0)
    ] = 500_000
    segment_bytes: Annotated[int, about("decompressed size of the records rewritten together", gt=0)] = 64 * MIB
    max_runs: Annotated[int, about("maximum runs rewritten together", gt=0)] = 1000
    read_bytes: Annotated[int, about("size of one ranged read of the runs to rewrite", gt=0)] = 8 * MIB
    merge_runs: Annotated[int, about("adjacent small runs of a partition that are merged into one; 0: never", ge=0)] = (
        16
    )
    merge_below_bytes: Annotated[int, about("size below which a run counts as small", gt=0)] = 16 * MIB
    damage_retry_s: Annotated[
        float, about("wait before compaction retries a partition with unreadable records", gt=0)
    ] = 600.0
    merges_at_once: Annotated[int, about("merges per check; further ones wait for the next check", ge=0)] = 4


class ProducerSettings(Section, frozen=True, kw_only=True):
    expire_s: Annotated[
        float, about("time without a batch after which the state of an idempotent producer expires", gt=0)
    ] = 86_400.0
    max_per_partition: Annotated[
        int, about("idempotent producers remembered per partition; the longest inactive are dropped first", gt=0)
    ] = 10_000
    max_keys_per_partition: Annotated[
        int, about("idempotency keys remembered per partition, besides producers; the oldest are dropped first", gt=0)
    ] = 10_000
    settle_s: Annotated[
        float,
        about(
            "how long a batch after a sequence gap gets a retriable error before OUT_OF_ORDER_SEQUENCE_NUMBER; 0: "
            "not at all",
            ge=0,
        ),
    ] = 5.0
    """For the reasons of this time see `broker.partition.sequence_gaps`."""
    max_decompressed_bytes: Annotated[int, about("maximum size of a batch after decompression", gt=0)] = 256 * MIB
    max_snapshots_tried: Annotated[
        int,
        about("runs, newest first, whose producer snapshots are tried when the newest snapshot is missing", gt=0),
    ] = 100
    max_batch_records: Annotated[int, about("maximum records of a batch; larger batches are rejected", gt=0)] = (
        1_000_000
    )
    max_record_headers: Annotated[
        int, about("maximum headers of a record; batches with more are rejected, and can't be read over HTTP", gt=0)
    ] = 10_000


class DecoderSettings(Section, frozen=True, kw_only=True):
    memory_bytes: Annotated[
        int, about("memory for decompressing large batches, over all requests; further batches wait", gt=0)
    ] = 512 * MIB
    threads: Annotated[
        int, about("threads that decompress small batches; large batches have as many of their own", gt=0)
    ] = 2
    max_waiting: Annotated[int, about("requests that may wait for decompression; further ones are rejected", gt=0)] = (
        1000
    )
    max_wait_s: Annotated[
        float, about("longest wait for decompression before a batch is rejected with a retriable error", gt=0)
    ] = 10.0


class RecordSettings(Section, frozen=True, kw_only=True):
    compress_at_bytes: Annotated[
        int, about("size from which records published together over HTTP or gRPC are compressed; 0: never", ge=0)
    ] = 64 * 1024
    patience_s: Annotated[
        float, about("how long a read, or a lookup of offsets or groups, waits for a leader that is changing", gt=0)
    ] = 15.0
    laggard_s: Annotated[
        float, about("how long a read that has records waits for agents that have not responded", gt=0)
    ] = 1.0
    stored_look_s: Annotated[
        float, about("interval of checking how far other agents have flushed, while requests wait for it", gt=0)
    ] = 0.25


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


class GroupSettings(Section, frozen=True, kw_only=True):
    shards: Annotated[
        int, about("shards by which groups are distributed over agents; fixed when the first group is created", gt=0)
    ] = 16
    initial_rebalance_delay_s: Annotated[
        float, about("how long an empty group waits for further members after the first joined", ge=0)
    ] = 3.0
    min_session_timeout_s: Annotated[float, about("minimum session timeout of a member", gt=0)] = 6.0
    max_session_timeout_s: Annotated[float, about("maximum session timeout of a member", gt=0)] = 1800.0
    new_member_timeout_s: Annotated[
        float, about("time after which a new member that has not reached its first generation is removed", gt=0)
    ] = 300.0
    max_groups: Annotated[int, about("maximum groups coordinated by one agent", gt=0)] = 10_000
    max_members: Annotated[int, about("maximum members of a group", gt=0)] = 1000
    max_pending_members: Annotated[
        int, about("maximum new members of a group that got a member id and have not joined with it yet", gt=0)
    ] = 1000
    max_member_bytes: Annotated[int, about("maximum metadata of one member; also of one member's assignment", gt=0)] = (
        MIB
    )
    max_group_bytes: Annotated[
        int, about("maximum metadata of all members of a group; also of their assignments together", gt=0)
    ] = 16 * MIB
    max_id_bytes: Annotated[
        int, about("maximum length of a group id or group instance id, in bytes of UTF-8", gt=0, le=1300)
    ] = 1000
    offset_metadata_bytes: Annotated[int, about("maximum metadata committed with an offset", ge=0)] = 4096
    offsets_retention_s: Annotated[
        float, about("how long offsets are kept after a group became empty or unsubscribed from the topic", gt=0)
    ] = 7 * 86_400.0
    offsets_check_s: Annotated[float, about("interval of checking for expired offsets", gt=0)] = 600.0
    commit_changes: Annotated[int, about("changes of groups and offsets in one metadata transaction", gt=0)] = 10_000
    max_waiting_changes: Annotated[
        int,
        about(
            "changes of groups and offsets that may wait for a metadata transaction; further ones are rejected", gt=0
        ),
    ] = 100_000
    watch_s: Annotated[float, about("longest time until an expired member session is noticed", gt=0)] = 1.0
    lag_interval_s: Annotated[
        float, about("interval of measuring the lag of groups, for metrics and its history; 0 turns it off", ge=0)
    ] = 30.0
    max_lag_partitions: Annotated[
        int,
        about(
            "partitions of groups that one agent measures in an interval, and has in its metrics; further groups have "
            "their turn in the next one",
            gt=0,
        ),
    ] = 5000


class SchemaSettings(Section, frozen=True, kw_only=True):
    cache_entries: Annotated[int, about("schemas cached by id", gt=0)] = 10_000
    cache_bytes: Annotated[int, about("maximum size of the cached schemas", gt=0)] = 256 * MIB
    cache_ttl_s: Annotated[
        float, about("age at which a cached schema is looked up again; it is still served while that fails", gt=0)
    ] = 3600.0
    max_schema_bytes: Annotated[int, about("maximum size of a schema including its references", gt=0, le=MIB)] = MIB
    max_references: Annotated[int, about("maximum references of a schema, transitive ones included", ge=0)] = 1000
    max_subjects: Annotated[int, about("maximum subjects of the registry", gt=0)] = 100_000
    max_versions: Annotated[int, about("maximum versions of a subject, deleted ones included", gt=0)] = 10_000
    max_listed: Annotated[int, about("maximum schemas in one listing with texts", gt=0)] = 1000
    inline_bytes: Annotated[int, about("size from which schemas are parsed and compared in a thread", ge=0)] = 16 * 1024
    encode_timeout_s: Annotated[
        float, about("timeout of encoding or decoding the records of one request with their schemas", gt=0)
    ] = 10.0
    encoders: Annotated[int, about("concurrent requests that encode or decode records with schemas", gt=0)] = 2
    max_waiting_encodes: Annotated[
        int, about("requests that may wait to encode or decode records; further ones get 429", ge=0)
    ] = 1000


class Settings(Section, frozen=True, kw_only=True):
    agent: AgentSettings = AgentSettings()
    kafka: KafkaSettings = KafkaSettings()
    http: HttpSettings = HttpSettings()
    grpc: GrpcSettings = GrpcSettings()
    metadata: MetadataSettings = MetadataSettings()
    store: StoreSettings = StoreSettings()
    topics: TopicSettings = TopicSettings()
    lease: LeaseSettings = LeaseSettings()
    cluster: ClusterSettings = ClusterSettings()
    wal: WalSettings = WalSettings()
    buffer: BufferSettings = BufferSettings()
    flush: FlushSettings = FlushSettings()
    fetch: FetchSettings = FetchSettings()
    retention: RetentionSettings = RetentionSettings()
    integrity: IntegritySettings = IntegritySettings()
    compaction: CompactionSettings = CompactionSettings()
    producers: ProducerSettings = ProducerSettings()
    decoder: DecoderSettings = DecoderSettings()
    records: RecordSettings = RecordSettings()
    peers: AgentClientSettings = AgentClientSettings()
    groups: GroupSettings = GroupSettings()
    schemas: SchemaSettings = SchemaSettings()
    plans: PlanSettings = PlanSettings()
    placing: ExternalCommitSettings = ExternalCommitSettings()
    tables: TableSettings = TableSettings()
    pipelines: PipelineSettings = PipelineSettings()
    transactions: TransactionSettings = TransactionSettings()
    maintenance: MaintenanceSettings = MaintenanceSettings()
    views: ViewSettings = ViewSettings()
    sql: SqlSettings = SqlSettings()
    security: SecuritySettings = SecuritySettings()
    encryption: EncryptionSettings = EncryptionSettings()
    quotas: QuotaSettings = QuotaSettings()
    tracing: TracingSettings = TracingSettings()
    origins: Mapping[str, tuple[str, str]] = {}
    """Kind of source and place of the values that aren't defaults, by the setting's name; for showing them only."""
