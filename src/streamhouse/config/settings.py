"""The settings: values with names, units, defaults and a sentence each.

Owns        limits and defaults, and what they mean (`streamhouse config show` prints these sentences)
Leaves      where values come from to `load`; turning settings into components to `agent`
"""

from typing import Annotated, Literal

from streamhouse.config.coordination import TransactionSettings
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


class AgentSettings(Section, frozen=True, kw_only=True):
    data: Annotated[str, about("folder of the embedded stores and of the disk WAL")] = "./data"
    stop_timeout_s: Annotated[
        float,
        about(
            "how long a graceful stop hands over to other agents, and then so long flushes, before it gives up", gt=0
        ),
    ] = 30.0
    close_timeout_s: Annotated[
        float,
        about("how long each other step of a stop may take: closing the WAL, the listeners, the stores", gt=0),
    ] = 10.0
    log_format: Annotated[Literal["text", "json"], about("how log lines are written to standard error")] = "text"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], about("least severe level that is written")] = (
        "info"
    )

    @property
    def longest_stop_s(self) -> float:
        """Within this time after SIGTERM the process has ended: handing over, flushing, and three other steps (the WAL,
        telling others, listeners and stores)."""
        return 2 * self.stop_timeout_s + 3 * self.close_timeout_s


class MetadataSettings(Section, frozen=True, kw_only=True):
    url: Annotated[str, about("where facts live: sqlite:///… or postgresql://…; empty: SQLite in the data folder")] = ""
    timeout_s: Annotated[float, about("deadline of one metadata call", gt=0)] = 5.0
    connect_timeout_s: Annotated[
        float, about("how long a PostgreSQL host may take to accept a connection before the next one is tried", gt=0)
    ] = 2.0
    start_wait_s: Annotated[
        float, about("how long a starting agent waits for a store that doesn't answer before it gives up", ge=0)
    ] = 30.0
    min_connections: Annotated[int, about("connections to PostgreSQL that are kept open while idle", ge=0)] = 1
    max_connections: Annotated[int, about("connections to PostgreSQL that an agent opens at most", gt=0)] = 8
    failures_until_not_ready: Annotated[
        int, about("failed metadata calls in a row until the agent is not ready", gt=0)
    ] = 3


class StoreSettings(Section, frozen=True, kw_only=True):
    url: Annotated[
        str, about("where records live: file:///path, s3://, gs:// or az://bucket/prefix; empty: in the data folder")
    ] = ""
    request_timeout_s: Annotated[
        float, about("deadline of one request, besides the time its bytes may take (min_bytes_per_s)", gt=0)
    ] = 15.0
    connect_timeout_s: Annotated[float, about("deadline of connecting to a bucket", gt=0)] = 5.0
    idle_timeout_s: Annotated[float, about("a connection to a bucket that is idle for so long is closed", gt=0)] = 20.0
    min_bytes_per_s: Annotated[
        int, about("slowest transfer that is waited for: a request may take this much longer for its bytes", gt=0)
    ] = MIB
    max_retries: Annotated[int, about("further tries of a request that failed, before the caller is told", ge=0)] = 4
    retry_total_s: Annotated[float, about("no further try begins after this time", gt=0)] = 20.0
    retry_wait_s: Annotated[float, about("wait before the first further try; doubles, with jitter", gt=0)] = 0.1
    retry_wait_max_s: Annotated[float, about("longest wait between two tries", gt=0)] = 3.0
    max_concurrent: Annotated[
        int,
        about(
            "requests to a bucket at once: of reads, of WAL writes, of other writes, of deletes and listings; less "
            "when it is slow",
            gt=0,
        ),
    ] = 64
    max_waiting: Annotated[int, about("calls that wait for such a request to end; further ones fail", gt=0)] = 1024
    max_wait_s: Annotated[float, about("longest time that such a call waits", gt=0)] = 30.0
    pause_s: Annotated[
        float, about("silence after a bucket asked to slow down; doubles up to pause_max_s, with jitter", gt=0)
    ] = 0.1
    pause_max_s: Annotated[float, about("longest silence after a bucket asked to slow down", gt=0)] = 5.0


