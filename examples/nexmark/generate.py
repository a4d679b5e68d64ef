"""Nexmark's auction house: people, auctions and bids into three topics, the same events for the same seed.

    python examples/nexmark/generate.py --events 100000
    python examples/nexmark/generate.py --events 1000000 --rate 5000 --agents 10.0.0.5:8080

Of 50 events one is a person, three are auctions and 46 are bids, as Nexmark says; half of the bids are on the newest
auctions, and most of those by the newest people. Events are `--spacing-ms` apart in their own time; with
`--disorder-ms` some are as much too late. The last ones are far ahead, so that every window closes (`--open` leaves
them out).
"""

import argparse
import math
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import streamhouse
from streamhouse.errors import TopicExists
from streamhouse.spark.runtime import default_agents

TOPICS: Final = {"person": "nexmark-person", "auction": "nexmark-auction", "bid": "nexmark-bid"}
EPOCH_EVENTS: Final = 50
PEOPLE, AUCTIONS = 1, 3  # of each epoch; the rest are bids
BIDS: Final = EPOCH_EVENTS - PEOPLE - AUCTIONS
FIRST_ID: Final = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
OPEN_AUCTIONS: Final = 100
"""Bids go to about the newest so many; an auction is open for about as long as it takes to begin them."""
ACTIVE_PEOPLE: Final = 1000
BEGIN: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
FAR: Final = timedelta(hours=1)

STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES: Final = ("Bend", "Boise", "Cheyenne", "Eugene", "Fresno", "Laramie", "Portland", "Seattle", "Tacoma", "Tucson")
HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


class Event(NamedTuple):
    kind: str
    key: str
    at: datetime
    row: dict[str, object]


