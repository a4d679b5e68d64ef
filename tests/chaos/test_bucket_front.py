"""Bad answers of a store: each is given, counted, and over when it is ended; and a clock that is wrong."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fake_s3 import FakeS3
from tests.support.proxies.http import Reply, Request

from .bucket_front import BadAnswers, BucketFront, Writes
from .clocks import SkewedClock, build_library
from .faults import ANSWERS, STORE_403, STORE_500, STORE_CUT_SHORT, STORE_GONE, STORE_LIES, STORE_OLD_LISTS
from .faults import STORE_SLOW_DOWN as SLOW_DOWN

SEGMENT = "/bucket/run/segments/a/1"


class Asked:
    """A front before a store in memory that has one old segment."""

    def __init__(self, store: FakeS3, front: BucketFront) -> None:
        self.store, self.front = store, front

    async def ask(self, method: str, target: str = SEGMENT, body: bytes = b"") -> Reply:
        headers = {"host": "bucket", "content-length": str(len(body))}
        return await self.front.answer(Request(method=method, target=target, headers=headers, body=body))

    async def until_given(self, bad: BadAnswers, method: str, target: str = SEGMENT, body: bytes = b"") -> Reply:
        """The first bad answer; each request has its luck."""
        self.front.begin(bad)
        for number in range(50):
            reply = await self.ask(method, f"{target}{number}" if method == "PUT" else target, body)
            if bad.given:
                self.front.end(bad)
                return reply
        raise AssertionError(f"never given: {bad}")


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    async with FakeS3() as store:
        store.objects["run/segments/a/1"] = b"0123456789"
        port = int(store.environment["AWS_ENDPOINT_URL"].rpartition(":")[2])
        yield Asked(store, BucketFront(port, Writes(), seed=1))


@pytest.mark.parametrize(("kind", "status"), [(STORE_500, 500), (SLOW_DOWN, 503), (STORE_403, 403)])
async def test_an_error_is_answered_and_nothing_is_done(asked: Asked, kind: str, status: int) -> None:
    reply = await asked.until_given(BadAnswers(kind=kind), "PUT", "/bucket/run/wal/", b"new")
    assert reply.status == status
    assert b"<Code>" in reply.body


async def test_a_put_that_is_done_answers_an_error(asked: Asked) -> None:
    before = len(asked.store.objects)
    reply = await asked.until_given(BadAnswers(kind=STORE_LIES), "PUT", "/bucket/run/wal/", b"new")
    assert reply.status == 500
    assert len(asked.store.objects) > before
    assert (await asked.ask("PUT", "/bucket/run/wal/after", b"new")).status == 200


async def test_a_late_list_leaves_out_what_is_young(asked: Asked) -> None:
    await asked.ask("PUT", "/bucket/run/segments/b/2", b"young")
    target = "/bucket?list-type=2&prefix=run/"
    assert b"segments/b/2" in (await asked.ask("GET", target)).body
    late = await asked.until_given(BadAnswers(kind=STORE_OLD_LISTS), "GET", target)
    assert b"segments/b/2" not in late.body
    assert b"segments/a/1" in late.body


async def test_a_body_is_cut_short(asked: Asked) -> None:
    reply = await asked.until_given(BadAnswers(kind=STORE_CUT_SHORT), "GET")
    assert reply.body == b"01234"
    assert reply.ends is (reply.length == 10)


async def test_an_object_is_gone_and_comes_back(asked: Asked) -> None:
    bad = BadAnswers(kind=STORE_GONE)
    reply = await asked.until_given(bad, "GET")
    assert (reply.status, bad.gone) == (404, {"run/segments/a/1"})
    assert (await asked.ask("GET")).body == b"0123456789"


def test_every_kind_of_answer_has_a_test() -> None:
    assert set(ANSWERS) == {
        STORE_500,
        SLOW_DOWN,
        STORE_403,
        STORE_LIES,
        STORE_OLD_LISTS,
        STORE_CUT_SHORT,
        STORE_GONE,
    }


@pytest.mark.skipif(sys.platform != "linux", reason="clocks are set wrong with LD_PRELOAD")
async def test_a_clock_is_wrong_by_what_is_set_and_counts_its_readers(tmp_path: Path) -> None:
    library = build_library(tmp_path)
    if library is None:
        pytest.skip("no C compiler")
    clock = SkewedClock(tmp_path / "clock", library)
    clock.set(-3600.0)
    script = "import time; print(time.time(), time.monotonic())"
    result = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script],
        env={**os.environ, **clock.environment},
        capture_output=True,
        check=True,
    )
    wall, monotonic = map(float, result.stdout.split())
    assert abs(wall + 3600.0 - time.time()) < 60
    assert abs(monotonic - time.monotonic()) < 60
    assert clock.told > 0
