"""What becomes of batches that were not stored: none is lost without a word, none is stored twice."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamhouse.client.delivery import Batch, Delivery
from streamhouse.client.partition_sender import (
    SEQUENCES,
    NotStored,
    PartitionSender,
    ProducerIdentity,
    RetryPlan,
    Stored,
    plan_retries,
)
from streamhouse.client.producer import check_response
from streamhouse.clock import SystemClock
from streamhouse.errors import Internal, Rejected, Unavailable
from streamhouse.model.record import NewRecord
from tests.contracts.clocks import ManualClock
from tests.support.depth import examples

AWAY = Unavailable("away")
REFUSED = Rejected("refused")


def batch(sequence: int, *, records: int = 2, expires_at: float = 100.0, alone: bool = False) -> Batch:
    made = Batch(partition=0, opened_at=0.0, expires_at=expires_at, sequence=sequence, sent_alone=alone)
    for number in range(records):
        made.add(NewRecord(b"%d" % number), 10)
    return made


def mended(*failed: tuple[Batch, NotStored], now: float = 0.0) -> RetryPlan:
    return plan_retries([batch for batch, _ in failed], dict(failed), now=now)


def test_batches_that_may_have_been_stored_go_again_with_their_own_numbers() -> None:
    first, second = batch(4), batch(8)
    plan = mended((first, NotStored(AWAY)), (second, NotStored(AWAY)))
    assert (plan.retried, plan.failed, plan.sequence, plan.needs_new_producer_id) == ([first, second], [], None, False)
    assert [first.sequence, second.sequence] == [4, 8]


def test_those_behind_a_refused_batch_take_its_numbers() -> None:
    before, refused, behind = batch(2), batch(4), batch(6)
    plan = mended(
        (before, NotStored(AWAY)),
        (refused, NotStored(REFUSED, kind="refused")),
        (behind, NotStored(REFUSED, kind="lost")),
    )
    assert (plan.retried, plan.failed) == ([before, behind], [(refused, REFUSED)])
    assert (plan.sequence, plan.needs_new_producer_id) == (4, False)
    assert [before.sequence, behind.sequence] == [2, -1]


def test_only_the_records_to_blame_are_refused() -> None:
    plan = mended((batch(4, records=3), NotStored(REFUSED, kind="refused", rejected_positions=[1])))
    assert [[r.value for r in each.records] for each in plan.retried] == [[b"0", b"2"]]
    assert [[r.value for r in each.records] for each, _ in plan.failed] == [[b"1"]]
    assert plan.sequence == 4


def test_a_batch_that_is_too_large_goes_again_in_halves_and_a_single_record_never() -> None:
    plan = mended((batch(4, records=3), NotStored(REFUSED, kind="refused", splits=True)))
    assert [[r.value for r in each.records] for each in plan.retried] == [[b"0"], [b"1", b"2"]]
    assert plan.failed == []
    single = batch(4, records=1)
    assert mended((single, NotStored(REFUSED, kind="refused", splits=True))).failed == [(single, REFUSED)]


def test_given_up_once_nothing_of_unknown_fate_is_ever_sent_again() -> None:
    late, behind = batch(4, expires_at=9.0), batch(6)
    plan = mended((late, NotStored(AWAY)), (behind, NotStored(AWAY)), now=9.0)
    assert (plan.retried, plan.failed, plan.needs_new_producer_id) == ([], [(late, AWAY), (behind, AWAY)], True)


def test_an_agent_that_lost_count_is_met_under_a_new_name_only_when_nothing_else_explains_it() -> None:
    overtaken, alone = batch(4), batch(4, alone=True)
    assert mended((overtaken, NotStored(REFUSED, kind="lost"))).retried == [overtaken]
    plan = mended((alone, NotStored(REFUSED, kind="lost")))
    assert (plan.failed, plan.needs_new_producer_id) == ([(alone, REFUSED)], True)


def tried(sequence: int) -> Batch:
    """A batch of which an earlier attempt may have been stored."""
    made = batch(sequence)
    made.may_be_stored = True
    return made


def refused(**fields: object) -> NotStored:
    return NotStored(REFUSED, kind="refused", **fields)  # type: ignore[arg-type]


LOST = NotStored(Rejected("out of sequence"), kind="lost")


def test_a_refused_batch_that_is_older_than_a_stored_one_leaves_no_numbers_behind() -> None:
    """The agent had forgotten the producer id, and accepted a later batch."""
    older = batch(4)
    older.send_count = 1
    plan = plan_retries([older], {older: refused()}, now=0.0, newest_stored=2)
    assert (plan.failed, plan.sequence, plan.needs_new_producer_id) == ([(older, REFUSED)], None, True)
    plan = plan_retries([older], {older: refused()}, now=0.0, newest_stored=1)
    assert (plan.failed, plan.sequence, plan.needs_new_producer_id) == ([(older, REFUSED)], 4, False)


def test_while_the_outcome_of_an_earlier_batch_is_unknown_none_gets_a_new_producer_id() -> None:
    before, ended = batch(2), tried(4)
    plan = mended((before, NotStored(AWAY)), (ended, refused()))
    assert (plan.retried, plan.failed, plan.needs_new_producer_id) == ([before, ended], [], False)
    assert [before.sequence, ended.sequence] == [2, 4]


def test_batches_before_one_that_may_have_been_stored_get_numbers_of_the_new_producer_id_too() -> None:
    before, ended = tried(2), tried(4)
    plan = mended((before, LOST), (ended, refused()))
    assert (plan.retried, plan.failed, plan.needs_new_producer_id) == ([before], [(ended, REFUSED)], True)
    assert (before.sequence, before.may_be_stored) == (-1, False)


def test_a_batch_behind_a_gap_that_may_still_fill_is_not_sent_under_a_new_producer_id() -> None:
    """A copy of it may be stored as soon as a copy of the first one is."""
    first, second, behind = tried(2), batch(4), tried(6)
    plan = mended((first, refused()), (second, refused()), (behind, LOST))
    assert plan.retried == []
    assert plan.failed == [(first, REFUSED), (second, REFUSED), (behind, LOST.error)]


def test_a_batch_behind_a_gap_that_was_certainly_not_stored_goes_again() -> None:
    first, behind = tried(2), batch(4)
    plan = mended((first, refused()), (behind, LOST))
    assert (plan.retried, plan.failed, plan.needs_new_producer_id) == ([behind], [(first, REFUSED)], True)


def test_a_batch_that_was_sent_alone_goes_again_under_its_number_and_leaves_it_when_refused() -> None:
    alone = batch(4, alone=True)
    plan = mended((alone, NotStored(AWAY, may_be_stored=False)))
    assert (plan.retried, plan.failed, plan.needs_new_producer_id, alone.sequence) == ([alone], [], False, 4)
    plan = mended((alone, refused()))
    assert (plan.failed, plan.sequence, plan.needs_new_producer_id) == ([(alone, REFUSED)], 4, False)


def test_without_numbers_a_refused_batch_fails_whatever_became_of_the_others() -> None:
    ended, behind = batch(-1), batch(-1)
    plan = plan_retries([ended, behind], {ended: refused(), behind: NotStored(AWAY)}, now=0.0, numbered=False)
    assert (plan.retried, plan.failed, plan.needs_new_producer_id) == ([behind], [(ended, REFUSED)], False)


def test_of_a_batch_that_may_have_been_stored_no_part_is_sent_again() -> None:
    ended = tried(2)
    plan = mended((ended, refused(rejected_positions=[0])))
    assert (plan.retried, plan.failed) == ([], [(ended, REFUSED)])


def test_a_batch_whose_records_are_all_to_blame_is_not_taken_apart() -> None:
    ended = batch(2)
    plan = mended((ended, refused(rejected_positions=[0, 1])))
    assert (plan.retried, plan.failed) == ([], [(ended, REFUSED)])


def test_given_up_batches_fail_with_the_error_that_leaves_their_outcome_open() -> None:
    first, second, third = batch(2), batch(4), batch(6)
    plan = mended((first, refused()), (second, LOST), (third, NotStored(AWAY, kind="unknown")))
    assert plan.failed == [(first, REFUSED), (second, AWAY), (third, AWAY)]


def test_an_outcome_that_stays_unknown_is_waited_for_until_the_delivery_timeout() -> None:
    before, ended = batch(2), batch(4)
    failed = (before, NotStored(AWAY)), (ended, refused(may_be_stored=True))
    plan = mended(*failed, now=99.0)
    assert (plan.retried, plan.failed) == ([before, ended], [])
    plan = mended(*failed, now=100.0)
    assert (plan.retried, plan.needs_new_producer_id) == ([], True)


async def test_a_new_producer_id_begins_at_sequence_number_0() -> None:
    wire = FakeWire("", "broke after")
    deliveries = await run(wire, VALUES)
    assert {delivery.failure() is None for delivery in deliveries} == {True, False}
    assert wire.identities == 2
    assert wire.known[2][0][0] == 0


async def test_a_sender_without_sequence_numbers_never_requests_a_producer_id() -> None:
    wire = FakeWire("broke")
    sender = PartitionSender(
        0, wire, clock=Clock(), batch_bytes=10, linger_s=0, timeout_s=30, max_in_flight=1, numbered=False
    )
    deliveries = await run(wire, VALUES[:3], sender=sender)
    assert [delivery.failure() is None for delivery in deliveries] == [False, True, True]
    assert wire.identities == 0


async def test_a_delivery_follows_its_record_into_another_batch() -> None:
    whole = batch(0, records=4)
    waiting = [asyncio.ensure_future(delivery.settled()) for delivery in whole.deliveries]
    last = whole.deliveries[3]
    await asyncio.sleep(0)
    first, second = whole.split_off([0, 1]), whole.split_off([2, 3])
    second.succeed(70, None)
    first.fail(REFUSED)
    await asyncio.wait_for(asyncio.gather(*waiting), 10)
    assert (await last).offset == 71
    assert first.is_unseen


class FakeWire:
    """An agent that keeps one partition as Kafka's brokers do; `mishaps` happen to what comes, one after the other.
    Answers come in the order of the requests; `pauses` are turns of the event loop by which an answer comes later than
    the one before.

    away            it never came
    answer lost     it was stored, and nobody said so
    late            it never came, as far as anybody knows; a copy of it comes when another two have come
    refused         the agent refuses it for good, whatever it is
    forgotten       the agent has just forgotten the producer, and takes the batch for its first
    broke           the client broke down before it was sent
    broke after     the client broke down when it was stored
    """

    def __init__(self, *mishaps: str, pauses: Sequence[int] = ()) -> None:
        self.log: list[bytes] = []
        self.mishaps = list(mishaps)
        self.pauses = list(pauses)
        self.in_flight = self.most_in_flight = 0
        self._last_answered = asyncio.Event()
        self._last_answered.set()
        self.known: dict[int, list[tuple[int, int, int]]] = {}
        self.late: list[tuple[int, bytes]] = []
        self.posts = 0
        self.identities = 0
        self.released = 0
        self.looked = 0

    async def init_producer_id(self) -> ProducerIdentity:
        self.identities += 1
        return ProducerIdentity(self.identities, 0)

    async def encode(self, records: list[NewRecord], identity: ProducerIdentity, sequence: int) -> bytes:
        values = b",".join(record.value or b"" for record in records)
        return b"%d/%d/" % (identity.producer_id, sequence) + values

    async def post(self, partition: int, body: bytes) -> Stored:
        before, self._last_answered = self._last_answered, asyncio.Event()
        answered, pause = self._last_answered, self.pauses.pop(0) if self.pauses else 0
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        arrival = asyncio.ensure_future(self._arrive(body))
        try:
            await asyncio.wait({arrival})
            await before.wait()
            for _ in range(pause):
                await asyncio.sleep(0)
            return arrival.result()
        finally:
            self.in_flight -= 1
            arrival.cancel()
            answered.set()

    async def _arrive(self, body: bytes) -> Stored:
        mishap = self.mishaps.pop(0) if self.mishaps else ""
        await asyncio.sleep(0)
        self.posts += 1
        await self._take_late()
        match mishap:
            case "away":
                raise NotStored(AWAY)
            case "late":
                self.late.append((self.posts + 2, body))
                raise NotStored(AWAY)
            case "refused":
                raise NotStored(REFUSED, kind="refused")
            case "forgotten":
                self.known.clear()
            case "broke":
                raise ZeroDivisionError("by nought")
        stored = self._append(body)
        if mishap == "answer lost":
            raise NotStored(AWAY)
        if mishap == "broke after":
            raise ZeroDivisionError("by nought")
        return stored

    async def _take_late(self) -> None:
        due = [body for at, body in self.late if at <= self.posts]
        self.late = [(at, body) for at, body in self.late if at > self.posts]
        for body in due:
            with suppress(NotStored):
                self._append(body)

    def _append(self, body: bytes) -> Stored:
        producer, sequence, text = int(body.split(b"/")[0]), int(body.split(b"/")[1]), body.split(b"/")[2]
        values = text.split(b",")
        if any(value.startswith(b"bad") for value in values):
            raise NotStored(REFUSED, kind="refused")
        known = self.known.setdefault(producer, [])
        for first, count, offset in known[-5:]:
            if (first, count) == (sequence, len(values)):
                return Stored(offset)
        if known and sequence != (known[-1][0] + known[-1][1]) % SEQUENCES:
            if sequence < known[0][0]:
                return Stored(None)  # older than all that it remembers: a duplicate
            raise NotStored(REFUSED, kind="lost")
        known.append((sequence, len(values), len(self.log)))
        self.log += values
        return Stored(len(self.log) - len(values))

    async def refresh_leaders(self) -> None:
        self.looked += 1

    def release(self, batch: Batch) -> None:
        self.released += batch.size_bytes


MAX_IN_FLIGHT = 5


class Clock(ManualClock):
    """Pauses take no time, but let others work."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.advance(ms=round(seconds * 1000))


