"""Watch: who holds which partition, as the metadata store says, past all tunnels.

Data path   PostgreSQL -> **watch** -> history
Owns        asking a few times a second; connecting again after the database was away
Leaves      what it means to `figures` and `report`
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import asyncpg

from .history import History, Leader
from .producers import TOPIC

EVERY_S: Final = 0.2
TIMEOUT_S: Final = 2.0
LEADERS: Final = """
SELECT p.partition, p.epoch, s.kafka_port
FROM partitions AS p
JOIN topics AS t ON t.topic_id = p.topic_id
LEFT JOIN sessions AS s ON s.session_id = p.holder
WHERE t.name = $1
"""


async def watch_leaders(dsn: str, by_port: Mapping[int, str], history: History, now: Callable[[], float]) -> None:
    """For ever; a database that is away is asked again."""
    known: dict[int, tuple[str, int]] = {}
    while True:
        try:
            connection = await asyncpg.connect(dsn, timeout=TIMEOUT_S)
            try:
                while True:
                    rows = await connection.fetch(LEADERS, TOPIC, timeout=TIMEOUT_S)
                    _note_changes(rows, by_port, known, history, now())
                    await asyncio.sleep(EVERY_S)
            finally:
                connection.terminate()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            await asyncio.sleep(EVERY_S)


def _note_changes(
    rows: list[Any], by_port: Mapping[int, str], known: dict[int, tuple[str, int]], history: History, at: float
) -> None:
    for partition, epoch, port in rows:
        seen = (by_port.get(port, ""), epoch)
        if known.get(partition) != seen:
            known[partition] = seen
            history.leaders.append(Leader(at, partition, *seen))
