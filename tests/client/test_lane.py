"""What becomes of batches that were not stored: none is lost without a word, none is stored twice."""

import asyncio

import pytest

from streamhouse.client.delivery import Batch, Delivery
from streamhouse.client.lane import Identity, Lane, Mending, NotStored, Stored, mend
from streamhouse.clock import SystemClock
from streamhouse.errors import Internal, Rejected, Unavailable
from streamhouse.model.record import NewRecord
from tests.contracts.clocks import ManualClock

AWAY = Unavailable("away")
REFUSED = Rejected("refused")


def batch(sequence: int, *, records: int = 2, expires_at: float = 100.0, alone: bool = False) -> Batch:
    made = Batch(partition=0, opened_at=0.0, expires_at=expires_at, sequence=sequence, flew_alone=alone)
    for number in range(records):
        made.add(NewRecord(b"%d" % number), 10)
    return made


def mended(*failed: tuple[Batch, NotStored], now: float = 0.0) -> Mending:
    return mend([batch for batch, _ in failed], dict(failed), now=now)


def test_batches_that_may_have_been_stored_go_again_with_their_own_numbers() -> None:
    first, second = batch(4), batch(8)
    mending = mended((first, NotStored(AWAY)), (second, NotStored(AWAY)))
    assert (mending.again, mending.over, mending.sequence, mending.anew) == ([first, second], [], None, False)
    assert [first.sequence, second.sequence] == [4, 8]


def test_those_behind_a_refused_batch_take_its_numbers() -> None:
    before, refused, behind = batch(2), batch(4), batch(6)
    mending = mended(
        (before, NotStored(AWAY)),
        (refused, NotStored(REFUSED, kind="refused")),
        (behind, NotStored(REFUSED, kind="lost")),
    )
    assert (mending.again, mending.over) == ([before, behind], [(refused, REFUSED)])
    assert (mending.sequence, mending.anew) == (4, False)
    assert [before.sequence, behind.sequence] == [2, -1]


def test_only_the_records_to_blame_are_refused() -> None:
    mending = mended((batch(4, records=3), NotStored(REFUSED, kind="refused", blamed=[1])))
    assert [[r.value for r in each.records] for each in mending.again] == [[b"0", b"2"]]
    assert [[r.value for r in each.records] for each, _ in mending.over] == [[b"1"]]
    assert mending.sequence == 4


def test_a_batch_that_is_too_large_goes_again_in_halves_and_a_single_record_never() -> None:
    mending = mended((batch(4, records=3), NotStored(REFUSED, kind="refused", splits=True)))
    assert [[r.value for r in each.records] for each in mending.again] == [[b"0"], [b"1", b"2"]]
    assert mending.over == []
    single = batch(4, records=1)
    assert mended((single, NotStored(REFUSED, kind="refused", splits=True))).over == [(single, REFUSED)]


def test_given_up_once_nothing_of_unknown_fate_is_ever_sent_again() -> None:
    late, behind = batch(4, expires_at=9.0), batch(6)
    mending = mended((late, NotStored(AWAY)), (behind, NotStored(AWAY)), now=9.0)
    assert (mending.again, mending.over, mending.anew) == ([], [(late, AWAY), (behind, AWAY)], True)


def test_an_agent_that_lost_count_is_met_under_a_new_name_only_when_nothing_else_explains_it() -> None:
    overtaken, alone = batch(4), batch(4, alone=True)
    assert mended((overtaken, NotStored(REFUSED, kind="lost"))).again == [overtaken]
    mending = mended((alone, NotStored(REFUSED, kind="lost")))
    assert (mending.over, mending.anew) == ([(alone, REFUSED)], True)


async def test_a_delivery_follows_its_record_into_another_batch() -> None:
    whole = batch(0, records=4)
    waiting = [asyncio.ensure_future(delivery.settled()) for delivery in whole.deliveries]
    last = whole.deliveries[3]
    await asyncio.sleep(0)
    first, second = whole.part([0, 1]), whole.part([2, 3])
    second.succeed(70, None)
    first.fail(REFUSED)
    await asyncio.wait_for(asyncio.gather(*waiting), 10)
    assert (await last).offset == 71
    assert first.is_unseen


