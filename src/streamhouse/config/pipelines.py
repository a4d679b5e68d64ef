"""Settings of Spark's side: plans, placing, tables, pipelines, views, SQL.

Owns        their limits and defaults
Leaves      the agent's other sections to `settings`
"""

from typing import Annotated

from streamhouse.config.fields import MIB, Section, about


class PlanSettings(Section, frozen=True, kw_only=True):
    max_runs: Annotated[int, about("runs that one answer about where records stand names", gt=0)] = 10_000
    max_partitions: Annotated[int, about("partitions that one such answer is about", gt=0)] = 1000
    questions_at_once: Annotated[int, about("leaders asked at once for the ends of their logs", gt=0)] = 64
    settled_kept: Annotated[
        int, about("partitions of which an agent remembers up to where their transactions have ended", gt=0)
    ] = 100_000


class ExternalCommitSettings(Section, frozen=True, kw_only=True):
    max_segments: Annotated[int, about("segments that one commit places", gt=0)] = 10_000
    max_runs: Annotated[int, about("runs in the segments of one commit", gt=0)] = 20_000
    max_progress_bytes: Annotated[int, about("JSON that a commit keeps for its query", ge=0)] = MIB
    max_commits: Annotated[int, about("commits that one agent makes at once; further ones are refused", gt=0)] = 64
    timeout_s: Annotated[float, about("how long a commit is tried before its query is told to try again", gt=0)] = 30.0
    hold_s: Annotated[
        float, about("how long a leader appends nothing for a commit; appends wait, then its log is opened anew", gt=0)
    ] = 10.0
    contend_s: Annotated[float, about("how long a commit waits for another one's partitions", gt=0)] = 1.0
    look_s: Annotated[float, about("time between a leader's looks at whether a silent commit has happened", gt=0)] = 1.0
    reads: Annotated[int, about("segments whose directory is looked at together before they are placed", gt=0)] = 16
    remember_s: Annotated[float, about("a query that commits nothing for so long is forgotten", gt=0)] = 90 * 86_400.0


class TableSettings(Section, frozen=True, kw_only=True):
    max_tables: Annotated[int, about("definitions of tables that are kept", gt=0)] = 10_000
    max_definition_bytes: Annotated[int, about("largest definition of a table", gt=0)] = 256 * 1024
    follow_s: Annotated[
        float, about("time between a supervisor's looks at which topics are to be lake tables", ge=0.1, le=3600)
    ] = 10.0
    files_under: Annotated[
        str,
        about(
            "folders and URLs, separated by commas, that tables of files and lake tables may lie under: whoever "
            "reaches the HTTP listener can read and write there, with the rights of SQL workers and supervisors; none: "
            "no tables of files, and lake tables in the folder lake of the agents' store alone"
        ),
    ] = ""


class PipelineSettings(Section, frozen=True, kw_only=True):
    allow_python: Annotated[
        bool,
        about(
            "take pipelines written in Python: whoever reaches the HTTP listener can then run programs on the machines "
            "of supervisors, with their rights"
        ),
    ] = False
    ttl_s: Annotated[float, about("a supervisor that is silent for so long loses its pipelines to others", gt=0)] = 15.0
    max_starting: Annotated[
        int, about("pipelines that a supervisor starts at the same time in one Spark; the others wait their turn", gt=0)
    ] = 2
    start_wait_s: Annotated[
        float, about("a pipeline whose first micro-batch takes longer doesn't keep others from starting", gt=0)
    ] = 30.0
    max_pipelines: Annotated[int, about("pipelines and views that are kept", gt=0)] = 10_000
    max_definition_bytes: Annotated[int, about("largest definition of a pipeline", gt=0)] = MIB
    max_events: Annotated[int, about("lines of each pipeline's log that are kept", gt=0)] = 1000
    max_status_bytes: Annotated[int, about("largest status that a supervisor tells of one pipeline", gt=0)] = 64 * 1024
    max_supervisors: Annotated[int, about("supervisors that may be alive at once", gt=0)] = 1000


class MaintenanceSettings(Section, frozen=True, kw_only=True):
    every_s: Annotated[float, about("time between a supervisor's looks at whether topics need a job", gt=0)] = 600.0
    merge_at_runs: Annotated[
        int, about("a topic with so many small runs that should be fewer gets a job that merges them", gt=0)
    ] = 1000
    merge_at_bytes: Annotated[int, about("so does one with so much in small runs", gt=0)] = 256 * MIB
    compact_at_bytes: Annotated[
        int, about("a compacted topic with so much that is due and not yet compacted gets a job for it", gt=0)
    ] = 256 * MIB
    turn_s: Annotated[float, about("a supervisor that is silent for so long loses its turn at a topic", gt=0)] = 60.0


class ViewSettings(Section, frozen=True, kw_only=True):
    max_rows: Annotated[int, about("rows that one view may have", gt=0)] = 1_000_000
    max_row_bytes: Annotated[int, about("largest row of a view, as JSON", gt=0)] = 64 * 1024
    max_key_bytes: Annotated[int, about("largest key of a view's row, as JSON", gt=0, le=2000)] = 1000
    max_part_bytes: Annotated[int, about("largest part of a batch that changes a view, as JSON", gt=0)] = 8 * MIB
    max_part_rows: Annotated[int, about("rows that one part of a batch changes", gt=0)] = 10_000
    page_rows: Annotated[int, about("rows in one page of a view", gt=0, le=10_000)] = 1000
    page_bytes: Annotated[int, about("rows in one page of a view, as JSON, beyond the first", gt=0)] = 8 * MIB


class SqlSettings(Section, frozen=True, kw_only=True):
    concurrency: Annotated[int, about("questions in SQL that one agent passes on at once; more are refused", gt=0)] = 8
    rows: Annotated[int, about("rows of an answer where the question doesn't say", gt=0)] = 10_000
    max_rows: Annotated[int, about("rows that one answer may have, whatever is asked for", gt=0)] = 100_000
    timeout_s: Annotated[float, about("how long a question may take, whatever is asked for", gt=0)] = 300.0
    max_body_bytes: Annotated[int, about("largest text that is passed to a worker", gt=0)] = MIB
    worker_ttl_s: Annotated[float, about("a SQL worker that is silent for so long is not asked any more", gt=0)] = 15.0
    max_workers: Annotated[int, about("SQL workers that may be alive at once", gt=0)] = 100
    connect_timeout_s: Annotated[float, about("how long a worker may take to accept a connection", gt=0)] = 2.0
