"""Transactions of producers: their rows, their ends, and the markers in every partition.

Owns        Kafka's transactions, behind one class: `TransactionCoordinator`
Leaves      rows and the order of their changes to the metadata store; the effect of a marker to the partition's log;
            offsets that are committed in a transaction to `groups`; frames and codes to `wire`

`checks` decides without I/O; `markers` writes markers where this agent leads; `completion` sends markers to every
leader of a decided transaction; `sweeper` finds transactions that timed out, are unfinished, or hang in a partition.
"""

from streamhouse.broker.transactions.coordinator import TransactionCoordinator, TransactionPage

__all__ = ["TransactionCoordinator", "TransactionPage"]