class TopicSettings(Section, frozen=True, kw_only=True):
    auto_create: Annotated[bool, about("create a topic when a client asks for one that isn't there")] = True
    default_partitions: Annotated[int, about("partitions of a topic whose creator doesn't say", gt=0)] = 1
    max_partitions: Annotated[int, about("partitions that one topic may have", gt=0)] = 10_000
    max_topics: Annotated[int, about("topics that the cluster may have", gt=0)] = 10_000


class LeaseSettings(Section, frozen=True, kw_only=True):
    ttl_s: Annotated[
        float, about("within this time after an agent's death others have taken over; takeover_s is part of it", gt=0)
    ] = 30.0
    takeover_s: Annotated[
        float, about("share of ttl_s for taking over: a session lives ttl_s - takeover_s without a heartbeat", ge=0)
    ] = 12.0
    renew_s: Annotated[float, about("time between heartbeats", gt=0)] = 3.0
    renew_timeout_s: Annotated[
        float, about("deadline of a heartbeat; less where two of them could not fail without a refused append", gt=0)
    ] = 3.0
    stall_s: Annotated[
        float, about("how long heartbeats go on while the agent's event loop stands still; then others take over", gt=0)
    ] = 30.0
    margin_s: Annotated[
        float, about("how long before its expiry, by its own monotonic clock, an agent stops acting on a lease", ge=0)
    ] = 3.0

    @property
    def life_ms(self) -> int:
        """How long a session lives in the metadata store without a heartbeat."""
        return round((self.ttl_s - self.takeover_s) * 1000)

    @property
    def usable_s(self) -> float:
        """How long after a heartbeat was begun an agent acts on its leases."""
        return self.ttl_s - self.takeover_s - self.margin_s

    @property
    def heartbeat_timeout_s(self) -> float:
        """How long one heartbeat may take: when two in a row fail, the third one ends while leases may be acted on."""
        return min(self.renew_timeout_s, (self.usable_s - self.renew_s) / 4)

    @property
    def heartbeat_retry_s(self) -> float:
        """Pause after a heartbeat that failed."""
        return self.heartbeat_timeout_s / 4


class ClusterSettings(Section, frozen=True, kw_only=True):
    refresh_s: Annotated[float, about("longest time until a change of the cluster is noticed", gt=0)] = 1.0
    moves_at_once: Annotated[int, about("partitions that are handed over together", gt=0)] = 100
    handover_wait_s: Annotated[
        float, about("how long a request waits for a partition that is on its way to this agent", ge=0)
    ] = 0.5
    rescue_delay_s: Annotated[
        float,
        about(
            "longest time that a dead session is left to whose turn it is; a quarter of lease.takeover_s at most", ge=0
        ),
    ] = 2.0
    cut_off_s: Annotated[
        float,
        about(
            "object WAL: an agent none of whose writes reached the bucket for so long, while those of others did, "
            "gives its partitions up; four heartbeats at least",
            gt=0,
        ),
    ] = 30.0
    departed_listed_s: Annotated[
        float, about("how long Kafka clients are still told the address of an agent that died", ge=0)
    ] = 5.0
    departed_redirected_s: Annotated[
        float,
        about(
            "how long clients that bind calls to a node id (Java, librdkafka) are sent to a living agent for the id of "
            "one that departed; not less than their calls take, 60 s",
            ge=0,
        ),
    ] = 60.0
    return_wait_s: Annotated[
        float,
        about(
            "how long an agent that died and is back at the same address is given no partitions: clients that were "
            "refused there wait for up to 10 s before they connect again",
            ge=0,
        ),
    ] = 12.0
    reserve_offsets: Annotated[
        int, about("disk WAL: offsets that a partition's leader reserves ahead; more are asked for at half", gt=1)
    ] = 1_000_000
    disk_wait_s: Annotated[
        float,
        about("disk WAL: how long after the lease of a dead agent others wait for its disk before they go on", ge=0),
    ] = 60.0
    generation_s: Annotated[
        float,
        about(
            "longest time after which new segments are followed by a new generation in the object store: how old a "
            "restored database may be without being noticed",
            gt=0,
        ),
    ] = 60.0
    returns_at_once: Annotated[
        int, about("disk WAL: partitions to which a disk that came back is appended again at the same time", gt=0)
    ] = 16


