"""Named SQL statements and numbered migrations, read once from `sql/`.

Owns        the form of a statement file (`-- name:` line, purpose lines, one statement), the names Python may use; the
            order of migrations, and rejecting a database that is newer than this code
Leaves      running them to the engines

Names are attributes, so a misspelt one fails the type check; a statement without an attribute, or an attribute without
a statement, fails when the store is opened.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Final, TypeVar

from streamhouse.errors import Internal, Misconfigured

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SQL: Final = files("streamhouse.stores.metadata") / "sql"
Names = TypeVar("Names", bound="DataclassInstance")
_NAME: Final = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    # cluster
    name_cluster: str
    cluster_name: str
    newest_migration: str
    # identity
    find_identity: str
    next_generation: str
    store_generation: str
    rename_cluster: str
    raise_counter: str
    adopt_aborted: str
    raise_latest: str
    adopt_end: str
    sessions_among: str
    # topics
    same_topics: str
    insert_topic: str
    list_topics: str
    find_topic: str
    alter_topic: str
    grow_topic: str
    delete_topic: str
    # settings of agents
    list_broker_settings: str
    find_broker_settings: str
    add_broker_settings: str
    alter_broker_settings: str
    # partitions
    insert_partitions: str
    partitions_of_topics: str
    find_partitions: str
    existing_partitions: str
    partitions_held_by: str
    take_lease: str
    release_lease: str
    free_leases: str
    pin_partition: str
    reserve_offsets: str
    skip_reserved: str
    skip_lost: str
    advance_flushed_end: str
    advance_log_start: str
    shrink_partition: str
    sizes_of_topics: str
    delete_partitions: str
    # sessions
    find_session: str
    list_sessions: str
    list_departed_sessions: str
    lowest_free_node_id: str
    insert_session: str
    renew_session: str
    drain_session: str
    claim_session: str
    end_session: str
    forget_sessions: str
    # abandoned ranges
    abandon_ranges: str
    abandoned_of_session: str
    abandoned_sessions: str
    forget_abandoned: str
    drop_abandoned_of_topic: str
    # segment objects
    known_among: str
    insert_object: str
    doom_object: str
    drop_object: str
    objects_after: str
    newest_objects: str
    ranges_of_object: str
    known_objects: str
    # doomed objects
    doomed_before: str
    forget_object: str
    # runs
    insert_run: str
    runs_from: str
    last_runs: str
    runs_before: str
    runs_of: str
    run_at_time: str
    latest_so_far: str
    latest_run: str
    epoch_end: str
    runs_of_object: str
    count_runs: str
    drop_runs_below: str
    drop_runs_of_topic: str
    # replacements
    runs_within: str
    drop_runs_within: str
    latest_before: str
    insert_replacement: str
    mark_cleaned: str
    cleaned_of_topics: str
    # commits
    touch_query: str
    find_commit: str
    last_commit: str
    insert_commit: str
    trim_commits: str
    forget_commits: str
    forget_queries: str
    carry_producers: str
    find_carried: str
    put_carried: str
    give_up_objects: str
    # groups
    shard_commits: str
    put_shard_commit: str
    put_group: str
    groups_of_shards: str
    drop_group: str
    groups_to_review: str
    drop_groups_of_topic: str
    put_group_lag: str
    group_lags: str
    forget_group_lag: str
    forget_old_group_lags: str
    drop_shards_of_topic: str
    # offsets
    put_offset: str
    offsets_of_group: str
    find_offsets: str
    drop_offset: str
    drop_offsets_of_group: str
    drop_offsets_of_topic: str
    drop_offsets_of_shards: str
    # schemas
    add_schema_context: str
    take_schema_id: str
    pass_schema_id: str
    list_schema_contexts: str
    insert_schema: str
    find_schema: str
    schema_ids_of_guid: str
    schema_id_of_guid: str
    drop_unused_schema: str
    find_schema_subject: str
    count_schema_subjects: str
    put_schema_subject: str
    drop_schema_subject: str
    list_schema_subjects: str
    insert_schema_version: str
    versions_of_subject: str
    versions_of_schema: str
    find_schema_versions: str
    latest_schema_version: str
    list_schema_versions: str
    mark_schema_version_deleted: str
    drop_schema_version: str
    insert_schema_references: str
    schema_referrers: str
    drop_schema_references: str
    find_schema_rules: str
    add_schema_rules: str
    set_schema_config: str
    set_schema_mode: str
    drop_schema_modes_of_context: str
    drop_schema_rules: str
    # tables
    list_tables: str
    find_table: str
    count_tables: str
    put_table: str
    drop_table: str
    # pipelines
    list_pipelines: str
    find_pipeline: str
    fence_pipeline: str
    count_pipelines: str
    insert_pipeline: str
    change_pipeline: str
    drop_pipeline: str
    tell_statuses: str
    renew_pipelines: str
    release_pipelines: str
    release_pipelines_of: str
    take_pipelines: str
    put_supervisor: str
    list_supervisors: str
    drop_supervisor: str
    forget_supervisors: str
    add_events: str
    trim_events: str
    list_events: str
    add_pipeline_version: str
    trim_pipeline_versions: str
    list_pipeline_versions: str
    # views
    find_view: str
    list_views: str
    put_view: str
    clear_view: str
    count_view_rows: str
    put_view_rows: str
    drop_view_rows: str
    drop_older_view_rows: str
    find_view_row: str
    page_of_view: str
    # SQL workers
    put_worker: str
    list_workers: str
    drop_worker: str
    forget_workers: str
    # transactions
    find_transaction: str
    hold_transaction: str
    transaction_of_producer: str
    insert_transaction: str
    update_transaction: str
    due_transactions: str
    list_transactions: str
    forget_transactions: str
    # offsets of transactions
    put_pending_offset: str
    commit_pending_offsets: str
    drop_pending_offsets: str
    pending_of_group: str
    find_pending: str
    drop_pending_of_group: str
    drop_pending_of_topic: str
    drop_pending_of_shards: str
    # aborted transactions
    insert_aborted: str
    aborted_of: str
    drop_aborted_below: str
    forget_aborted: str
    drop_aborted_of_topic: str
    # counters
    next_epoch: str
    reserve_producer_ids: str
    next_schema_revision: str
    take_pipeline_epochs: str
    # security
    list_acls: str
    count_acls: str
    insert_acl: str
    delete_acl: str
    list_users: str
    find_user: str
    count_users: str
    insert_user: str
    delete_user: str
    put_credential: str
    delete_credential: str
    list_keys: str
    find_key: str
    count_keys: str
    insert_key: str
    delete_key: str
    delete_keys_of: str
    delete_delegation_tokens_of: str
    list_role_members: str
    insert_role_member: str
    delete_role_member: str
    delete_roles_of: str
    list_quotas: str
    put_quota: str
    delete_quota: str
    count_quotas: str
    put_quota_usage: str
    list_quota_usage: str
    forget_quota_usage: str
    list_delegation_tokens: str
    count_delegation_tokens: str
    find_delegation_token: str
    put_delegation_token: str
    prolong_delegation_token: str
    delete_delegation_token: str
    forget_delegation_tokens: str


def parse_statements(text: str) -> dict[str, str]:
    """The statements of one file by name; each has at least one line of purpose and exactly one statement."""
    pieces = _NAME.split(text)
    result: dict[str, str] = {}
    for name, body in zip(pieces[1::2], pieces[2::2], strict=True):
        lines = body.strip().splitlines()
        sql = "\n".join(line for line in lines if not line.startswith("--")).strip()
        if not lines or not lines[0].startswith("-- "):
            raise Internal(f"statement has no line of purpose; name={name}")
        if sql.count(";") != 1 or not sql.endswith(";") or name in result:
            raise Internal(f"statement is not exactly one; name={name}")
        result[name] = sql
    return result


@cache
def load_statements(engine: str = "") -> Statements:
    """All statements; those in the engine's own folder replace shared ones. Raises `Internal` if names and attributes
    differ."""
    return as_attributes(Statements, read_statements(SQL) | (read_statements(SQL / engine) if engine else {}))


def read_statements(directory: Traversable) -> dict[str, str]:
    """The statements in the files of one directory."""
    result: dict[str, str] = {}
    for path in sorted(directory.iterdir(), key=lambda path: path.name):
        if path.name.endswith(".sql"):
            result |= parse_statements(path.read_text(encoding="utf-8"))
    return result


def as_attributes(kind: type[Names], result: Mapping[str, str]) -> Names:
    expected = {field.name for field in fields(kind)}
    if odd := expected.symmetric_difference(result):
        raise Internal(f"statements and their names differ; names={','.join(sorted(odd))}")
    return kind(**result)


_FILE: Final = re.compile(r"([0-9]{4})_([a-z0-9_]+)\.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    version: int
    name: str
    sql: str


@cache
def load_migrations(engine: str = "") -> tuple[Migration, ...]:
    """All migrations of an engine, by version: 1, 2, 3 … without a gap."""
    result = [
        Migration(version=int(match[1]), name=match[2], sql=path.read_text(encoding="utf-8"))
        for path in (SQL / engine / "migrations").iterdir()
        if (match := _FILE.fullmatch(path.name))
    ]
    result.sort(key=lambda migration: migration.version)
    if [migration.version for migration in result] != list(range(1, len(result) + 1)):
        raise Internal(f"migrations have a gap; versions={[migration.version for migration in result]}")
    return tuple(result)


def due_migrations(known: Sequence[Migration], *, version: int) -> Sequence[Migration]:
    """The migrations that a database of this version needs; raises `Misconfigured` if it is newer than the code."""
    newest = known[-1].version if known else 0
    if version > newest:
        raise Misconfigured(
            f"the metadata database was written by a newer release; schema={version} supported={newest} "
            "do=run that release or a later one, or point --metadata at another database"
        )
    return known[version:]


def split_script(sql: str) -> Iterator[str]:
    """The statements of a script one by one, so that they can share a transaction."""
    statement = ""
    for line in sql.splitlines():
        if not statement and (not line.strip() or line.startswith("--")):
            continue
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            statement = ""
    if statement.strip():
        raise Internal(f"migration ends in the middle of a statement; tail={statement.strip()!r}")
