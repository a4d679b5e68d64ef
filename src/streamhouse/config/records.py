"""Settings of the way of records: topics, producers, write-ahead log, flushes, fetches."""

from typing import Annotated, Literal

from streamhouse.config.fields import MIB, Section, about


class TopicSettings(Section, frozen=True, kw_only=True):
    auto_create: Annotated[bool, about("create a topic when a client requests one that does not exist")] = True
    default_partitions: Annotated[
        int, about("partitions of a topic that is created without a number of partitions", gt=0)
    ] = 1
    max_partitions: Annotated[int, about("maximum partitions of one topic", gt=0)] = 10_000
    max_topics: Annotated[int, about("maximum topics of the cluster", gt=0)] = 10_000


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
    spare_files: Annotated[
        int,
        about("disk WAL: flushed files kept to be written over, which costs less than new ones; 0: none", ge=0),
    ] = 2
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
            "blocks that get a filter by which a search for a key leaves others out; for `all`, batches that producers "
            "compressed are decompressed once more, within key_filter_bytes_per_s. Merged segments have filters of all "
            "blocks"
        ),
    ] = "all"
    key_filter_bytes_per_s: Annotated[
        int,
        about(
            "decompressed bytes per second for key filters, over ten seconds; beyond that, and while memory is short, "
            "blocks of compressed batches get none",
            ge=0,
        ),
    ] = 64 * MIB


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
