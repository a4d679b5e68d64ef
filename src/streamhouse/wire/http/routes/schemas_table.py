"""The schema registry's table of paths, and finding a request in it.

Data path   schemas -> **table** -> handlers
Owns        matching a path piece by piece, so that a piece may hold a slash (`%2F`), and the context before it
Leaves      which paths there are to the modules that have the handlers

Subjects are often paths themselves (those of Protobuf imports), so the pieces are told apart before they are decoded.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from streamhouse.model.schema import context_name
from streamhouse.wire.http.routes.schemas_errors import RegistryFault
from streamhouse.wire.http.routes.schemas_exchange import RegistryCall

Handler = Callable[[RegistryCall], Awaitable[Any]]


class Entry(NamedTuple):
    method: str
    path: str
    handler: Handler


class Found(NamedTuple):
    handler: Handler
    path: Mapping[str, str]
    context: str | None


class Table:
    def __init__(self, entries: Iterable[Entry]) -> None:
        self._by_length: dict[int, list[tuple[Sequence[str], Entry]]] = {}
        for entry in entries:
            pattern = tuple(filter(None, entry.path.split("/")))
            self._by_length.setdefault(len(pattern), []).append((pattern, entry))

    def __repr__(self) -> str:
        return f"<Table entries={sum(map(len, self._by_length.values()))}>"

    def find(self, method: str, raw_path: bytes) -> Found:
        """What answers a request; raises `RegistryFault` with 404 or 405, or 400 for a path that is no text."""
        pieces = split_path(raw_path)
        context = None
        if pieces[:1] == ["contexts"] and len(pieces) > 2:
            context, pieces = context_name(pieces[1]), pieces[2:]
        matches = {
            entry.method: Found(entry.handler, found, context)
            for pattern, entry in self._by_length.get(len(pieces), ())
            if (found := match(pattern, pieces)) is not None
        }
        if not matches:
            raise RegistryFault(404, "HTTP 404 Not Found")
        wanted = "GET" if method == "HEAD" else method
        if wanted not in matches:
            raise RegistryFault(405, f"HTTP 405 Method Not Allowed: allowed={','.join(sorted(matches))}")
        return matches[wanted]


def split_path(raw_path: bytes) -> list[str]:
    try:
        pieces = [unquote(piece, errors="strict") for piece in raw_path.decode("ascii").split("/")]
    except UnicodeDecodeError:
        raise RegistryFault(400, "HTTP 400 Bad Request: the path is not UTF-8") from None
    return pieces[1:-1] if pieces[-1] == "" else pieces[1:]


def match(pattern: Sequence[str], pieces: Sequence[str]) -> Mapping[str, str] | None:
    """The named pieces of a path that fits."""
    found: dict[str, str] = {}
    for wanted, piece in zip(pattern, pieces, strict=True):
        if wanted.startswith("{"):
            found[wanted[1:-1]] = piece
        elif wanted != piece:
            return None
    return found