def a_lane(wire: FakeWire, *, batch_bytes: int = 10, timeout_s: float = 30.0) -> PartitionSender:
    return PartitionSender(
        0,
        wire,
        clock=Clock(),
        batch_bytes=batch_bytes,
        linger_s=0,
        timeout_s=timeout_s,
        max_in_flight=MAX_IN_FLIGHT,
        numbered=True,
    )


async def run(
    wire: FakeWire,
    values: list[bytes],
    *,
    batch_bytes: int = 10,
    timeout_s: float = 30.0,
    sender: PartitionSender | None = None,
) -> list[Delivery]:
    sender = sender or a_lane(wire, batch_bytes=batch_bytes, timeout_s=timeout_s)
    task = asyncio.get_running_loop().create_task(sender.run())
    deliveries = [sender.append(NewRecord(value), 10)[0] for value in values]
    async with asyncio.timeout(10):
        for delivery in deliveries:
            await delivery.settled()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert wire.most_in_flight <= MAX_IN_FLIGHT
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


@given(
    st.lists(st.sampled_from(["", "", "away", "answer lost"]), max_size=12),
    st.lists(st.integers(0, 6), max_size=40),
)
@settings(max_examples=examples(100), deadline=None)
def test_every_record_is_stored_once_and_in_order_however_answers_are_spread(
    mishaps: list[str], pauses: list[int]
) -> None:
    async def send() -> tuple[FakeWire, list[Delivery]]:
        wire = FakeWire(*mishaps, pauses=pauses)
        return wire, await run(wire, VALUES)

    wire, deliveries = asyncio.run(send())
    assert wire.log == VALUES
    assert [delivery.failure() for delivery in deliveries] == [None] * 20
    assert wire.identities == 1


