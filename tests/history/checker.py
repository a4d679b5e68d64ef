"""Checker: what a history must not contain, whatever happened to the cluster. In the spirit of Elle and Jepsen.

Data path   events -> **checker** -> anomalies, for reports and exit codes
Owns        the list of checks
Leaves      each of them to its module; recording to the runs

Plain functions over a finished history; the time they take grows with its length, or its length times its logarithm.
"""

from collections.abc import Callable, Iterator
from typing import Final

from .anomaly import Anomaly, limited
from .cycles import transactions_go_round_in_no_circle
from .events import History
from .index import Index
from .liveness import clients_go_on, enough_happened, readers_read, records_are_answered, the_end_is_stable
from .log_checks import (
    a_log_stays_as_it_was,
    acknowledged_records_are_kept,
    acknowledgements_are_in_order,
    acknowledgements_follow_time,
    offsets_hold_one_record,
    records_are_stored_once,
    records_stand_in_order,
    records_were_sent,
    what_was_read_is_kept,
)
from .offset_checks import commits_are_remembered, commits_never_go_back, partitions_have_one_owner
from .read_checks import polls_go_forward, readers_see_everything
from .transaction_checks import (
    readers_see_committed_records_only,
    replaced_producers_commit_nothing,
    transactions_are_whole,
)

Check = Callable[[Index], Iterator[Anomaly]]

CHECKS: Final[tuple[Check, ...]] = (
    acknowledged_records_are_kept,
    what_was_read_is_kept,
    offsets_hold_one_record,
    records_were_sent,
    records_are_stored_once,
    records_stand_in_order,
    acknowledgements_are_in_order,
    acknowledgements_follow_time,
    a_log_stays_as_it_was,
    polls_go_forward,
    readers_see_everything,
    readers_see_committed_records_only,
    transactions_are_whole,
    transactions_go_round_in_no_circle,
    replaced_producers_commit_nothing,
    commits_never_go_back,
    commits_are_remembered,
    partitions_have_one_owner,
    records_are_answered,
    clients_go_on,
    readers_read,
    the_end_is_stable,
    enough_happened,
)


def check(history: History) -> list[Anomaly]:
    """Everything that is wrong, in the order of the checks; of each kind the first few."""
    index = Index(history)
    return list(limited(anomaly for each in CHECKS for anomaly in each(index)))
