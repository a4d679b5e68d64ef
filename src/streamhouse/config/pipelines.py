"""Settings of the Spark side: read plans, external commits, tables, pipelines, views, SQL.

Owns        their limits and defaults
Leaves      the agent's other sections to `settings`
"""

from typing import Annotated

from streamhouse.config.fields import MIB, Section, about


class PlanSettings(Section, frozen=True, kw_only=True):
    max_runs: Annotated[int, about("maximum runs in one read plan", gt=0)] = 10_000
    max_partitions: Annotated[int, about("maximum partitions of one read plan", gt=0)] = 1000
    max_block_indexes: Annotated[
        int, about("runs of one page of `GET /v1/segments` whose block indexes are read", gt=0, le=10_000)
    ] = 100
    questions_at_once: Annotated[int, about("concurrent requests to leaders for end offsets", gt=0)] = 64
    settled_kept: Annotated[int, about("partitions whose last stable flushed offset an agent remembers", gt=0)] = (
        100_000
    )
    signed_read_s: Annotated[
        float, about("how long a URL holds with which a Spark job reads part of a segment", gt=0, le=3600)
    ] = 300.0


class ExternalCommitSettings(Section, frozen=True, kw_only=True):
    max_segments: Annotated[int, about("maximum segments of one commit", gt=0)] = 10_000
    max_runs: Annotated[int, about("maximum runs in the segments of one commit", gt=0)] = 20_000
    max_progress_bytes: Annotated[int, about("maximum size of the progress (JSON) stored with a commit", ge=0)] = MIB
    max_commits: Annotated[int, about("maximum concurrent commits of one agent; further ones are rejected", gt=0)] = 64
    timeout_s: Annotated[float, about("timeout of a commit, after which the query gets a retriable error", gt=0)] = 30.0
    hold_s: Annotated[
        float,
        about("how long a leader freezes a partition for a commit; appends wait, and then the log is reopened", gt=0),
    ] = 10.0
    contend_s: Annotated[float, about("how long a commit waits for partitions frozen by another commit", gt=0)] = 1.0
    look_s: Annotated[
        float, about("interval at which a leader checks whether a commit without a result was applied", gt=0)
    ] = 1.0
    reads: Annotated[int, about("segments whose directories are read concurrently before a commit", gt=0)] = 16
    remember_s: Annotated[float, about("time without a commit after which a query's state expires", gt=0)] = (
        90 * 86_400.0
    )


class TableSettings(Section, frozen=True, kw_only=True):
    max_tables: Annotated[int, about("maximum table definitions", gt=0)] = 10_000
    max_definition_bytes: Annotated[int, about("maximum size of a table definition", gt=0)] = 256 * 1024
    follow_s: Annotated[
        float, about("interval at which a supervisor checks which topics become lake tables", ge=0.1, le=3600)
    ] = 10.0
    files_under: Annotated[
        str,
        about(
            "folders and URLs, separated by commas, below which tables of files and lake tables may be located; "
            "every client of the HTTP listener can read and write there with the rights of SQL workers and "
            "supervisors; empty: no tables of files, and lake tables only in the folder lake of the agents' "
            "store"
        ),
    ] = ""


class PipelineSettings(Section, frozen=True, kw_only=True):
    allow_python: Annotated[
        bool,
        about(
            "accept pipelines written in Python; every client of the HTTP listener can then run programs on the "
            "machines of supervisors, with their rights"
        ),
    ] = False
    ttl_s: Annotated[
        float, about("time without a heartbeat after which a supervisor's pipelines are assigned to others", gt=0)
    ] = 15.0
    max_starting: Annotated[
        int, about("pipelines that a supervisor starts concurrently in one Spark application; the others wait", gt=0)
    ] = 2
    start_wait_s: Annotated[
        float, about("how long the first micro-batch of a pipeline delays the start of others", gt=0)
    ] = 30.0
    max_pipelines: Annotated[int, about("maximum pipelines and views", gt=0)] = 10_000
    max_definition_bytes: Annotated[int, about("maximum size of a pipeline definition", gt=0)] = MIB
    max_events: Annotated[int, about("events kept in the log of a pipeline", gt=0)] = 1000
    max_versions: Annotated[int, about("versions kept of the definition of a pipeline", gt=0, le=1000)] = 20
    max_status_bytes: Annotated[int, about("maximum size of a pipeline's status", gt=0)] = 64 * 1024
    max_supervisors: Annotated[int, about("maximum supervisors", gt=0)] = 1000


class MaintenanceSettings(Section, frozen=True, kw_only=True):
    every_s: Annotated[
        float, about("interval at which a supervisor checks whether topics need a maintenance job", gt=0)
    ] = 600.0
    merge_at_runs: Annotated[int, about("small runs of a topic from which a merge job is started", gt=0)] = 1000
    merge_at_bytes: Annotated[int, about("bytes in small runs of a topic from which a merge job is started", gt=0)] = (
        256 * MIB
    )
    compact_at_bytes: Annotated[
        int, about("bytes of a compacted topic that are due, from which a compaction job is started", gt=0)
    ] = 256 * MIB
    turn_s: Annotated[
        float, about("time without a heartbeat after which a supervisor loses its job at a topic", gt=0)
    ] = 60.0


class ViewSettings(Section, frozen=True, kw_only=True):
    max_rows: Annotated[int, about("maximum rows of a view", gt=0)] = 1_000_000
    max_row_bytes: Annotated[int, about("maximum size of a row of a view, as JSON", gt=0)] = 64 * 1024
    max_key_bytes: Annotated[int, about("maximum size of the key of a row, as JSON", gt=0, le=2000)] = 1000
    max_part_bytes: Annotated[int, about("maximum size of one part of a batch of changes, as JSON", gt=0)] = 8 * MIB
    max_part_rows: Annotated[int, about("maximum rows of one part of a batch of changes", gt=0)] = 10_000
    page_rows: Annotated[int, about("maximum rows of one page of a view", gt=0, le=10_000)] = 1000
    page_bytes: Annotated[
        int, about("maximum size of one page of a view, as JSON; a page has at least one row", gt=0)
    ] = 8 * MIB


class SqlSettings(Section, frozen=True, kw_only=True):
    concurrency: Annotated[
        int, about("maximum concurrent SQL queries passed on by one agent; further ones are rejected", gt=0)
    ] = 8
    rows: Annotated[int, about("default maximum rows of a result", gt=0)] = 10_000
    max_rows: Annotated[int, about("maximum rows of a result, whatever the client requests", gt=0)] = 100_000
    timeout_s: Annotated[float, about("timeout of a query, whatever the client requests", gt=0)] = 300.0
    max_body_bytes: Annotated[int, about("maximum size of a query's text", gt=0)] = MIB
    worker_ttl_s: Annotated[float, about("time without a heartbeat after which a SQL worker gets no queries", gt=0)] = (
        15.0
    )
    max_workers: Annotated[int, about("maximum SQL workers", gt=0)] = 100
    connect_timeout_s: Annotated[float, about("timeout of connecting to a SQL worker", gt=0)] = 2.0