async def test_a_batch_that_may_be_stored_is_remembered_until_its_retries_are_answered() -> None:
    """Five newer batches behind it, and the agent would no longer know it."""
    wire = FakeWire("", "", "", "", "answer lost", "", "away")
    deliveries = await run(wire, VALUES)
    assert wire.log == VALUES
    assert [delivery.failure() for delivery in deliveries] == [None] * 20
    assert wire.identities == 1


async def test_several_batches_are_in_flight_once_the_agent_knows_the_producer() -> None:
    wire = FakeWire(pauses=[3] * 20)
    await run(wire, VALUES)
    assert wire.most_in_flight == MAX_IN_FLIGHT


async def test_no_delivery_waits_for_a_sender_that_has_failed() -> None:
    class Broken(FakeWire):
        async def encode(self, records: list[NewRecord], identity: ProducerIdentity, sequence: int) -> bytes:
            raise ZeroDivisionError("by nought")

    sender = a_lane(wire := Broken())
    deliveries = await run(wire, VALUES, sender=sender)
    assert {type(delivery.failure()) for delivery in deliveries} == {Internal}
    assert sender.batches() == []


async def test_a_sender_that_ends_leaves_no_request_behind() -> None:
    wire = FakeWire(pauses=[1_000_000])
    sender = a_lane(wire)
    task = asyncio.get_running_loop().create_task(sender.run())
    sender.append(NewRecord(b"0"), 10)
    for _ in range(20):
        await asyncio.sleep(0)
    assert wire.in_flight == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert wire.in_flight == 0


