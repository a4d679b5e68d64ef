"""OAUTHBEARER (RFC 7628): a bearer token in one message. Decides; touches nothing."""

import json
import re
from typing import Final, NamedTuple

from streamhouse.errors import NotAuthenticated

ABORT: Final = b"\x01"
"""The client's reply to the error of a rejected token."""

_MESSAGE: Final = re.compile(
    r"n,(?:a=(?P<authzid>[^\x01,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)+)\x01"
)
_AUTH: Final = re.compile(r"bearer +(?P<token>[-_.~+/A-Za-z0-9]+=*)", re.IGNORECASE)


class BearerMessage(NamedTuple):
    token: str
    authorization_id: str

    def __repr__(self) -> str:
        return "<BearerMessage>"  # never the token


def parse_bearer(message: bytes) -> BearerMessage:
    """The token in a client's message; raise `NotAuthenticated`."""
    try:
        match = _MESSAGE.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise NotAuthenticated("not a message of OAUTHBEARER")
    pairs = [pair.partition("=")[::2] for pair in match["pairs"].rstrip("\x01").split("\x01")]
    auth = [value for key, value in pairs if key == "auth"]
    token = _AUTH.fullmatch(auth[0]) if len(auth) == 1 else None
    if token is None:
        raise NotAuthenticated("the message of OAUTHBEARER has no bearer token")
    return BearerMessage(token["token"], _unescaped(match["authzid"] or ""))


def refusal() -> bytes:
    """The error of a rejected token; the client answers `ABORT`, and then gets the failed login."""
    return json.dumps({"status": "invalid_token"}).encode()


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
