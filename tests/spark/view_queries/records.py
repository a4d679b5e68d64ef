"""Records in micro-batches: out of order, with nulls and odd numbers, and some that come very late."""

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

STREAMS = ("plays", "pays")
COLUMNS = "id BIGINT, at TIMESTAMP, user STRING, n INT, d DOUBLE"
PEOPLE = "user STRING, city STRING"
BEGIN = datetime(2026, 1, 1, 10, tzinfo=UTC)
STEP = timedelta(minutes=10)
"""From one micro-batch to the next."""
LATENESS = "15 minutes"
"""What queries allow: records are that much out of order, or hours, which is too late by any count."""

Batch = dict[str, list[dict[str, Any]]]


def make_batches(rng: random.Random, count: int, *, late: bool) -> list[Batch]:
    """For each micro-batch the records of each stream; `late`: with some that are hours older than the watermark."""
    batches: list[Batch] = []
    ids = {name: place for place, name in enumerate(STREAMS)}
    for number in range(count):
        batch: Batch = {}
        for name in STREAMS:
            batch[name] = []
            for _ in range(rng.choice((0, 1, 3, 5, 8))):
                # A watermark moves behind its micro-batch, and counts from the one after the next.
                is_late = late and number >= 3 and rng.random() < 0.3
                batch[name].append(_record(rng, ids[name], number, is_late=is_late))
                ids[name] += len(STREAMS)
        if late:  # the watermark moves in every micro-batch, by every stream
            for name in STREAMS:
                batch[name].append(
                    {**_record(rng, ids[name], number, is_late=False), "at": _text(BEGIN + number * STEP)}
                )
                ids[name] += len(STREAMS)
        batches.append(batch)
    return batches


def _record(rng: random.Random, number: int, batch: int, *, is_late: bool) -> dict[str, Any]:
    at = BEGIN + batch * STEP + timedelta(seconds=rng.randrange(-600, 1))
    return {
        "id": number,
        "at": _text(at - timedelta(hours=3) if is_late else at),
        "user": rng.choice(("ann", "bob", "Ann", "", None)),
        "n": rng.choice((0, 1, 2, 3, 7, None)),
        "d": rng.choice((0.0, -0.0, 1.5, 2.25, "NaN", None)),
    }


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def people() -> list[dict[str, Any]]:
    """One of them in two cities."""
    pairs = (("ann", "Rome"), ("bob", "Oslo"), ("bob", "Bern"), ("Ann", None), (None, "Nowhere"))
    return [{"user": user, "city": city} for user, city in pairs]


def lines(records: list[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(each) for each in records)
