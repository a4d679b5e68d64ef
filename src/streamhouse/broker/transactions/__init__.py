"""Transactions of producers: who may write what, how they end, and that every partition hears of it.

Owns        the promises of transactions, behind one door: `TransactionCoordinator`
Leaves      rows and the order of their changes to the metadata store, what a partition makes of a marker to its log,
            offsets that are committed in a transaction to `groups`, frames and codes to the wires

`checks` decides without I/O; `markers` writes markers where this agent leads; `ending` tells every leader of a decided
transaction; `sweeper` finds those that nobody ends, and those that are
open in a partition alone.
"""

from streamhouse.broker.transactions.coordinator import TransactionCoordinator, TransactionPage

__all__ = ["TransactionCoordinator", "TransactionPage"]
