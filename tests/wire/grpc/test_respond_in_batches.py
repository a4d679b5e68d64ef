"""Rounds, and what shares an append: decided without sockets."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from streamhouse.errors import Overloaded, StreamhouseError
from streamhouse.model.record import Acks, Receipt
from streamhouse.wire.grpc.calls import Call
from streamhouse.wire.grpc.produce import RecordsTarget, Results
from streamhouse.wire.grpc.produce_stream import StreamMessage, append_batch, group_by_target, respond_in_batches
from tests.wire.security import unrestricted

Numbers = AsyncIterator[int]


class Asking:
    """A client that asks a hundred questions and counts those that were read and not answered."""

    def __init__(self) -> None:
        self.responses: list[int] = []
        self.read = 0
        self.most_in_flight = 0

    async def questions(self) -> Numbers:
        for number in range(100):
            self.read += 1
            self.most_in_flight = max(self.most_in_flight, self.read - len(self.responses))
            yield number

    async def take(self, response: int) -> None:
        self.responses.append(response)


@pytest.mark.parametrize("limit", [1, 2, 7])
async def test_every_request_is_answered_in_order_and_no_more_than_the_limit_are_in_flight(limit: int) -> None:
    client, rounds = Asking(), []

    async def work(batch: Sequence[int]) -> Sequence[int]:
        rounds.append(len(batch))
        await asyncio.sleep(0)
        return batch

    await respond_in_batches(client.questions(), work, client.take, limit=limit)
    assert client.responses == list(range(100))
    assert client.most_in_flight <= limit
    assert max(rounds) <= limit


async def test_what_comes_while_a_round_is_worked_on_shares_the_next_one() -> None:
    client, rounds = Asking(), []

    async def work(batch: Sequence[int]) -> Sequence[int]:
        rounds.append(len(batch))
        for _ in range(20):
            await asyncio.sleep(0)
        return batch

    await respond_in_batches(client.questions(), work, client.take, limit=50)
    assert len(rounds) < 10


async def test_work_that_fails_ends_the_stream_and_leaves_no_task() -> None:
    client = Asking()

    async def work(batch: Sequence[int]) -> Sequence[int]:
        raise ValueError

    with pytest.raises(ExceptionGroup):
        await respond_in_batches(client.questions(), work, client.take, limit=3)
    assert asyncio.all_tasks() == {asyncio.current_task()}


# --- sharing


def share(topic: str, *items: str, acks: Acks = Acks.WAL, key: str | None = None) -> StreamMessage[RecordsTarget, str]:
    return StreamMessage(
        target=RecordsTarget(topic, acks, key), items=list(items), call=Call(1.0, 10, unrestricted()), results=[]
    )


def test_neighbours_that_want_the_same_share_an_append() -> None:
    shares = [
        share("a", "1"),
        share("a", "2"),
        share("a", "3", acks=Acks.STORED),
        share("a", "4", key="k"),
        share("a", "5", key="k"),
        share("a", "6"),
        share("a", "7"),
    ]
    together = [[item for each in group for item in each.items] for group in group_by_target(shares)]
    assert together == [["1", "2"], ["3"], ["4"], ["5"], ["6", "7"]]


async def test_each_message_gets_its_part_of_the_results() -> None:
    appended: list[tuple[str, list[str]]] = []

    async def append(target: RecordsTarget, items: Sequence[str], call: Call) -> Results:
        appended.append((target.topic, list(items)))
        return [Receipt(0, number, 0) for number, _ in enumerate(items)]

    shares = [share("a", "1", "2"), share("b", "3"), share("a", "4")]
    await append_batch(shares, append)
    assert sorted(appended) == [("a", ["1", "2", "4"]), ("b", ["3"])]
    offsets = [[each.offset for each in share.results if isinstance(each, Receipt)] for share in shares]  # type: ignore[union-attr]
    assert offsets == [[0, 1], [0], [2]]


async def test_a_failed_append_is_the_result_of_the_messages_that_shared_it_and_of_no_others() -> None:
    error = Overloaded("appends", limit_bytes=1, retry_after_s=1)

    async def append(target: RecordsTarget, items: Sequence[str], call: Call) -> Results:
        if target.topic == "a":
            raise error
        return [Receipt(0, 0, 0)]

    shares = [share("a", "1"), share("a", "2"), share("b", "3")]
    await append_batch(shares, append)
    assert [isinstance(each.results, StreamhouseError) for each in shares] == [True, True, False]


async def test_messages_to_one_topic_follow_each_other_and_other_topics_do_not_wait() -> None:
    log: list[str] = []
    free = asyncio.Event()

    async def append(target: RecordsTarget, items: Sequence[str], call: Call) -> Results:
        log.append(f"begin {items[0]}")
        if target.topic == "a":
            await free.wait()
        log.append(f"end {items[0]}")
        if items[0] == "3":
            free.set()
        return [Receipt(0, 0, 0)]

    await append_batch([share("a", "1", key="x"), share("a", "2", key="y"), share("b", "3")], append)
    assert log == ["begin 1", "begin 3", "end 3", "end 1", "begin 2", "end 2"]