class WalSettings(Section, frozen=True, kw_only=True):
    kind: Annotated[
        Literal["auto", "disk", "object"],
        about("where an append becomes durable before its ack; auto: object with PostgreSQL and a bucket, else disk"),
    ] = "auto"
    fsync: Annotated[
        Literal["always", "interval", "never"],
        about("disk WAL: fsync before each ack, every fsync_interval_ms, or when the system likes"),
    ] = "interval"
    fsync_interval_ms: Annotated[int, about("disk WAL: time between fsyncs with fsync=interval", gt=0)] = 100
    file_bytes: Annotated[int, about("disk WAL: size at which a file is finished and the next begun", gt=0)] = 64 * MIB
    max_pending_bytes: Annotated[
        int, about("bytes that wait to become durable; beyond it appends are refused", gt=0)
    ] = 256 * MIB
    window_ms: Annotated[
        int, about("object WAL: least time between two objects, full ones apart; what comes meanwhile shares one", ge=0)
    ] = 50
    window_bytes: Annotated[int, about("object WAL: size at which an object is sent without waiting", gt=0)] = 4 * MIB
    uploads: Annotated[int, about("object WAL: PUTs under way at once", gt=0)] = 4
    retry_s: Annotated[
        float, about("object WAL: first wait after a failed PUT; doubles up to retry_max_s, with jitter", gt=0)
    ] = 0.1
    retry_max_s: Annotated[float, about("object WAL: longest wait between tries of a PUT", gt=0)] = 3.0
    close_s: Annotated[
        float, about("object WAL: how long an ending log waits for what is not durable before it is refused", ge=0)
    ] = 5.0
    read_ahead: Annotated[int, about("object WAL: objects that recovery reads ahead", ge=0)] = 16
    recovery_per_s: Annotated[
        int,
        about("object WAL: objects that recovery reads in a second; flushes leave what lease.takeover_s allows", gt=0),
    ] = 150
    deletes: Annotated[int, about("object WAL: deletions under way at once", gt=0)] = 8
    seal_retention_s: Annotated[
        float, about("object WAL: what ended sessions left, seals above all, is kept for so long", gt=0)
    ] = 7 * 86_400.0


class BufferSettings(Section, frozen=True, kw_only=True):
    memory_bytes: Annotated[
        int, about("budget of records that are not yet in a segment; at it producers are refused", gt=0)
    ] = 512 * MIB
    throttle_at: Annotated[float, about("share of the budget from which producers are slowed down", gt=0, le=1)] = 0.75
    max_throttle_s: Annotated[float, about("longest time a producer is held back before it is refused", ge=0)] = 5.0


class FlushSettings(Section, frozen=True, kw_only=True):
    segment_bytes: Annotated[
        int, about("a partition with so much gets a segment of its own; others share one", gt=0)
    ] = 64 * MIB
    age_s: Annotated[float, about("longest time a record waits for its segment", gt=0)] = 30.0
    check_s: Annotated[float, about("time between looks at what is due", gt=0)] = 0.25
    retry_s: Annotated[float, about("first wait after a failed flush; doubles up to retry_max_s", gt=0)] = 0.2
    retry_max_s: Annotated[float, about("longest wait between tries of a failed flush", gt=0)] = 10.0
    parallel: Annotated[int, about("flushes under way at once", gt=0)] = 4
    block_bytes: Annotated[int, about("size of a segment's blocks: what one ranged read brings", gt=0)] = MIB