async def test_a_refused_record_costs_its_neighbours_nothing() -> None:
    values = [b"bad" if number in (3, 11, 12) else value for number, value in enumerate(VALUES)]
    wire = FakeWire()
    deliveries = await run(wire, values)
    assert wire.log == [value for value in values if value != b"bad"]
    assert [at for at, delivery in enumerate(deliveries) if delivery.failure()] == [3, 11, 12]
    assert wire.identities == 1


def check_fates(wire: FakeWire, values: list[bytes], deliveries: list[Delivery]) -> None:
    """Records with a receipt are in the log, where it says, in their order; none is there twice."""
    stored = [value for value, delivery in zip(values, deliveries, strict=True) if delivery.failure() is None]
    for value, delivery in zip(values, deliveries, strict=True):
        assert delivery.done()
        if delivery.failure() is None:
            offset = delivery.result().offset
            assert value in wire.log, f"lost with a receipt: {value!r}"
            assert offset is None or wire.log[offset] == value
    assert len(set(wire.log)) == len(wire.log), "stored twice"
    assert [value for value in wire.log if value in stored] == stored
    assert wire.released == 10 * len(values)


@pytest.mark.parametrize(
    "mishaps",
    [
        ("", "broke after"),
        ("", "answer lost", "", "refused"),
        ("", "", "answer lost", "away", "refused", ""),
        ("", "refused", "late"),
        ("", "late", "refused"),
        ("", "late", "late", "late", "late", "late", "refused", "late"),
        ("refused", "answer lost"),
        ("away", "answer lost", "refused", "late"),
        ("", "late", "answer lost", "late", "away", "late", "late"),
    ],
)
async def test_numbers_of_a_batch_that_may_have_been_stored_are_never_given_to_another(
    mishaps: tuple[str, ...],
) -> None:
    wire = FakeWire(*mishaps)
    deliveries = await run(wire, VALUES)
    check_fates(wire, VALUES, deliveries)


