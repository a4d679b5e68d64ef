"""Exchange: what answers are made of, and the limits of small requests.

Data path   route -> **exchange** -> JSON
Owns        writing JSON, limits of listings and of small bodies
Leaves      shapes to the routes, requests to `endpoint`, errors to `errors`
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.responses import Response

from streamhouse.wire.http.operations import JSON

DEFAULT_LIMIT: Final = 1000
MAX_LIMIT: Final = 10_000
MAX_BODY_BYTES: Final = 64 * 1024
"""Of requests that are about something else than records."""

_ENCODER: Final = msgspec.json.Encoder()


def json_answer(body: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_ENCODER.encode(body), status_code=status, media_type=JSON, headers=headers)
