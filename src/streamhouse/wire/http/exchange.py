"""Exchange: what requests carry, and what answers are made of.

Data path   route -> **exchange** -> JSON
Owns        reading queries and bodies with their limits, writing JSON
Leaves      shapes to the routes, errors to `errors`
"""

from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from streamhouse.errors import Rejected

DEFAULT_LIMIT: Final = 1000
MAX_LIMIT: Final = 10_000
MAX_BODY_BYTES: Final = 64 * 1024
JSON: Final = "application/json"

T = TypeVar("T")


def json_answer(body: object, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status_code=status, media_type=JSON)


async def read_body(request: Request, kind: type[T]) -> T:
    """The request's JSON body; raises `Rejected` for anything else.

    The media type must say JSON: pages of other sites can't send that without the browser asking us first.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        raise Rejected(f"the body must be JSON; content-type={media_type[:100]!r} wanted={JSON}")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise Rejected(f"the body is too large; limit={MAX_BODY_BYTES}")
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise Rejected(f"the body is not as it should be; why={error}") from None


def read_limit(request: Request) -> int:
    return read_number(request, "limit", low=1, high=MAX_LIMIT, default=DEFAULT_LIMIT)


def read_flag(request: Request, name: str) -> bool:
    """A switch in the query: `1` is on, `0` or nothing is off."""
    return bool(read_number(request, name, low=0, high=1, default=0))


def read_number(request: Request, name: str, *, low: int, high: int, default: int) -> int:
    text = request.query_params.get(name)
    return default if text is None else parse_number(text, name, low=low, high=high)


def parse_number(text: str, name: str, *, low: int, high: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 11) or not low <= int(text) <= high:
        raise Rejected(f"{name} is out of range; {name}={text[:100]} allowed={low} to {high}")
    return int(text)
