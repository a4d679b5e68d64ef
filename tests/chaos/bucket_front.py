"""BucketFront: stands between an agent and the S3 server, and answers as stores do on bad days.

Data path   agent -> tunnel -> **bucket front** -> S3 server
Owns        what each kind of bad answer is, and how often it was given
Leaves      when, and to whom, to `nemesis`
"""

import random
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import unescape

from streamhouse.format.object_keys import SEGMENTS_PREFIX
from tests.support.proxies.http import HttpFront, Reply, Request

from .faults import STORE_403, STORE_500, STORE_CUT_SHORT, STORE_GONE, STORE_LIES, STORE_OLD_LISTS, STORE_SLOW_DOWN

SHARE: Final = 0.6
"""Of the requests that a kind of answer is for, the share that gets it; of reads of objects that are gone, all."""
OLD_S: Final = 3.0
"""A list that is late leaves out what is younger."""
MOST_GONE: Final = 2
"""Objects that one fault makes disappear."""
CODES: Final = {
    STORE_500: (500, "InternalError"),
    STORE_SLOW_DOWN: (503, "SlowDown"),
    STORE_403: (403, "AccessDenied"),
}
_ENTRY: Final = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
_KEY: Final = re.compile(rb"<Key>(.*?)</Key>", re.DOTALL)


@dataclass(slots=True, kw_only=True)
class BadAnswers:
    """What a store does for a while, to one agent or to several."""

    kind: str
    given: int = 0
    gone: set[str] = field(default_factory=set)


class Writes:
    """When each object was written, through whichever front: what a late list doesn't know yet."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def add(self, key: str) -> None:
        self._at[key] = time.monotonic()

    def is_young(self, key: str) -> bool:
        return time.monotonic() - self._at.get(key, -OLD_S) < OLD_S


class BucketFront(HttpFront):
    def __init__(self, port: int, writes: Writes, seed: int) -> None:
        super().__init__(port)
        self._writes = writes
        self._chance = random.Random(seed)
        self._bad: list[BadAnswers] = []

    def begin(self, bad: BadAnswers) -> None:
        self._bad.append(bad)

    def end(self, bad: BadAnswers) -> None:
        self._bad.remove(bad)

    def heal(self) -> None:
        self._bad.clear()

    async def answer(self, request: Request) -> Reply:
        for bad in list(self._bad):
            if (reply := await self._answer_badly(bad, request)) is not None:
                bad.given += 1
                return reply
        return await self._served(request)

    async def _served(self, request: Request) -> Reply:
        reply = await self.pass_on(request)
        if request.method in ("PUT", "POST") and reply.status < 300:
            self._writes.add(_key(request))
        return reply

    async def _answer_badly(self, bad: BadAnswers, request: Request) -> Reply | None:
        """The answer that this kind of trouble has for the request; None: it is none of its, or luck."""
        if bad.kind == STORE_GONE:
            return _gone(bad, request)
        if self._chance.random() > SHARE:
            return None
        if bad.kind in CODES:
            return _error(request, *CODES[bad.kind])
        if bad.kind == STORE_LIES and request.method == "PUT":
            done = await self._served(request)
            return _error(request, 500, "InternalError") if done.status < 300 else done
        if bad.kind == STORE_OLD_LISTS and _is_list(request):
            return self._older(await self._served(request))
        if bad.kind == STORE_CUT_SHORT and request.method == "GET" and not _is_list(request):
            return self._cut_short(await self._served(request))
        return None

    def _older(self, reply: Reply) -> Reply | None:
        """The list without what was written a moment ago; None when there is nothing to leave out."""
        body = _ENTRY.sub(self._kept, reply.body)
        return Reply(status=reply.status, headers=reply.headers, body=body) if body != reply.body else None

    def _kept(self, entry: "re.Match[bytes]") -> bytes:
        result = _KEY.search(entry[0])
        return b"" if result and self._writes.is_young(unescape(result[1].decode())) else entry[0]

    def _cut_short(self, reply: Reply) -> Reply | None:
        """Half of the body, and the connection ends; or half with a length that hides it."""
        if reply.status >= 300 or len(reply.body) < 2:
            return None
        half = reply.body[: len(reply.body) // 2]
        result = len(half) if self._chance.random() < 0.5 else len(reply.body)
        return Reply(status=reply.status, headers=reply.headers, body=half, length=result, ends=result > len(half))


def _gone(bad: BadAnswers, request: Request) -> Reply | None:
    key = _key(request)
    if request.method not in ("GET", "HEAD") or f"/{SEGMENTS_PREFIX}" not in f"/{key}" or _is_list(request):
        return None
    if key not in bad.gone and len(bad.gone) < MOST_GONE:
        bad.gone.add(key)
    return _error(request, 404, "NoSuchKey") if key in bad.gone else None


def _error(request: Request, status: int, code: str) -> Reply:
    body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>chaos</Message></Error>'
    return Reply(status=status, headers={"content-type": "application/xml"}, body=body.encode())


def _is_list(request: Request) -> bool:
    return request.method == "GET" and "list-type" in request.query


def _key(request: Request) -> str:
    """Without the bucket's name."""
    return request.path.lstrip("/").partition("/")[2]


def heal_all(fronts: Iterable[BucketFront]) -> None:
    for each in fronts:
        each.heal()
