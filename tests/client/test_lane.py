"""What becomes of batches that were not stored: none is lost without a word, none is stored twice."""

import asyncio

import pytest

from streamhouse.client.delivery import Delivery
from streamhouse.client.lane import Batch, Identity, Lane, NotStored, Stored, mend
from streamhouse.errors import Internal, Rejected, Unavailable
from streamhouse.model.record import NewRecord
from tests.contracts.clocks import ManualClock

AWAY = Unavailable("away")
REFUSED = Rejected("refused")


async def batch(
    sequence: int, answer: NotStored, *, records: int = 2, expires_at: float = 100.0, alone: bool = False
) -> Batch:
    made = Batch(opened_at=0.0, expires_at=expires_at, sequence=sequence, answer=answer, flew_alone=alone)
    for number in range(records):
        made.add(NewRecord(b"%d" % number), Delivery(), 10)
    return made


async def test_batches_that_may_have_been_stored_go_again_with_their_own_numbers() -> None:
    failed = [await batch(4, NotStored(AWAY)), await batch(8, NotStored(AWAY))]
    mending = mend(failed, now=0)
    assert (mending.again, mending.over, mending.sequence, mending.anew) == (failed, [], None, False)
    assert [each.sequence for each in failed] == [4, 8]


async def test_those_behind_a_refused_batch_take_its_numbers() -> None:
    before = await batch(2, NotStored(AWAY))
    refused = await batch(4, NotStored(REFUSED, kind="refused"))
    behind = await batch(6, NotStored(REFUSED, kind="lost"))
    mending = mend([before, refused, behind], now=0)
    assert (mending.again, mending.over) == ([before, behind], [(refused, REFUSED)])
    assert (mending.sequence, mending.anew) == (4, False)
    assert [before.sequence, behind.sequence] == [2, -1]


async def test_only_the_records_to_blame_are_refused() -> None:
    blamed = await batch(4, NotStored(REFUSED, kind="refused", blamed=[1]), records=3)
    mending = mend([blamed], now=0)
    assert [[r.value for r in each.records] for each in mending.again] == [[b"0", b"2"]]
    assert [[r.value for r in each.records] for each, _ in mending.over] == [[b"1"]]
    assert mending.sequence == 4


async def test_a_batch_that_is_too_large_goes_again_in_halves_and_a_single_record_never() -> None:
    large = await batch(4, NotStored(REFUSED, kind="refused", splits=True), records=3)
    mending = mend([large], now=0)
    assert [[r.value for r in each.records] for each in mending.again] == [[b"0"], [b"1", b"2"]]
    assert mending.over == []
    single = await batch(4, NotStored(REFUSED, kind="refused", splits=True), records=1)
    assert mend([single], now=0).over == [(single, REFUSED)]


async def test_given_up_once_nothing_of_unknown_fate_is_ever_sent_again() -> None:
    late, behind = await batch(4, NotStored(AWAY), expires_at=9.0), await batch(6, NotStored(AWAY))
    mending = mend([late, behind], now=9.0)
    assert (mending.again, mending.over, mending.anew) == ([], [(late, AWAY), (behind, AWAY)], True)


async def test_an_agent_that_lost_count_is_met_under_a_new_name_only_when_nothing_else_explains_it() -> None:
    overtaken = await batch(4, NotStored(REFUSED, kind="lost"))
    assert mend([overtaken], now=0).again == [overtaken]
    alone = await batch(4, NotStored(REFUSED, kind="lost"), alone=True)
    mending = mend([alone], now=0)
    assert (mending.over, mending.anew) == ([(alone, REFUSED)], True)


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

    def release(self, size_bytes: int) -> None:
        self.released += size_bytes


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
    deliveries = []
    for value in values:
        deliveries.append(Delivery())
        lane.append(NewRecord(value), deliveries[-1], 10)
    await asyncio.wait(deliveries, timeout=10)
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