@given(
    st.lists(
        st.sampled_from(["", "", "", "away", "answer lost", "late", "refused", "broke", "broke after"]), max_size=60
    ),
    st.lists(st.integers(0, 6), max_size=60),
    st.sampled_from([0.2, 3.0, 30.0]),
    st.sampled_from([10, 30]),
)
@settings(max_examples=examples(300), deadline=None)
def test_no_record_is_lost_with_a_receipt_or_stored_twice_whatever_happens(
    mishaps: list[str], pauses: list[int], timeout_s: float, batch_bytes: int
) -> None:
    async def send() -> tuple[FakeWire, list[Delivery]]:
        wire = FakeWire(*mishaps, pauses=pauses)
        return wire, await run(wire, VALUES, timeout_s=timeout_s, batch_bytes=batch_bytes)

    wire, deliveries = asyncio.run(send())
    check_fates(wire, VALUES, deliveries)


async def test_numbers_below_those_of_a_stored_batch_are_never_given_to_another() -> None:
    """An agent that forgot the producer stores a later batch first, and takes lower numbers for duplicates."""
    wire = FakeWire("", "refused", "forgotten")
    deliveries = await run(wire, VALUES)
    assert sorted(wire.log) == sorted(set(VALUES) - {VALUES[1]})
    assert [at for at, delivery in enumerate(deliveries) if delivery.failure()] == [1]