class FetchSettings(Section, frozen=True, kw_only=True):
    max_bytes: Annotated[int, about("most bytes of one fetch answer, whatever the client asks for", gt=0)] = 55 * MIB
    answers_bytes: Annotated[
        int, about("records read for clients that have not taken them; one answer gets a quarter of what is left", gt=0)
    ] = 512 * MIB
    max_wait_s: Annotated[float, about("longest long poll, whatever the client asks for", gt=0)] = 300.0
    cache_bytes: Annotated[int, about("memory for blocks read from segments", gt=0)] = 512 * MIB
    index_cache_entries: Annotated[int, about("block indexes of runs kept in memory", gt=0)] = 4096
    run_cache_entries: Annotated[int, about("runs kept in memory to find segments by offset", gt=0)] = 100_000
    decode_threads: Annotated[int, about("threads that decompress blocks for cold readers", gt=0)] = 2
    readahead_blocks: Annotated[int, about("blocks fetched ahead of a sequential reader; 0: none", ge=0)] = 4
    concurrent_reads: Annotated[
        int, about("ranged reads under way at once; cold readers queue here, partitions in turn", gt=0)
    ] = 16
    missing_recheck_s: Annotated[
        float, about("how long an object that was missing is not asked for again by readers", ge=0)
    ] = 5.0
    damage_pause_s: Annotated[
        float,
        about(
            "how long an answer that only tells of missing or damaged ranges is held back, within the time that the "
            "client waits anyway: some clients ask again without a pause",
            ge=0,
        ),
    ] = 0.25
    damage_remembered: Annotated[
        int, about("ranges found missing or damaged that an agent remembers, to report them", gt=0)
    ] = 1000
    disk_cache_path: Annotated[
        str, about("folder of one agent's own for blocks that memory has no room for; empty: none")
    ] = ""
    disk_cache_bytes: Annotated[int, about("disk space for such blocks", gt=0)] = 10 * 1024 * MIB
    disk_cache_blocks: Annotated[int, about("blocks on the disk; each takes some 300 bytes of memory", gt=0)] = 100_000
    disk_cache_threads: Annotated[int, about("threads that read blocks from the disk", gt=0)] = 2
    disk_cache_waiting_writes: Annotated[
        int, about("blocks that wait to be written to the disk; further ones are not kept there", gt=0)
    ] = 32
    disk_cache_timeout_s: Annotated[
        float, about("a disk that takes longer to read a block is not used any more", gt=0)
    ] = 5.0


class RetentionSettings(Section, frozen=True, kw_only=True):
    check_s: Annotated[float, about("time between looks at what retention asks for", gt=0)] = 60.0
    grace_s: Annotated[float, about("time between an object's last mention and its deletion", ge=0)] = 900.0
    orphan_age_s: Annotated[float, about("an object that no row names is deleted when older than this", ge=0)] = (
        86_400.0
    )
    sweep_s: Annotated[float, about("time between searches for objects that no row names", gt=0)] = 3600.0


class IntegritySettings(Section, frozen=True, kw_only=True):
    check_s: Annotated[
        float, about("time between looks at whether objects that rows name are in the store, and whole", gt=0)
    ] = 60.0
    objects: Annotated[
        int, about("objects that one look asks the store for, one HEAD each; all have their turn; 0: none", ge=0)
    ] = 100
    requests_at_once: Annotated[int, about("such requests under way at once", gt=0)] = 8
    remembered: Annotated[int, about("objects found missing or short that an agent remembers", gt=0)] = 1000
    doctor_objects: Annotated[
        int, about("objects that the doctor asks the store for: the newest, and others by chance", gt=0)
    ] = 1000
    doctor_requests_at_once: Annotated[int, about("requests of the doctor under way at once", gt=0)] = 32


class CompactionSettings(Section, frozen=True, kw_only=True):
    interval_s: Annotated[float, about("time between looks at what should be compacted or merged", gt=0)] = 15.0
    max_keys: Annotated[
        int, about("keys that one pass over a partition holds in memory, 140 bytes each; the next pass goes on", gt=0)
    ] = 500_000
    segment_bytes: Annotated[int, about("records, decompressed, that are rewritten together", gt=0)] = 64 * MIB
    max_runs: Annotated[int, about("runs that are rewritten together, however small", gt=0)] = 1000
    read_bytes: Annotated[int, about("bytes of one ranged read of runs that are rewritten", gt=0)] = 8 * MIB
    merge_runs: Annotated[int, about("so many small neighbouring runs of a partition become one; 0: never", ge=0)] = 16
    merge_below_bytes: Annotated[int, about("a run below this size is small", gt=0)] = 16 * MIB
    damage_retry_s: Annotated[
        float, about("a compacted partition of which something can't be read is tried again after this", gt=0)
    ] = 600.0
    merges_at_once: Annotated[int, about("merges in one look; what else is small waits for the next", ge=0)] = 4