class FakeWire:
    """An agent that keeps one partition as Kafka's brokers do; `mishaps` happen to what comes, one after the other."""

    def __init__(self, *mishaps: str) -> None:
        self.log: list[bytes] = []
        self.mishaps = list(mishaps)
        self.expected: dict[int, int] = {}
        self.identities = 0
        self.released = 0
        self.looked = 0

    async def introduce(self) -> Identity:
        self.identities += 1
        return Identity(self.identities, 0)

    async def encode(self, records: list[NewRecord], identity: Identity, sequence: int) -> bytes:
        values = b",".join(record.value or b"" for record in records)
        return b"%d/%d/" % (identity.producer_id, sequence) + values

    async def post(self, partition: int, body: bytes) -> Stored:
        producer, sequence, text = int(body.split(b"/")[0]), int(body.split(b"/")[1]), body.split(b"/")[2]
        mishap = self.mishaps.pop(0) if self.mishaps else ""
        await asyncio.sleep(0)
        if mishap == "away":
            raise NotStored(AWAY)
        values = text.split(b",")
        expected = self.expected.get(producer, 0)
        if any(value.startswith(b"bad") for value in values):
            raise NotStored(REFUSED, kind="refused")
        if sequence > expected:
            raise NotStored(REFUSED, kind="lost")
        if sequence == expected:
            self.log += values
            self.expected[producer] = expected + len(values)
        if mishap == "answer lost":
            raise NotStored(AWAY)
        return Stored(len(self.log) - len(values))

    async def look_again(self) -> None:
        self.looked += 1

    def release(self, batch: Batch) -> None:
        self.released += batch.size_bytes


class Clock(ManualClock):
    """Pauses take no time, but let others work."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.advance(ms=round(seconds * 1000))


async def run(wire: FakeWire, values: list[bytes], *, batch_bytes: int = 10, timeout_s: float = 30.0) -> list[Delivery]:
    lane = Lane(
        0,
        wire,
        clock=Clock(),
        batch_bytes=batch_bytes,
        linger_s=0,
        timeout_s=timeout_s,
        max_in_flight=5,
        numbered=True,
    )
    task = asyncio.get_running_loop().create_task(lane.run())
    deliveries = [lane.append(NewRecord(value), 10)[0] for value in values]
    async with asyncio.timeout(10):
        for delivery in deliveries:
            await delivery.settled()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return deliveries


VALUES = [b"%d" % number for number in range(20)]


@pytest.mark.parametrize(
    "mishaps",
    [
        (),
        ("away",),
        ("answer lost",),
        ("", "answer lost", "away", "", "answer lost"),
        ("away", "away", "away", "away", "away", "answer lost", "", "away"),
    ],
)
async def test_every_record_is_stored_once_and_in_order_whatever_happens_on_the_way(mishaps: tuple[str, ...]) -> None:
    wire = FakeWire(*mishaps)
    deliveries = await run(wire, VALUES)
    assert wire.log == VALUES
    assert [delivery.failure() for delivery in deliveries] == [None] * 20
    assert wire.released == 200
    assert wire.identities == 1


async def test_a_refused_record_costs_its_neighbours_nothing() -> None:
    values = [b"bad" if number in (3, 11, 12) else value for number, value in enumerate(VALUES)]
    wire = FakeWire()
    deliveries = await run(wire, values)
    assert wire.log == [value for value in values if value != b"bad"]
    assert [at for at, delivery in enumerate(deliveries) if delivery.failure()] == [3, 11, 12]
    assert wire.identities == 1


async def test_receipts_count_on_within_a_batch() -> None:
    wire = FakeWire()
    deliveries = await run(wire, VALUES, batch_bytes=50)
    assert [delivery.result().offset for delivery in deliveries] == list(range(20))


async def test_what_nobody_expected_ends_every_delivery_with_its_name() -> None:
    class Broken(FakeWire):
        async def post(self, partition: int, body: bytes) -> Stored:
            raise ZeroDivisionError("by nought")

    deliveries = await run(Broken(), VALUES)
    assert {type(delivery.failure()) for delivery in deliveries} == {Internal}
    assert "by nought" in str(deliveries[0].failure())


async def test_an_agent_that_stays_away_is_given_up_on() -> None:
    wire = FakeWire(*["away"] * 1_000)
    deliveries = await run(wire, VALUES, timeout_s=5.0)
    assert [delivery.failure() for delivery in deliveries] == [AWAY] * 20
    assert wire.log == []


async def test_a_batch_that_is_not_full_waits_for_more_until_it_is_told_to_hurry() -> None:
    wire = FakeWire()
    lane = Lane(
        0,
        wire,
        clock=SystemClock(),
        batch_bytes=1_000,
        linger_s=3_600,
        timeout_s=7_200,
        max_in_flight=5,
        numbered=True,
    )
    task = asyncio.get_running_loop().create_task(lane.run())
    first, _ = lane.append(NewRecord(b"0"), 10)
    for _ in range(20):
        await asyncio.sleep(0)
    second, _ = lane.append(NewRecord(b"1"), 10)
    assert wire.log == []
    lane.hurry()
    assert ((await first).offset, (await second).offset) == (0, 1)
    assert lane.batches() == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
