"""Settings of transactions.

Owns        their limits and defaults
Leaves      the agent's other sections to `settings`
"""

from typing import Annotated

from streamhouse.config.fields import Section, about


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