class ProducerSettings(Section, frozen=True, kw_only=True):
    expire_s: Annotated[float, about("an idempotent producer silent for so long is forgotten", gt=0)] = 86_400.0
    max_per_partition: Annotated[
        int, about("idempotent producers remembered per partition; the longest silent go first", gt=0)
    ] = 10_000
    max_keys_per_partition: Annotated[
        int, about("idempotency keys remembered per partition, beside the producers; the oldest go first", gt=0)
    ] = 10_000
    settle_s: Annotated[
        float, about("how long a batch behind a gap is refused for now, before it is out of order; 0: not at all", ge=0)
    ] = 5.0
    """Why so long: see `broker.refusals`."""
    max_decompressed_bytes: Annotated[int, about("largest batch after decompression", gt=0)] = 256 * MIB
    max_snapshots_tried: Annotated[
        int,
        about("runs, newest first, whose producers' state is tried when that of the newest one is missing", gt=0),
    ] = 100
    max_batch_records: Annotated[int, about("records that one batch may have; larger batches are refused", gt=0)] = (
        1_000_000
    )
    max_record_headers: Annotated[
        int, about("headers that one record may have; batches with more are refused, and can't be read over HTTP", gt=0)
    ] = 10_000


class DecoderSettings(Section, frozen=True, kw_only=True):
    memory_bytes: Annotated[
        int, about("memory for large batches that are decompressed, over all requests; further ones wait", gt=0)
    ] = 512 * MIB
    threads: Annotated[
        int, about("threads that decompress ordinary batches, and as many others for large ones", gt=0)
    ] = 2
    max_waiting: Annotated[
        int, about("requests that wait for their batches to be decompressed; more are refused", gt=0)
    ] = 1000
    max_wait_s: Annotated[
        float, about("longest time a batch waits to be decompressed before it is refused, for now", gt=0)
    ] = 10.0


class RecordSettings(Section, frozen=True, kw_only=True):
    compress_at_bytes: Annotated[
        int, about("records published together over HTTP or gRPC are compressed from this size on; 0: never", ge=0)
    ] = 64 * 1024
    patience_s: Annotated[
        float, about("how long a read, or a question about offsets or groups, waits for a leader on the move", gt=0)
    ] = 15.0
    laggard_s: Annotated[
        float, about("a read that has records waits so long, and no longer, for agents that have not answered", gt=0)
    ] = 1.0
    stored_look_s: Annotated[
        float, about("time between looks at how far other agents have flushed, while somebody waits for it", gt=0)
    ] = 0.25


class AgentClientSettings(Section, frozen=True, kw_only=True):
    timeout_s: Annotated[
        float, about("another agent that leaves a forwarded request unanswered for so long is taken for gone", gt=0)
    ] = 30.0
    max_inflight_requests: Annotated[
        int, about("requests forwarded to one other agent that are not answered yet; further ones wait", gt=0)
    ] = 64
    max_inflight_bytes: Annotated[int, about("bytes of such requests; beyond it further ones wait", gt=0)] = 64 * MIB
    max_waiting: Annotated[int, about("requests that wait to be forwarded to one agent; more are refused", gt=0)] = (
        10_000
    )
    max_polls: Annotated[int, about("reads at one other agent at once, a connection each; further ones wait", gt=0)] = (
        256
    )
    idle_links: Annotated[int, about("connections to one other agent that are kept for the next read", ge=0)] = 8
    reconnect_s: Annotated[float, about("how long an agent that could not be reached is not tried again", ge=0)] = 0.1
    retry_s: Annotated[
        float, about("first wait before a leader is looked up again; doubles up to retry_max_s, with jitter", gt=0)
    ] = 0.05
    retry_max_s: Annotated[float, about("longest wait between two tries to reach a leader", gt=0)] = 1.0
    lanes: Annotated[
        int, about("batches forwarded to one partition at once, each under a producer id of its own", gt=0)
    ] = 32
    lane_partitions: Annotated[
        int, about("partitions of other agents whose producer ids are kept for the next batch", gt=0)
    ] = 10_000
    max_buffered_bytes: Annotated[
        int, about("records with acks=buffered that are on their way to other agents; more have to wait", gt=0)
    ] = 64 * MIB