def events(count: int, *, seed: int = 1, spacing_ms: float = 1.0, disorder_ms: int = 0) -> Iterator[Event]:
    """The first `count` events of an auction house."""
    spacing = timedelta(milliseconds=spacing_ms)
    for epoch in range(-(-count // EPOCH_EVENTS)):
        rand = random.Random((seed << 32) + epoch)
        for place in range(min(EPOCH_EVENTS, count - epoch * EPOCH_EVENTS)):
            at = BEGIN + (epoch * EPOCH_EVENTS + place) * spacing
            if disorder_ms:
                at -= timedelta(milliseconds=rand.randrange(disorder_ms))
            if place < PEOPLE:
                yield _person(epoch, at, rand)
            elif place < PEOPLE + AUCTIONS:
                yield _auction(epoch, place - PEOPLE, at, rand, spacing)
            else:
                yield _bid(epoch, at, rand)


def closing(count: int, *, spacing_ms: float = 1.0) -> Iterator[Event]:
    """One event of each kind, so late that all windows before it close. They belong to nobody else's."""
    at = BEGIN + timedelta(milliseconds=count * spacing_ms) + FAR
    rand = random.Random(0)
    last = count // EPOCH_EVENTS + 1
    person, auction, bid = _person(last, at, rand), _auction(last, 0, at, rand, timedelta()), _bid(last, at, rand)
    yield Event("person", "0", at, {**person.row, "id": 0, "state": "ZZ"})
    yield Event("auction", "0", at, {**auction.row, "id": 0, "seller": -1, "category": 0})
    yield Event("bid", "0", at, {**bid.row, "auction": -1, "bidder": -1, "price": 0})


def _person(epoch: int, at: datetime, rand: random.Random) -> Event:
    person_id = FIRST_ID + epoch
    row: dict[str, object] = {
        "id": person_id,
        "name": f"{_letters(rand, 5)} {_letters(rand, 7)}".title(),
        "email_address": f"{_letters(rand, 7)}@{_letters(rand, 5)}.com",
        "credit_card": " ".join(f"{rand.randrange(10_000):04}" for _ in range(4)),
        "city": rand.choice(CITIES),
        "state": rand.choice(STATES),
        "date_time": _text(at),
        "extra": _letters(rand, 60),
    }
    return Event("person", str(person_id), at, row)


def _auction(epoch: int, number: int, at: datetime, rand: random.Random, spacing: timedelta) -> Event:
    auction_id = FIRST_ID + epoch * AUCTIONS + number
    initial = _price(rand)
    horizon = spacing * (OPEN_AUCTIONS * EPOCH_EVENTS // AUCTIONS)
    # Three of four auctions are by the newest hundredth of the people: some sellers are busy.
    seller = _seller(epoch, rand, busy=rand.randrange(4) > 0)
    row: dict[str, object] = {
        "id": auction_id,
        "item_name": _letters(rand, 15),
        "description": _letters(rand, 60),
        "initial_bid": initial,
        "reserve": initial + _price(rand),
        "date_time": _text(at),
        "expires": _text(at + max(timedelta(milliseconds=1), 2 * rand.random() * horizon)),
        "seller": seller,
        "category": FIRST_CATEGORY + rand.randrange(CATEGORIES),
        "extra": _letters(rand, 100),
    }
    return Event("auction", str(auction_id), at, row)


def _bid(epoch: int, at: datetime, rand: random.Random) -> Event:
    begun = (epoch + 1) * AUCTIONS
    newest = begun - 1
    auction = (
        newest - newest % OPEN_AUCTIONS if rand.randrange(2) else rand.randrange(max(0, begun - OPEN_AUCTIONS), begun)
    )
    hot = rand.randrange(2) == 0
    channel = rand.choice(HOT_CHANNELS) if hot else f"channel-{rand.randrange(10_000)}"
    url = f"https://www.nexmark.com/{_letters(rand, 5)}/{_letters(rand, 5)}/{_letters(rand, 5)}/item.htm?query=1"
    if not hot and rand.randrange(10):
        url += f"&channel_id={rand.randrange(1 << 30)}"
    row: dict[str, object] = {
        "auction": FIRST_ID + auction,
        "bidder": _seller(epoch, rand, busy=rand.randrange(4) > 0),
        "price": _price(rand),
        "channel": channel,
        "url": url,
        "date_time": _text(at),
        "extra": _letters(rand, 30),
    }
    return Event("bid", str(FIRST_ID + auction), at, row)


def _seller(epoch: int, rand: random.Random, *, busy: bool) -> int:
    people = epoch + 1
    if busy:
        return FIRST_ID + (people - 1) // 100 * 100
    return FIRST_ID + rand.randrange(max(0, people - ACTIVE_PEOPLE), people)


def _price(rand: random.Random) -> int:
    return int(math.pow(10.0, rand.random() * 6.0) * 100.0)


def _letters(rand: random.Random, length: int) -> str:
    return "".join(rand.choices(LETTERS, k=length))


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"


def produce(agents: str, count: int, *, rate: float | None, partitions: int, arguments: argparse.Namespace) -> None:
    """Send the events, no faster than `rate` a second."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with streamhouse.SyncClient(agents) as client, Progress(*columns) as progress:
        for topic in TOPICS.values():
            _create(client, topic, partitions)
        task = progress.add_task("events", total=count)
        begun = time.monotonic()
        with ExitStack() as stack:
            senders = {kind: stack.enter_context(client.producer(topic, linger_ms=5)) for kind, topic in TOPICS.items()}
            for number, event in enumerate(_all(count, arguments)):
                senders[event.kind].enqueue(event.row, key=event.key, timestamp_ms=round(event.at.timestamp() * 1000))
                if number % 1000 == 999:
                    progress.update(task, completed=min(count, number + 1))
                    if rate and (ahead_s := begun + number / rate - time.monotonic()) > 0:
                        time.sleep(ahead_s)
        progress.update(task, completed=count)


def _create(client: streamhouse.SyncClient, topic: str, partitions: int) -> None:
    with suppress(TopicExists):
        client.topics.create(topic, partitions=partitions)


def _all(count: int, arguments: argparse.Namespace) -> Iterator[Event]:
    spacing_ms = arguments.spacing_ms
    yield from events(count, seed=arguments.seed, spacing_ms=spacing_ms, disorder_ms=arguments.disorder_ms)
    if not arguments.open:
        yield from closing(count, spacing_ms=spacing_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description="Nexmark's events into three topics.")
    parser.add_argument("--events", type=int, default=100_000, help="how many (default: %(default)s)")
    parser.add_argument("--rate", type=float, help="at most so many a second (default: as fast as it goes)")
    parser.add_argument("--partitions", type=int, default=2, help="of each topic (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--spacing-ms", type=float, default=1.0, help="between two events' own times (default: %(default)s)"
    )
    parser.add_argument("--disorder-ms", type=int, default=0, help="events are up to so much too late (default: none)")
    parser.add_argument("--open", action="store_true", help="leave out the last events, which close all windows")
    parser.add_argument("--agents", default=default_agents(), help="host:port,… (default: %(default)s)")
    arguments = parser.parse_args()
    produce(
        arguments.agents, arguments.events, rate=arguments.rate, partitions=arguments.partitions, arguments=arguments
    )


if __name__ == "__main__":
    main()
