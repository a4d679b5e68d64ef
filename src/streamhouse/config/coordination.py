"""Settings of transactions.

Owns        their limits and defaults
Leaves      the agent's other sections to `settings`
"""

from typing import Annotated

from streamhouse.config.fields import Section, about


class TransactionSettings(Section, frozen=True, kw_only=True):
    shards: Annotated[int, about("parts into which transactional ids are divided among agents", gt=0, le=10_000)] = 50
    max_timeout_s: Annotated[
        float, about("longest time that a producer may ask for its transactions; then they are aborted", gt=0)
    ] = 900.0
    expire_s: Annotated[float, about("a transactional id that is silent for so long is forgotten", gt=0)] = 7 * 86_400.0
    check_s: Annotated[float, about("time between looks for transactions that are overdue or half ended", gt=0)] = 1.0
    grace_s: Annotated[
        float,
        about("a decided transaction is left for so long to the agent that decided it", gt=0),
    ] = 3.0
    end_wait_s: Annotated[
        float, about("how long the end of a transaction waits for its markers before it is answered", ge=0)
    ] = 5.0
    # Of a database's index: it takes 2.7 KB, and some have a group's id beside it.
    max_id_bytes: Annotated[int, about("longest transactional id, in UTF-8", gt=0, le=1300)] = 1000
    max_partitions: Annotated[int, about("partitions that one transaction may be about", gt=0)] = 10_000
    max_waiting: Annotated[int, about("transactions whose markers one agent writes at once", gt=0)] = 1000
    max_listed: Annotated[int, about("transactions that one answer lists", gt=0)] = 10_000
    aborted_kept: Annotated[
        int, about("aborted transactions of a partition that its leader keeps in memory; more are asked for", gt=0)
    ] = 10_000