async def test_batches_that_wait_with_old_numbers_are_not_sent_under_a_new_producer_id() -> None:
    wire = FakeWire("", "answer lost", "answer lost", "answer lost", *["away"] * 100)
    deliveries = await run(wire, VALUES, timeout_s=2.0)
    check_fates(wire, VALUES, deliveries)


async def test_the_first_batch_of_a_producer_goes_alone_until_the_agent_knows_it() -> None:
    wire = FakeWire("refused", "answer lost")
    deliveries = await run(wire, VALUES)
    assert wire.log == VALUES[1:]
    assert [at for at, delivery in enumerate(deliveries) if delivery.failure()] == [0]


async def test_sequence_numbers_begin_again_behind_the_last() -> None:
    wire = FakeWire()
    sender = a_lane(wire, batch_bytes=30)
    sender._identity, sender._next_sequence = await wire.init_producer_id(), SEQUENCES - 2
    deliveries = await run(wire, VALUES[:6], sender=sender)
    assert [delivery.failure() for delivery in deliveries] == [None] * 6
    assert [first for first, _, _ in wire.known[1]] == [SEQUENCES - 2, 1]


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


async def test_the_leader_is_looked_up_before_a_retry() -> None:
    class Moved(FakeWire):
        async def post(self, partition: int, body: bytes) -> Stored:
            if not self.looked:
                raise NotStored(AWAY)
            return await super().post(partition, body)

    wire = Moved()
    await run(wire, VALUES)
    assert wire.log == VALUES


async def test_an_agent_that_stays_away_is_given_up_on() -> None:
    wire = FakeWire(*["away"] * 1_000)
    deliveries = await run(wire, VALUES, timeout_s=5.0)
    assert [delivery.failure() for delivery in deliveries] == [AWAY] * 20
    assert wire.log == []


async def test_a_batch_that_is_not_full_waits_for_more_until_it_is_asked_to_hurry() -> None:
    wire = FakeWire()
    sender = PartitionSender(
        0,
        wire,
        clock=SystemClock(),
        batch_bytes=1_000,
        linger_s=3_600,
        timeout_s=7_200,
        max_in_flight=5,
        numbered=True,
    )
    task = asyncio.get_running_loop().create_task(sender.run())
    first, _ = sender.append(NewRecord(b"0"), 10)
    for _ in range(20):
        await asyncio.sleep(0)
    second, _ = sender.append(NewRecord(b"1"), 10)
    assert wire.log == []
    sender.flush_now()
    assert ((await first).offset, (await second).offset) == (0, 1)
    assert sender.batches() == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# --- what an agent's answer says about a batch


def produce_answer(code: int, text: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(topics=[("t", [(0, code, 7, -1, 0, [], text)])])


@pytest.mark.parametrize(
    ("code", "kind", "may_be_stored"),
    [
        (-1, "again", True),  # UNKNOWN_SERVER_ERROR: whatever broke, it may have broken behind the append
        (6, "again", True),
        (7, "again", True),
        (19, "again", False),  # NOT_ENOUGH_REPLICAS: refused before it was stored
        (20, "again", True),
        (56, "again", True),
        (10, "refused", False),
        (87, "refused", False),
        (45, "lost", False),
        (59, "lost", False),
    ],
)
def test_a_response_says_what_to_do_and_whether_the_batch_may_be_stored(
    code: int, kind: str, may_be_stored: bool
) -> None:
    with pytest.raises(NotStored) as raised:
        check_response(produce_answer(code), "t")
    assert (raised.value.kind, raised.value.may_be_stored) == (kind, may_be_stored)


def test_a_duplicate_is_stored() -> None:
    assert check_response(produce_answer(46), "t") == Stored(None)
    assert check_response(produce_answer(0), "t") == Stored(7)


async def test_a_batch_is_full_when_it_has_its_bytes_or_when_a_record_does_not_fit() -> None:
    sender = a_lane(FakeWire(), batch_bytes=30)
    fulls = list[tuple[bool, bool]]()
    for size in (10, 20, 10, 25, 30):
        _, is_full = sender.append(NewRecord(b"v"), size)
        fulls.append((is_full, sender.has_open_batch))
    assert fulls == [(False, True), (True, False), (False, True), (True, True), (True, False)]
    assert [batch.size_bytes for batch in sender.batches()] == [30, 10, 25, 30]
