"""Settings of what agents coordinate: transactions, consumer groups, schemas."""

from typing import Annotated

from streamhouse.config.fields import MIB, Section, about


class TransactionSettings(Section, frozen=True, kw_only=True):
    shards: Annotated[int, about("shards by which transactional ids are distributed over agents", gt=0, le=10_000)] = 50
    max_timeout_s: Annotated[
        float, about("maximum transaction timeout of a producer, after which its transaction is aborted", gt=0)
    ] = 900.0
    expire_s: Annotated[float, about("time without use after which a transactional id expires", gt=0)] = 7 * 86_400.0
    check_s: Annotated[float, about("interval of checking for timed-out and incompletely ended transactions", gt=0)] = (
        1.0
    )
    grace_s: Annotated[
        float,
        about("how long the completion of a prepared transaction is left to the agent that prepared it", gt=0),
    ] = 3.0
    end_wait_s: Annotated[
        float, about("how long EndTxn waits for the transaction's markers before it responds", ge=0)
    ] = 5.0
    # Limited by PostgreSQL's indexes: an entry has at most 2.7 KB, and some contain a group id as well.
    max_id_bytes: Annotated[int, about("maximum length of a transactional id, in bytes of UTF-8", gt=0, le=1300)] = 1000
    max_partitions: Annotated[int, about("maximum partitions of one transaction", gt=0)] = 10_000
    max_waiting: Annotated[int, about("transactions for which one agent writes markers concurrently", gt=0)] = 1000
    max_listed: Annotated[int, about("maximum transactions in one listing", gt=0)] = 10_000
    aborted_kept: Annotated[
        int,
        about(
            "aborted transactions of a partition that its leader keeps in memory; others are read from the "
            "metadata store",
            gt=0,
        ),
    ] = 10_000


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