class GroupSettings(Section, frozen=True, kw_only=True):
    shards: Annotated[
        int, about("parts into which groups are divided among agents; fixed when the first group appears", gt=0)
    ] = 16
    initial_rebalance_delay_s: Annotated[
        float, about("how long an empty group waits for more members after the first", ge=0)
    ] = 3.0
    min_session_timeout_s: Annotated[float, about("shortest session timeout a member may ask for", gt=0)] = 6.0
    max_session_timeout_s: Annotated[float, about("longest session timeout a member may ask for", gt=0)] = 1800.0
    new_member_timeout_s: Annotated[
        float, about("a new member that waits so long for its first generation is forgotten", gt=0)
    ] = 300.0
    max_groups: Annotated[int, about("groups that one agent coordinates", gt=0)] = 10_000
    max_members: Annotated[int, about("members that one group may have", gt=0)] = 1000
    max_pending_members: Annotated[
        int, about("new members of one group that were given an id and have not come back with it", gt=0)
    ] = 1000
    max_member_bytes: Annotated[int, about("metadata that one member may join with; one member's assignment", gt=0)] = (
        MIB
    )
    max_group_bytes: Annotated[int, about("metadata of all members of a group; their assignments together", gt=0)] = (
        16 * MIB
    )
    max_id_bytes: Annotated[int, about("length of a group id or of a group instance id, in UTF-8", gt=0, le=1300)] = (
        1000
    )
    offset_metadata_bytes: Annotated[int, about("text that may be committed with an offset", ge=0)] = 4096
    offsets_retention_s: Annotated[
        float, about("offsets of a group that is empty, or not subscribed any more, are kept for so long", gt=0)
    ] = 7 * 86_400.0
    offsets_check_s: Annotated[float, about("time between looks at which offsets have expired", gt=0)] = 600.0
    commit_changes: Annotated[int, about("changes of groups and offsets in one metadata transaction", gt=0)] = 10_000
    max_waiting_changes: Annotated[
        int, about("changes of groups and offsets that wait for their transaction; more are refused", gt=0)
    ] = 100_000
    watch_s: Annotated[float, about("longest time until the end of a session is noticed", gt=0)] = 1.0


class SchemaSettings(Section, frozen=True, kw_only=True):
    cache_entries: Annotated[int, about("schemas kept in memory by id", gt=0)] = 10_000
    cache_bytes: Annotated[int, about("texts of such schemas together", gt=0)] = 256 * MIB
    cache_ttl_s: Annotated[
        float, about("a schema in memory that is older is looked up again; while that fails it is served", gt=0)
    ] = 3600.0
    max_schema_bytes: Annotated[int, about("largest text of a schema with all that it refers to", gt=0, le=MIB)] = MIB
    max_references: Annotated[int, about("schemas that one schema refers to, those behind them included", ge=0)] = 1000
    max_subjects: Annotated[int, about("subjects that the registry may have", gt=0)] = 100_000
    max_versions: Annotated[int, about("versions that one subject may have, deleted ones included", gt=0)] = 10_000
    max_listed: Annotated[int, about("schemas with their texts that one answer lists", gt=0)] = 1000
    inline_bytes: Annotated[int, about("texts above this are parsed and compared in a thread", ge=0)] = 16 * 1024
    encode_timeout_s: Annotated[
        float, about("how long the records of one request may take to be written, or read, with their schemas", gt=0)
    ] = 10.0
    encoders: Annotated[int, about("requests whose records are written or read with schemas at once", gt=0)] = 2
    max_waiting_encodes: Annotated[
        int, about("requests that wait for their turn to be; further ones get 429", ge=0)
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
